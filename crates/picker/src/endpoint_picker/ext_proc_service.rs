//! Runs the `ext_proc` stream of each request: messages of the proxy, scheduling, and reports about the response.

use std::{net::SocketAddr, sync::Arc};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{
    EndpointPicker,
    ext_proc_stream::{Action, CompleteRequest, ExtProcStream, immediate_response},
    metrics::RunningRequest,
};
use crate::{
    endpoint::InFlight,
    ext_proc::{ProcessingRequest, ProcessingResponse},
    openai_error::OpenAiError,
    schedule::RoutingError,
};

/// Maximum number of messages buffered per stream until the proxy receives them.
const RESPONSE_CHANNEL_CAPACITY: usize = 16;

/// Messages for the proxy.
pub(super) type ResponseStream = ReceiverStream<Result<ProcessingResponse, Status>>;

/// A scheduled request whose stream is open.
struct ScheduledRequest {
    endpoint: SocketAddr,
    prefix_hashes: Vec<Vec<u64>>,
    /// Counts the request as in flight until the proxy ends the stream at the end of the response.
    _in_flight: InFlight,
    _running: RunningRequest,
}

/// Processes the stream of one request in a new task.
pub(super) fn process(messages: Streaming<ProcessingRequest>, picker: Arc<EndpointPicker>) -> ResponseStream {
    let (sender, responses) = mpsc::channel(RESPONSE_CHANNEL_CAPACITY);
    tokio::spawn(async move {
        if let Err(status) = run_stream(messages, &picker, &sender).await {
            sender.send(Err(status)).await.ok();
        }
    });
    ReceiverStream::new(responses)
}

async fn run_stream(
    mut messages: Streaming<ProcessingRequest>,
    picker: &EndpointPicker,
    sender: &mpsc::Sender<Result<ProcessingResponse, Status>>,
) -> Result<(), Status> {
    let mut stream = ExtProcStream::new(picker.policy.parser);
    let mut scheduled: Option<ScheduledRequest> = None;
    while let Some(message) = messages.message().await? {
        let (responses, is_last) = match stream.handle(message)? {
            Action::Continue => (Vec::new(), false),
            Action::Respond(responses) => (responses, false),
            Action::Reject(error) => {
                picker.metrics.record_rejection("", "", error.status);
                (vec![immediate_response(&error)], true)
            }
            Action::Schedule(request) => match schedule(picker, &request) {
                Ok((responses, request)) => {
                    scheduled = request;
                    (responses, false)
                }
                Err(error) => (vec![immediate_response(&error)], true),
            },
        };
        if let (Some(served), Some(scheduled)) = (stream.served_endpoint.take(), &scheduled)
            && picker.is_other_endpoint(scheduled.endpoint, served)
        {
            picker.record_served_endpoint(&scheduled.prefix_hashes, served);
        }
        if let (true, Some(scheduled)) = (std::mem::take(&mut stream.response_failed), &scheduled) {
            picker.report_failure(scheduled.endpoint);
        }
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
    Ok(())
}

/// Schedules a request. Returns the messages for the proxy and the request in flight.
///
/// # Errors
/// [`RoutingError::NoEndpointAvailable`].
fn schedule(
    picker: &EndpointPicker,
    request: &CompleteRequest,
) -> Result<(Vec<ProcessingResponse>, Option<ScheduledRequest>), OpenAiError> {
    let model = request.info.model.as_ref().map_or("", |model| model.name.as_str());
    let Some((result, prefix_hashes)) = picker.schedule(request) else {
        let error = OpenAiError::from(RoutingError::NoEndpointAvailable(picker.pool.clone()));
        picker.metrics.record_rejection(model, &request.target_model, error.status);
        return Err(error);
    };
    let scheduled = result.endpoints.first().map(|endpoint| ScheduledRequest {
        endpoint: endpoint.address,
        prefix_hashes,
        _in_flight: endpoint.load.begin(request.info.estimated_tokens()),
        _running: picker.metrics.record_request(model, &request.target_model, request.body.len()),
    });
    Ok((request.responses(&result, picker.policy.primary_port), scheduled))
}
