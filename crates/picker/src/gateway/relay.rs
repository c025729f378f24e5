//! Answer bodies: our own, or an engine's passed on frame by frame.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::idle::Busy;
use crate::{pool::InFlight, splice::Restorer};

/// What clients receive, and that their connection is in use until they have it.
#[derive(Debug)]
pub(super) struct Body {
    content: Content,
    _busy: Option<Busy>,
}

/// Dropping it (a client that went away) drops the engine's answer, and that closes the
/// connection to the engine, which ends the work there.
#[derive(Debug)]
enum Content {
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
        Self { content: Content::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())), _busy: None }
    }

    /// Ends `busy` with itself.
    pub(super) fn while_busy(self, busy: Busy) -> Self {
        Self { _busy: Some(busy), ..self }
    }

    pub(super) fn relayed(incoming: Incoming, restorer: Option<Restorer>, in_flight: InFlight) -> Self {
        Self { content: Content::Relayed(Relay { incoming, restorer, _in_flight: in_flight }), _busy: None }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.get_mut().content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Relayed(relay) => relay.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_none(),
            Content::Relayed(relay) => relay.restorer.is_none() && relay.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Content::Relayed(relay) if relay.restorer.is_none() => relay.incoming.size_hint(),
            Content::Relayed(_) => SizeHint::default(),
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
