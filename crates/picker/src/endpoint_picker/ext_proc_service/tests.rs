use std::{convert::Infallible, time::Duration};

use futures::{FutureExt as _, StreamExt as _, channel::mpsc::UnboundedSender};
use http_body::Frame;
use http_body_util::StreamBody;
use rstest::rstest;
use tokio::time::{Instant, sleep};

use super::*;
use crate::{
    concurrency_limit::ConcurrencyLimit,
    config::parse_config,
    endpoint::{Endpoint, tests::endpoint},
    endpoint_picker::message_reader::encode_message,
    ext_proc::{
        BodySendMode, HeaderMap, HeaderValue, HttpBody, HttpHeaders, ProcessingRequest, ProtocolConfiguration,
        processing_request::Request, processing_response::Response,
    },
    snapshot::{Pool, tests::pool},
    use_case::{TargetModel, UseCase},
};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// What the proxy sends on one stream.
struct Sender(UnboundedSender<Bytes>);

/// Returns a picker with `memory` bytes for bodies and one endpoint.
fn picker(memory: usize) -> Arc<EndpointPicker> {
    let key = cluster::NamespacedName { namespace: "ns".to_owned(), name: "pool".to_owned() };
    let picker = EndpointPicker::new(key.clone(), parse_config("").unwrap().policy, memory, 1);
    let pool = pool(key, vec![Arc::new(endpoint(1))]);
    picker.scheduler.replace(vec![Pool { allows_implicit_use_cases: true, ..pool }]);
    Arc::new(picker)
}

/// Opens a stream of the proxy.
fn open(picker: &Arc<EndpointPicker>) -> (Sender, ResponseStream) {
    let (frames, received) = futures::channel::mpsc::unbounded();
    let body = StreamBody::new(received.map(|frame| Ok::<_, Infallible>(Frame::data(frame))));
    let (head, ()) = http::Request::new(()).into_parts();
    (Sender(frames), process(&head, body, Arc::clone(picker)))
}

/// Returns 200 if the request was scheduled, else the status for the client, and the seconds since `start`.
async fn outcome(responses: &mut ResponseStream, start: Instant) -> (i32, u64) {
    let code = match responses.next().await.unwrap().unwrap().response {
        Some(Response::RequestHeaders(_)) => 200,
        Some(Response::ImmediateResponse(response)) => {
            assert!(responses.next().await.is_none(), "the stream ends");
            response.status.unwrap().code
        }
        response => panic!("{response:?}"),
    };
    (code, start.elapsed().as_secs())
}

// === impl Sender ===

impl Sender {
    fn send(&self, request: Request) {
        let message = ProcessingRequest { request: Some(request), ..ProcessingRequest::default() };
        // The picker may have ended the stream.
        self.0.unbounded_send(encode_message(&message)).ok();
    }

    /// Sends the headers of a request whose body has `length` bytes.
    fn send_headers(&self, length: usize) {
        let raw_value = Bytes::from(length.to_string());
        let header = HeaderValue { key: "content-length".to_owned(), raw_value, ..HeaderValue::default() };
        let headers = Some(HeaderMap { headers: vec![header] });
        self.send(Request::RequestHeaders(HttpHeaders { headers, end_of_stream: false }));
    }

    fn send_body(&self, text: &str, length: usize, end_of_stream: bool) {
        let mut body = text.as_bytes().to_vec();
        body.resize(length, b' ');
        self.send(Request::RequestBody(HttpBody { body: body.into(), end_of_stream }));
    }

    /// Sends chunks of a body after the seconds before each of them.
    async fn send_chunks(&self, chunks: impl IntoIterator<Item = (u64, usize)>) {
        for (seconds, length) in chunks {
            sleep(Duration::from_secs(seconds)).await;
            self.send_body("", length, false);
        }
    }
}

/// Columns: seconds before each chunk, seconds after which the stream ends.
#[rstest]
#[case::stops(1000, 30)]
#[case::slow(20, 135)]
#[tokio::test(start_paused = true)]
async fn request_that_never_completes_ends(#[case] interval: u64, #[case] expect: u64) {
    let picker = picker(MIB);
    let ((sender, mut responses), start) = (open(&picker), Instant::now());
    sender.send_headers(1000);
    tokio::select! {
        () = sender.send_chunks((0..100).map(|_| (interval, 1))) => unreachable!(),
        outcome = outcome(&mut responses, start) => assert_eq!(outcome, (408, expect)),
    }
    assert_eq!(picker.body_memory.available_bytes(), MIB);
}

/// Four requests reserve the whole memory and then send `chunk` bytes every four seconds; a fifth one waits. Returns the
/// outcomes of the fifth and of one of the others, if they end within 100 seconds.
async fn outcomes_without_memory(chunk: usize) -> [Option<(i32, u64)>; 2] {
    let picker = picker(4 * (MIB + 64 * KIB));
    let start = Instant::now();
    let mut streams: Vec<_> = (0..4).map(|_| open(&picker)).collect();
    for (sender, _) in &streams {
        sender.send_headers(MIB);
        sender.send_body("", 100 * KIB, false);
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(picker.body_memory.available_bytes(), 0);
    let (sender, mut responses) = open(&picker);
    sender.send_headers(100);
    sender.send_body(r#"{"model":"m"}"#, 100, true);
    let sending = streams.iter().map(|(sender, _)| sender.send_chunks((0..8).map(|_| (4, chunk)))).collect::<Vec<_>>();
    let limit = Duration::from_secs(33);
    let (fifth, _) =
        tokio::join!(tokio::time::timeout(limit, outcome(&mut responses, start)), futures::future::join_all(sending));
    let first = outcome(&mut streams[0].1, start).now_or_never();
    [fifth.ok(), first]
}

/// Sends the headers of a request with the response body mode of the proxy.
fn send_mode(sender: &Sender, response_body_mode: BodySendMode) {
    let mode = BodySendMode::FullDuplexStreamed.into();
    let config = ProtocolConfiguration { request_body_mode: mode, response_body_mode: response_body_mode.into() };
    let request = Some(Request::RequestHeaders(HttpHeaders { headers: None, end_of_stream: false }));
    let message = ProcessingRequest { request, protocol_config: Some(config), ..ProcessingRequest::default() };
    sender.0.unbounded_send(encode_message(&message)).unwrap();
}

/// A picker that ends must not take the responses of its requests with it.
#[rstest]
#[case::not_sent(BodySendMode::None, "chat", true)]
#[case::unchanged(BodySendMode::FullDuplexStreamed, "m", true)]
#[case::restored(BodySendMode::FullDuplexStreamed, "chat", false)]
#[tokio::test(start_paused = true)]
async fn exchange_ends_at_shutdown_unless_the_response_is_restored(
    #[case] mode: BodySendMode,
    #[case] model: &str,
    #[case] expect: bool,
) {
    let picker = picker(MIB);
    let target = TargetModel { model: "m".to_owned(), weight: 1 };
    let mut pool = (*picker.current_pool().unwrap()).clone();
    pool.use_cases.insert("chat".to_owned(), UseCase { targets: vec![target], ..UseCase::implicit("chat") });
    picker.scheduler.replace(vec![pool]);
    let (sender, mut responses) = open(&picker);
    send_mode(&sender, mode);
    sender.send_body(&format!(r#"{{"model":"{model}"}}"#), 100, true);
    let (arriving_sender, mut arriving) = open(&picker);
    send_mode(&arriving_sender, mode);
    assert_eq!(outcome(&mut responses, Instant::now()).await.0, 200);
    assert!(responses.next().await.unwrap().is_ok(), "the body");
    picker.shut_down();
    let end = tokio::time::timeout(Duration::from_secs(1), responses.next()).await;
    assert_eq!(end.is_ok_and(|message| message.is_none()), expect);
    arriving_sender.send_body(r#"{"model":"m"}"#, 100, true);
    assert_eq!(outcome(&mut arriving, Instant::now()).await.0, 200, "a request that still arrives");
}

/// A proxy closes the stream of a request whose client has left.
#[tokio::test(start_paused = true)]
async fn request_leaves_the_queue_when_its_stream_closes() {
    let picker = picker(MIB);
    let state = Arc::clone(&picker.current_pool().unwrap().ready_endpoints[0].state);
    state.assume_limit(ConcurrencyLimit::new(1));
    let busy = state.begin(1);
    let requests = || picker.scheduler.render_metrics().matches("flow_control_queue_size{").count();
    let (sender, responses) = open(&picker);
    sender.send_body(r#"{"model":"m"}"#, 100, true);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(requests(), 1);
    drop((sender, responses));
    sleep(Duration::from_secs(1)).await;
    assert_eq!((requests(), picker.body_memory.available_bytes()), (0, MIB));
    drop(busy);
    assert_eq!(state.requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn request_without_memory_is_rejected() {
    assert_eq!(outcomes_without_memory(64 * KIB).await, [Some((503, 30)), None]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_stop_release_their_memory_to_others() {
    assert_eq!(outcomes_without_memory(0).await, [Some((200, 5)), Some((408, 32))]);
}

/// Sends a request, to which host 1 responds with `status` and others with 200. Returns the host of the selected endpoint.
async fn respond(picker: &Arc<EndpointPicker>, status: &'static str) -> u8 {
    let (sender, mut responses) = open(picker);
    sender.send_body(r#"{"model":"m","prompt":"hi"}"#, 100, true);
    let Some(Response::RequestHeaders(reply)) = responses.next().await.unwrap().unwrap().response else { panic!() };
    responses.next().await.unwrap().unwrap();
    let set = reply.response.unwrap().header_mutation.unwrap().set_headers;
    let destination = set[0].header.as_ref().unwrap().text();
    let host = destination.strip_prefix("10.0.0.").unwrap().strip_suffix(":8000").unwrap().parse().unwrap();
    let raw_value = Bytes::from_static(if host == 1 { status } else { "200" }.as_bytes());
    let header = HeaderValue { key: ":status".to_owned(), raw_value, ..HeaderValue::default() };
    let headers = Some(HeaderMap { headers: vec![header] });
    sender.send(Request::ResponseHeaders(HttpHeaders { headers, end_of_stream: true }));
    responses.next().await.unwrap().unwrap();
    host
}

#[tokio::test(start_paused = true)]
async fn failed_response_counts_for_decoder_and_prefiller() {
    let picker = picker(MIB);
    let of_type = |number, component_type: &str| {
        let labels = [("fusioninfer.io/component-type".to_owned(), component_type.to_owned())].into();
        Arc::new(Endpoint { labels, ..endpoint(number) })
    };
    let endpoints = vec![of_type(1, "decoder"), of_type(2, "prefiller")];
    let pool = Pool::new(picker.pool.clone(), picker.scheduler.default_scheduling(), endpoints.clone());
    picker.scheduler.replace(vec![Pool { allows_implicit_use_cases: true, ..pool }]);
    for _ in 0..3 {
        assert!(endpoints.iter().all(|endpoint| endpoint.state.health.is_available(Instant::now())));
        assert_eq!(respond(&picker, "502").await, 1);
    }
    assert!(endpoints.iter().all(|endpoint| !endpoint.state.health.is_available(Instant::now())));
}

/// The proxy responds with 503 if it cannot connect to the endpoint.
#[rstest]
#[case::failures("503", 3)]
#[case::model_not_served("404", 1)]
#[tokio::test(start_paused = true)]
async fn endpoint_that_fails_is_avoided(#[case] status: &'static str, #[case] expected: usize) {
    let picker = picker(MIB);
    let pool = pool(picker.pool.clone(), [1, 2].map(|number| Arc::new(endpoint(number))).into());
    picker.scheduler.replace(vec![Pool { allows_implicit_use_cases: true, ..pool }]);
    let mut failures = 0;
    for _ in 0..64 {
        failures += usize::from(respond(&picker, status).await == 1);
    }
    assert_eq!(failures, expected);
}

/// Many streams of which only the beginning arrives, or whose request is complete and whose response never ends: those that
/// fit are open, the others end at once.
#[rstest]
#[case::nothing(None)]
#[case::headers(Some(58 * KIB))]
#[tokio::test(start_paused = true)]
async fn heads_stay_within_the_memory(#[case] header_bytes: Option<usize>) {
    let picker = picker(4 * MIB);
    let (mut open_streams, mut rejected) = (Vec::new(), 0);
    for _ in 0..1000 {
        let ((sender, mut responses), start) = (open(&picker), Instant::now());
        if let Some(length) = header_bytes {
            let raw_value = Bytes::from(vec![b'v'; length]);
            let header = HeaderValue { key: "x-large".to_owned(), raw_value, ..HeaderValue::default() };
            let headers = Some(HeaderMap { headers: vec![header] });
            sender.send(Request::RequestHeaders(HttpHeaders { headers, end_of_stream: true }));
        }
        sleep(Duration::from_millis(1)).await;
        match outcome(&mut responses, start).now_or_never() {
            None | Some((200, 0)) => open_streams.push((sender, responses)),
            Some(outcome) => {
                assert_eq!(outcome, (503, 0));
                rejected += 1;
            }
        }
    }
    let held_bytes = open_streams.len() * (4 * KIB + header_bytes.unwrap_or_default());
    assert!(rejected > 0 && held_bytes <= MIB, "{held_bytes} bytes are held");
    drop(open_streams);
    sleep(Duration::from_millis(1)).await;
    let ((sender, mut responses), start) = (open(&picker), Instant::now());
    sender.send_body(r#"{"model":"m"}"#, 100, true);
    assert_eq!(outcome(&mut responses, start).await, (200, 0));
}

#[tokio::test]
async fn request_that_causes_a_panic_is_rejected() {
    let frames =
        futures::stream::poll_fn(|_| -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> { panic!("broken") });
    let (head, ()) = http::Request::new(()).into_parts();
    let (mut responses, start) = (process(&head, StreamBody::new(frames), picker(MIB)), Instant::now());
    assert_eq!(outcome(&mut responses, start).await, (500, 0));
}

/// The stream is open until the response ends; the body is in memory until the proxy has received all of it.
#[tokio::test(start_paused = true)]
async fn memory_is_reserved_until_the_body_is_returned() {
    let picker = picker(4 * MIB);
    let (sender, mut responses) = open(&picker);
    sender.send_headers(200 * KIB);
    sender.send_body(r#"{"model":"m"}"#, 200 * KIB, true);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(picker.body_memory.available_bytes(), 4 * MIB - 200 * KIB);
    let mut is_end = false;
    while !is_end {
        assert_eq!(picker.body_memory.available_bytes(), 4 * MIB - 200 * KIB);
        is_end = match responses.next().await.unwrap().unwrap().response {
            Some(Response::RequestHeaders(_)) => false,
            Some(Response::RequestBody(response)) => {
                response.response.unwrap().body_mutation.unwrap().streamed_response.unwrap().end_of_stream
            }
            response => panic!("{response:?}"),
        };
    }
    assert_eq!(picker.body_memory.available_bytes(), 4 * MIB);

    sleep(Duration::from_secs(3600)).await;
    sender.send(Request::ResponseHeaders(HttpHeaders::default()));
    assert!(matches!(responses.next().await.unwrap().unwrap().response, Some(Response::ResponseHeaders(_))));
    sender.send(Request::ResponseBody(HttpBody { body: vec![b'x'; 1000].into(), end_of_stream: true }));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(picker.body_memory.available_bytes(), 4 * MIB - 1000);
    drop(responses.next().await);
    assert_eq!(picker.body_memory.available_bytes(), 4 * MIB);
}

/// The memory of a restored part is reserved until the proxy has received it, and not longer.
#[tokio::test(start_paused = true)]
async fn parts_of_a_restored_response_are_reserved_until_they_are_returned() {
    let picker = picker(4 * MIB);
    let (sender, mut responses) = open(&picker);
    let header = |key: &str, value: &'static str| HeaderValue {
        key: key.to_owned(),
        raw_value: Bytes::from_static(value.as_bytes()),
        ..HeaderValue::default()
    };
    let headers = |header| HttpHeaders { headers: Some(HeaderMap { headers: vec![header] }), end_of_stream: false };
    sender.send(Request::RequestHeaders(headers(header("x-llm-d-model-name-rewrite", "tuned"))));
    sender.send_body(r#"{"model":"chat"}"#, 100, true);
    sender.send(Request::ResponseHeaders(headers(header("content-type", "text/event-stream"))));
    for _ in 0..3 {
        responses.next().await.unwrap().unwrap();
    }
    let events = "data: {\"model\":\"tuned\"}\n\n".repeat(1000);
    let (mut restored, middle) = (Vec::new(), events.len() / 2);
    for (part, end_of_stream) in [(&events[..middle], false), (&events[middle..], true)] {
        let body = Bytes::copy_from_slice(part.as_bytes());
        sender.send(Request::ResponseBody(HttpBody { body, end_of_stream }));
        sleep(Duration::from_millis(1)).await;
        let reserved = 4 * MIB - picker.body_memory.available_bytes();
        let Some(Response::ResponseBody(response)) = responses.next().await.unwrap().unwrap().response else {
            panic!()
        };
        let chunk = response.response.unwrap().body_mutation.unwrap().streamed_response.unwrap();
        assert_eq!((reserved, chunk.end_of_stream), (chunk.body.len(), end_of_stream));
        restored.extend_from_slice(&chunk.body);
        drop(chunk);
        assert_eq!(picker.body_memory.available_bytes(), 4 * MIB);
    }
    assert_eq!(String::from_utf8(restored).unwrap(), events.replace("tuned", "chat"));
}
