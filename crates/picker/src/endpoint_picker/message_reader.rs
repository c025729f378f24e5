//! Receives the messages of an `ext_proc` stream within the limits on their memory and time.
//!
//! The decoder of `tonic` receives messages before their memory is reserved, and retains the memory of the largest one as long
//! as the stream is open.

use std::{error::Error, mem};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_server::{BodyError, BodyLimits, BodyMemory, BodyReader, BodyReservation};
use prost::Message as _;
use tonic::Status;

use crate::{
    ext_proc::ProcessingRequest,
    request::{BODY_LIMITS, MAX_BODY_BYTES},
};

/// Maximum size of one message. A whole body may arrive in one message.
const MAX_MESSAGE_BYTES: usize = MAX_BODY_BYTES + 64 * 1024;

/// Limits of the messages of one request. Small chunks of the body may need as many bytes for the rest of their messages.
const LIMITS: BodyLimits = BodyLimits { max_bytes: 2 * MAX_BODY_BYTES, ..BODY_LIMITS };

/// Minimum memory of a picker in bytes: the messages of one request with a body of the maximum size.
pub const MIN_PICKER_MEMORY: usize = LIMITS.max_bytes;

/// Bytes that the messages of a request are expected to need in addition to its body.
const EXPECTED_OVERHEAD: usize = 64 * 1024;

/// Size in bytes of the prefix of a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Receives the messages of one stream.
pub(super) struct MessageReader<B> {
    body: BodyReader<B>,
    /// Received bytes that are not yet split into messages.
    frame: Bytes,
    /// Beginning of a message that consists of several frames; `frame` is empty then.
    partial: BytesMut,
}

/// Why no message was received.
#[derive(Debug)]
pub(super) enum MessageError {
    /// A limit is exceeded, or the connection failed.
    Body(BodyError),
    /// The proxy violates the protocol.
    Protocol(Status),
}

// === impl MessageReader ===

impl<B> MessageReader<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    /// Returns a reader of the messages in `body`, whose memory is `memory`.
    pub(super) fn new(body: B, memory: BodyMemory) -> Self {
        let body = BodyReader::new(body, LIMITS, Some(memory));
        Self { body, frame: Bytes::new(), partial: BytesMut::new() }
    }

    /// Returns the next message, or `None` at the end of the stream.
    ///
    /// # Errors
    /// The messages since [`MessageReader::take_reservation`] exceed a limit, their memory is not available in time, or they
    /// are invalid.
    pub(super) async fn next(&mut self) -> Result<Option<ProcessingRequest>, MessageError> {
        loop {
            if let Some(message) = self.take_message().map_err(MessageError::Protocol)? {
                let decoded = ProcessingRequest::decode(message);
                return decoded.map(Some).map_err(|error| MessageError::Protocol(Status::internal(error.to_string())));
            }
            match self.body.next_chunk().await.map_err(MessageError::Body)? {
                Some(chunk) if self.partial.is_empty() => self.frame = chunk,
                Some(chunk) => self.partial.extend_from_slice(&chunk),
                None if self.partial.is_empty() => return Ok(None),
                None => return Err(MessageError::Protocol(Status::internal("the stream ended within a message"))),
            }
        }
    }

    /// Announces the size of the body of a request.
    pub(super) fn expect_body(&mut self, length: usize) {
        self.body.expect_bytes(length.min(MAX_BODY_BYTES).saturating_add(EXPECTED_OVERHEAD));
    }

    /// Returns the reservation for `bytes` bytes of the messages that were received, and releases the rest. The limits
    /// then start again for the next messages.
    pub(super) fn take_reservation(&mut self, bytes: usize) -> BodyReservation {
        self.body.take_reservation(bytes)
    }

    /// Returns the next message if it is complete. A message of a single frame is not copied.
    fn take_message(&mut self) -> Result<Option<Bytes>, Status> {
        if self.partial.is_empty() {
            if let Some(end) = message_end(&self.frame)? {
                return Ok(Some(self.frame.split_to(end).slice(PREFIX_BYTES..)));
            }
            self.partial.extend_from_slice(&mem::take(&mut self.frame));
            return Ok(None);
        }
        let Some(end) = message_end(&self.partial)? else { return Ok(None) };
        let mut message = mem::take(&mut self.partial);
        // A copy, because the rest would retain the memory of the message.
        self.frame = Bytes::copy_from_slice(&message.split_off(end));
        Ok(Some(message.freeze().slice(PREFIX_BYTES..)))
    }
}

/// Returns where the first message in `bytes` ends, or `None` if it is incomplete.
fn message_end(bytes: &[u8]) -> Result<Option<usize>, Status> {
    let Some([compression, length @ ..]) = bytes.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    if *compression != 0 {
        return Err(Status::unimplemented("compressed messages are not supported"));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE_BYTES {
        let message = format!("a message has {length} bytes; the limit is {MAX_MESSAGE_BYTES} bytes");
        return Err(Status::out_of_range(message));
    }
    let end = length.saturating_add(PREFIX_BYTES);
    Ok(Some(end).filter(|end| *end <= bytes.len()))
}

/// Returns the message in the format of gRPC.
#[cfg(test)]
pub(super) fn encode_message(message: &ProcessingRequest) -> Bytes {
    let bytes = message.encode_to_vec();
    [&[0], &u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], &bytes].concat().into()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use rstest::rstest;
    use tonic::Code;

    use super::*;
    use crate::ext_proc::{HttpBody, processing_request::Request};

    fn message(length: usize) -> ProcessingRequest {
        let body = HttpBody { body: Bytes::from(vec![b'x'; length]), end_of_stream: false };
        ProcessingRequest { request: Some(Request::RequestBody(body)), ..ProcessingRequest::default() }
    }

    fn encode(messages: &[ProcessingRequest]) -> Bytes {
        messages.iter().flat_map(encode_message).collect()
    }

    fn reader(frames: Vec<Bytes>) -> MessageReader<impl Body<Data = Bytes, Error = Infallible> + Unpin> {
        let frames = frames.into_iter().map(|frame| Ok(Frame::data(frame)));
        MessageReader::new(StreamBody::new(stream::iter(frames)), BodyMemory::new(1 << 20))
    }

    #[tokio::test]
    async fn messages_are_split_at_any_frame_boundary() {
        let messages = [message(3), message(0), ProcessingRequest::default(), message(40)];
        let bytes = encode(&messages);
        for size in 1..=bytes.len() {
            let mut reader = reader(bytes.chunks(size).map(Bytes::copy_from_slice).collect());
            for expect in &messages {
                assert_eq!(reader.next().await.unwrap().as_ref(), Some(expect), "frames of {size}");
            }
            assert!(reader.next().await.unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn message_of_one_frame_is_not_copied() {
        let frame = encode(&[message(1000)]);
        let Some(Request::RequestBody(body)) = reader(vec![frame.clone()]).next().await.unwrap().unwrap().request
        else {
            panic!()
        };
        assert_eq!(body.body.as_ptr_range().end, frame.as_ptr_range().end);
    }

    #[rstest]
    #[case::compressed(&[1, 0, 0, 0, 1, 0], Code::Unimplemented)]
    #[case::too_long(&[0, 0xff, 0xff, 0xff, 0xff], Code::OutOfRange)]
    #[case::incomplete(&[0, 0, 0, 0, 9, 1], Code::Internal)]
    #[case::not_protobuf(&[0, 0, 0, 0, 1, 0xff], Code::Internal)]
    #[tokio::test]
    async fn invalid_messages_are_errors(#[case] bytes: &'static [u8], #[case] expect: Code) {
        let error = reader(vec![Bytes::from_static(bytes)]).next().await.unwrap_err();
        assert!(matches!(&error, MessageError::Protocol(status) if status.code() == expect), "{error:?}");
    }
}
