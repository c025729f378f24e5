//! Answer bodies: our own, or an engine's passed on frame by frame.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use crate::{pool::InFlight, splice::Restorer};

/// What clients receive. Dropping it (a client that went away) drops the engine's answer, and that closes the
/// connection to the engine, which ends the work there.
#[derive(Debug)]
pub(super) enum Body {
    Whole(Option<Bytes>),
    Relayed(Relay),
}

#[derive(Debug)]
pub(super) struct Relay {
    incoming: Incoming,
    restorer: Option<Restorer>,
    /// Held until the last byte.
    _in_flight: InFlight,
}

impl Body {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    pub(super) fn relayed(incoming: Incoming, restorer: Option<Restorer>, in_flight: InFlight) -> Self {
        Self::Relayed(Relay { incoming, restorer, _in_flight: in_flight })
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Relayed(relay) => relay.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Relayed(relay) => relay.restorer.is_none() && relay.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Relayed(relay) if relay.restorer.is_none() => relay.incoming.size_hint(),
            Self::Relayed(_) => SizeHint::default(),
        }
    }
}

impl Relay {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context)).transpose()?;
            let Some(restorer) = &mut self.restorer else { return Poll::Ready(frame.map(Ok)) };
            let Some(frame) = frame else {
                let rest = restorer.end();
                self.restorer = None;
                return Poll::Ready(Some(rest).filter(|rest| !rest.is_empty()).map(|rest| Ok(Frame::data(rest))));
            };
            let restored = match frame.into_data() {
                Ok(data) => restorer.push(&data),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            // All of it may be held back for now; an empty frame would be noise.
            if !restored.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(restored))));
            }
        }
    }
}
