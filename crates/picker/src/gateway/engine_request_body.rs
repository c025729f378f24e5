//! Body of a request to an engine: the body of the client, of which the model name may be replaced.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A body in up to three parts. A clone shares their memory.
#[derive(Clone, Debug)]
pub(super) struct EngineRequestBody([Bytes; 3]);

// === impl EngineRequestBody ===

impl From<[Bytes; 3]> for EngineRequestBody {
    fn from(parts: [Bytes; 3]) -> Self {
        Self(parts)
    }
}

impl From<Bytes> for EngineRequestBody {
    fn from(body: Bytes) -> Self {
        Self([body, Bytes::new(), Bytes::new()])
    }
}

impl Body for EngineRequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.iter_mut().find(|part| !part.is_empty());
        Poll::Ready(next.map(|part| Ok(Frame::data(std::mem::take(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn contains_all_parts() {
        let body = EngineRequestBody::from(["{", "}", " "].map(Bytes::from));
        assert_eq!(body.size_hint().exact(), Some(3));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "{} ");
        assert!(EngineRequestBody::from(Bytes::new()).is_end_stream());
    }
}
