//! Runs the `ext_proc` stream of each request: messages of the proxy, scheduling, and reports about the response.

use std::{error::Error, net::SocketAddr, sync::Arc};

use apimachinery::catch_future_panic;
use bytes::Bytes;
use http::{StatusCode, request::Parts};
use http_body::Body;
use http_server::{BodyError, HeadMemoryExhausted, HeadReservation};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{
    EndpointPicker,
    ext_proc_stream::{Action, CompleteRequest, ExtProcStream, immediate_response, response_body_messages},
    message_reader::{MessageError, MessageReader},
};
use crate::{
    access_log::AccessRecord,
    endpoint_health::RequestOutcome,
    ext_proc::{HeaderValue, HttpHeaders, ProcessingRequest, ProcessingResponse, processing_request::Request},
    openai_error::OpenAiError,
    routing_error::RoutingError,
    scheduler::Permit,
};

/// Maximum number of messages buffered per stream until the proxy receives them.
const RESPONSE_CHANNEL_CAPACITY: usize = 16;

/// Messages for the proxy.
pub(super) type ResponseStream = ReceiverStream<Result<ProcessingResponse, Status>>;

/// Processes the stream of one request in a new task: `body` contains the messages of the proxy. The memory of `head` and of
/// the headers in the messages is reserved until the stream ends.
pub(super) fn process<B>(head: &Parts, body: B, picker: Arc<EndpointPicker>) -> ResponseStream
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + Unpin + 'static,
{
    let (sender, responses) = mpsc::channel(RESPONSE_CHANNEL_CAPACITY);
    let head = match picker.body_memory.reserve_head(head) {
        Ok(head) => head,
        Err(error) => {
            // The channel is empty.
            sender.try_send(Ok(reject(&picker, &error.into(), &mut None))).ok();
            return ReceiverStream::new(responses);
        }
    };
    let messages = MessageReader::new(body, picker.body_memory.clone());
    tokio::spawn(async move {
        let last_message = match catch_future_panic(run_stream(messages, head, &picker, &sender)).await {
            Ok(Ok(())) => return,
            Ok(Err(status)) => Err(status),
            // Without a last message, the proxy would continue without an endpoint.
            Err(panic) => {
                tracing::error!(%panic, "failed to process a request");
                Ok(reject(&picker, &OpenAiError::internal_error(), &mut None))
            }
        };
        sender.send(last_message).await.ok();
    });
    ReceiverStream::new(responses)
}

/// Counts a request without a model as rejected and returns the message for the proxy.
fn reject(picker: &EndpointPicker, error: &OpenAiError, record: &mut Option<Box<AccessRecord>>) -> ProcessingResponse {
    if let Some(record) = record {
        record.record_error(error);
    }
    picker.scheduler.metrics.record_rejection("", "", error.status);
    immediate_response(error)
}

async fn run_stream<B>(
    mut messages: MessageReader<B>,
    mut head: HeadReservation,
    picker: &EndpointPicker,
    sender: &mpsc::Sender<Result<ProcessingResponse, Status>>,
) -> Result<(), Status>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    let mut stream = ExtProcStream::new(picker.policy().parser, picker.control_fields, picker.session_header.clone());
    // Counts the request as in flight until the proxy ends the stream at the end of the response.
    let mut scheduled: Option<Permit> = None;
    let mut is_complete = false;
    let mut record = None;
    loop {
        // A response in progress must not end with the picker.
        let is_finished = is_complete && !stream.needs_response();
        let message = tokio::select! {
            message = messages.next() => message,
            () = picker.shutdown.cancelled(), if is_finished => return Ok(()),
        };
        let ends_response =
            matches!(&message, Ok(Some(ProcessingRequest { request: Some(Request::ResponseTrailers(_)), .. })));
        if let (Some(log), Ok(Some(message))) = (&picker.scheduler.access_log, &message)
            && let Some(Request::RequestHeaders(headers)) = &message.request
        {
            record = Some(log.begin(&header_text(headers, ":path")));
        }
        let action = match message {
            Ok(None) => return Ok(()),
            Ok(Some(message)) => match reserve_headers(&mut head, &message) {
                Ok(()) => stream.handle(message)?,
                Err(error) => Action::Reject(error.into()),
            },
            Err(MessageError::Protocol(status)) => return Err(status),
            Err(MessageError::Body(BodyError::Read(error))) => return Err(Status::cancelled(error.to_string())),
            Err(MessageError::Body(error)) if is_complete => return Err(body_status(&error)),
            // With a gRPC status, a proxy with `failure_mode_allow` would send the request to any endpoint.
            Err(MessageError::Body(error)) => Action::Reject(error.into()),
        };
        if let (Some(status), Some(scheduled)) = (stream.response_status.take(), &mut scheduled) {
            record_response(picker, scheduled, status, stream.served_endpoint.take());
        }
        let (responses, is_last) = match action {
            Action::Continue => {
                if let Some(length) = stream.content_length.take() {
                    messages.expect_body(length);
                }
                (Vec::new(), false)
            }
            Action::Respond(responses) => {
                if is_complete {
                    drop(messages.take_reservation(0));
                }
                if let Some(scheduled) = &mut scheduled {
                    scheduled.record_response_start();
                    if ends_response {
                        scheduled.record_response_end();
                    }
                }
                (responses, false)
            }
            Action::ReturnResponseBody(mut message) => {
                if let Some(scheduled) = &mut scheduled {
                    scheduled.record_response_body(&message.body);
                    if message.end_of_stream {
                        scheduled.record_response_end();
                    }
                }
                if is_complete {
                    let reservation = messages.take_reservation(message.body.len());
                    message.body = reservation.attach(message.body);
                }
                (response_body_messages(message), false)
            }
            Action::Reject(error) => (vec![reject(picker, &error, &mut record)], true),
            Action::Schedule(mut request) => {
                is_complete = true;
                // The memory is reserved until the proxy has received the last message with a part of the body.
                let reservation = messages.take_reservation(request.body.len());
                request.body = reservation.attach(request.body);
                if let Some(record) = &mut record {
                    record.record_request(request.model().name(), request.body.len());
                }
                let result = tokio::select! {
                    result = schedule(picker, &request) => result,
                    // A request whose client has left must not stay in the queue.
                    () = sender.closed() => return Ok(()),
                };
                match result {
                    Ok((responses, mut permit)) => {
                        stream.rewritten = request.rewritten_model(&permit.route.target_model);
                        stream.measures_response = permit.is_measured();
                        if let Some(record) = &mut record {
                            permit.record_admission(record);
                            permit.record_endpoint(record);
                        }
                        permit.set_access_record(record.take());
                        scheduled = Some(permit);
                        (responses, false)
                    }
                    Err(error) => {
                        if let Some(record) = &mut record {
                            record.record_error(&error);
                        }
                        (vec![immediate_response(&error)], true)
                    }
                }
            }
        };
        for response in responses {
            // The receiver is dropped when the client or the proxy disconnects.
            if sender.send(Ok(response)).await.is_err() {
                return Ok(());
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Records the status of the response, and the endpoint that sent it.
fn record_response(picker: &EndpointPicker, permit: &mut Permit, status: StatusCode, served: Option<SocketAddr>) {
    let selected = permit.selection.result.endpoint.address;
    if let Some(record) = permit.access_record() {
        record.record_response(status, true);
    }
    if !status.is_success() {
        permit.record_error_response();
    }
    match served.filter(|served| picker.is_other_endpoint(selected, *served)) {
        // The proxy sends a request to a fallback endpoint if the selected one fails.
        Some(served) => {
            permit.record_served_endpoint(served);
            permit.record_outcome(RequestOutcome::Failed);
        }
        None => permit.record_outcome(RequestOutcome::Responded(status)),
    }
}

/// Returns the value of a header of a request, empty if there is none.
fn header_text(headers: &HttpHeaders, name: &str) -> String {
    let headers = headers.headers.iter().flat_map(|map| &map.headers);
    headers.filter(|header| header.key == name).map(HeaderValue::text).next().unwrap_or_default()
}

/// Reserves the memory of the headers of a request.
///
/// # Errors
/// The memory is not available now.
fn reserve_headers(head: &mut HeadReservation, message: &ProcessingRequest) -> Result<(), HeadMemoryExhausted> {
    match message.request {
        Some(Request::RequestHeaders(_)) => head.grow_by(message.encoded_len()),
        _ => Ok(()),
    }
}

/// Returns the status that ends a stream whose request is complete.
fn body_status(error: &BodyError) -> Status {
    let message = error.to_string();
    match error {
        BodyError::Timeout(_) | BodyError::Paused(_) | BodyError::Stalled => Status::deadline_exceeded(message),
        BodyError::OutOfMemory(_) | BodyError::TooLarge { .. } => Status::resource_exhausted(message),
        BodyError::Read(_) => Status::cancelled(message),
    }
}

/// Schedules a request. Returns the messages for the proxy and the admitted request.
///
/// # Errors
/// The model is unknown, no endpoint is available, or the limits of the queue.
async fn schedule(
    picker: &EndpointPicker,
    request: &CompleteRequest,
) -> Result<(Vec<ProcessingResponse>, Permit), OpenAiError> {
    let model = request.info.model.as_ref().map_or("", |model| model.name.as_str());
    let permit = picker.admit(request).await.map_err(|error| {
        // The names of models that do not exist would fill the set of known labels.
        let (model, target) = match error {
            RoutingError::ModelNotFound(_) => ("", ""),
            _ => (model, request.target_model.as_deref().unwrap_or(model)),
        };
        let error = OpenAiError::from(error);
        picker.scheduler.metrics.record_rejection(model, target, error.status);
        error
    })?;
    let responses =
        request.responses(&permit.route.target_model, &permit.selection.result, picker.policy().primary_port);
    Ok((responses, permit))
}

#[cfg(test)]
mod tests;
