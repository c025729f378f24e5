//! Response bodies: complete bodies from the gateway, or bodies from engines that are streamed frame by frame.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::Instant;

use super::{
    engine_body::{EngineBody, EngineBodyError},
    engine_response_body::EngineResponseBody,
    event_stream::{Api, EventStream},
};
use crate::{
    endpoint_health::RequestOutcome, model_rewrite::ModelRestorer, openai_error::OpenAiError, scheduler::Permit,
};

/// Body of a response.
pub(super) struct ResponseBody(Content);

/// Content of a body. If the client disconnects, it is dropped; this closes the connection to the engine, which aborts the
/// request.
enum Content {
    /// A complete body, until it is sent.
    Full(Option<Bytes>),
    /// A streamed body from an engine.
    Upstream(Box<UpstreamBody>),
}

/// Body from an engine.
struct UpstreamBody {
    incoming: EngineBody<EngineResponseBody>,
    restorer: Option<ModelRestorer>,
    /// Ends an event stream that fails with an error event.
    event_stream: Option<EventStream>,
    is_ended: bool,
    /// Counts the request as in flight until the end of the body.
    permit: Permit,
}

// === impl ResponseBody ===

impl ResponseBody {
    /// Returns a complete body.
    pub(super) fn full(bytes: Bytes) -> Self {
        Self(Content::Full(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// Returns the body of an engine. `restorer` changes it if the model was rewritten; `event_stream` is the API of an event
    /// stream. It fails at `deadline`.
    pub(super) fn upstream(
        incoming: EngineResponseBody,
        restorer: Option<ModelRestorer>,
        event_stream: Option<Api>,
        permit: Permit,
        deadline: Option<Instant>,
    ) -> Self {
        let event_source = event_stream.map(|_| permit.destination());
        let incoming = EngineBody::new(incoming, event_source, permit.pod_deleted(), deadline);
        let event_stream = event_stream.map(EventStream::new);
        Self(Content::Upstream(Box::new(UpstreamBody { incoming, restorer, event_stream, is_ended: false, permit })))
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
            Content::Upstream(body) => body.is_ended || body.is_unchanged() && body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Content::Upstream(body) if body.is_unchanged() => body.incoming.size_hint(),
            Content::Upstream(_) => SizeHint::default(),
        }
    }
}

// === impl UpstreamBody ===

impl UpstreamBody {
    /// Returns whether the frames are those of the engine.
    fn is_unchanged(&self) -> bool {
        self.restorer.is_none() && self.event_stream.is_none()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, EngineBodyError>>> {
        while !self.is_ended {
            let data = match ready!(Pin::new(&mut self.incoming).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        self.permit.record_first_byte();
                        self.permit.record_response_body(&data);
                        // The server may not ask for the end of a body with a length.
                        if self.incoming.is_end_stream() {
                            self.permit.record_response_end();
                        }
                        self.process(data)
                    }
                    Err(trailers) if self.is_unchanged() => return Poll::Ready(Some(Ok(trailers))),
                    // Delayed bytes may follow.
                    Err(_) => Bytes::new(),
                },
                Some(Err(error)) => return Poll::Ready(Some(self.fail(error))),
                None => self.finish(),
            };
            // The whole chunk may be delayed; do not send an empty frame.
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
        Poll::Ready(None)
    }

    /// Returns what can be sent after `data` was received.
    fn process(&mut self, data: Bytes) -> Bytes {
        let data = match &mut self.restorer {
            Some(restorer) => restorer.push(&data),
            None => data,
        };
        match &mut self.event_stream {
            Some(stream) => stream.push(data),
            None => data,
        }
    }

    /// Returns the delayed bytes at the end of the body.
    fn finish(&mut self) -> Bytes {
        self.is_ended = true;
        self.permit.record_response_end();
        let data = self.restorer.as_mut().map(ModelRestorer::finish).unwrap_or_default();
        match &mut self.event_stream {
            Some(stream) => [stream.push(data), stream.finish()].concat().into(),
            None => data,
        }
    }

    /// Returns the end of a body that failed: an error event, if the body is an event stream.
    fn fail(&mut self, error: EngineBodyError) -> Result<Frame<Bytes>, EngineBodyError> {
        self.is_ended = true;
        let address = self.permit.destination();
        let reported = match error {
            EngineBodyError::DeadlineExceeded => {
                tracing::debug!(%address, %error, "ended a response");
                OpenAiError::route_timeout()
            }
            _ => {
                self.permit.record_outcome(RequestOutcome::Failed);
                tracing::warn!(%address, %error, "engine failed during a response");
                OpenAiError::response_incomplete()
            }
        };
        match &self.event_stream {
            Some(stream) => Ok(Frame::data(stream.fail(&reported))),
            None => Err(error),
        }
    }
}
