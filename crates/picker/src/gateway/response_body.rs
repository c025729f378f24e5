//! Response bodies: complete bodies from the gateway, or bodies from engines that are streamed frame by frame.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::engine_body::{EngineBody, EngineBodyError};
use crate::{endpoint_health::RequestOutcome, model_rewrite::ModelRestorer, scheduler::Permit};

/// Body of a response.
#[derive(Debug)]
pub(super) struct ResponseBody(Content);

/// Content of a body. If the client disconnects, it is dropped; this closes the connection to the engine, which aborts the
/// request.
#[derive(Debug)]
enum Content {
    /// A complete body, until it is sent.
    Full(Option<Bytes>),
    /// A streamed body from an engine.
    Upstream(Box<UpstreamBody>),
}

/// Body from an engine.
#[derive(Debug)]
struct UpstreamBody {
    incoming: EngineBody<Incoming>,
    restorer: Option<ModelRestorer>,
    /// Counts the request as in flight until the end of the body.
    permit: Permit,
}

// === impl ResponseBody ===

impl ResponseBody {
    /// Returns a complete body.
    pub(super) fn full(bytes: Bytes) -> Self {
        Self(Content::Full(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// Returns the body of an engine. `restorer` changes it if the model was rewritten.
    pub(super) fn upstream(incoming: Incoming, restorer: Option<ModelRestorer>, permit: Permit) -> Self {
        let incoming = EngineBody::new(incoming);
        Self(Content::Upstream(Box::new(UpstreamBody { incoming, restorer, permit })))
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = EngineBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, EngineBodyError>>> {
        match &mut self.get_mut().0 {
            Content::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Upstream(body) => body.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Full(bytes) => bytes.is_none(),
            Content::Upstream(body) => body.restorer.is_none() && body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Content::Upstream(body) if body.restorer.is_none() => body.incoming.size_hint(),
            Content::Upstream(_) => SizeHint::default(),
        }
    }
}

// === impl UpstreamBody ===

impl UpstreamBody {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, EngineBodyError>>> {
        loop {
            let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context)).transpose();
            if frame.is_err() {
                self.permit.record_outcome(RequestOutcome::Failed);
            }
            let frame = frame?;
            let Some(restorer) = &mut self.restorer else { return Poll::Ready(frame.map(Ok)) };
            let Some(frame) = frame else {
                let delayed = restorer.finish();
                self.restorer = None;
                return Poll::Ready(
                    Some(delayed).filter(|delayed| !delayed.is_empty()).map(|delayed| Ok(Frame::data(delayed))),
                );
            };
            let restored = match frame.into_data() {
                Ok(data) => restorer.push(&data),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            // The restorer may delay the whole chunk; do not send an empty frame.
            if !restored.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(restored))));
            }
        }
    }
}
