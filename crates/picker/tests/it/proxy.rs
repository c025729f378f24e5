//! Tests of requests that the gateway forwards.

use std::time::{Duration, Instant};

use crate::gateway_fixture::{
    DRAIN_TIMEOUT, GatewayFixture, HttpResponse, TIMEOUT, engine_config, get, listen_unresponsively, metric, pool,
    post, receive, send, start, start_with_listeners, start_with_options, unreachable_address, wait_until,
};
use engine::{Config, Timing};
use futures::FutureExt as _;
use picker::GatewayOptions;
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::oneshot,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

const CHAT: &str = r#"{"model":"chat","messages":[{"role":"user","content":"hi"}],"max_tokens":4,"ignore_eos":true}"#;
const STREAM: &str = r#"{"model":"chat","messages":[{"role":"user","content":"hi"}],"max_tokens":4,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}"#;

fn events(response: &HttpResponse) -> Vec<&str> {
    response.body.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect()
}

#[tokio::test]
async fn response_headers_explain_endpoint_selection() {
    let fixture = start(vec![engine_config(&["chat"]), engine_config(&["chat"])], &[]).await;
    let response = post(fixture.gateway, "/v1/chat/completions", CHAT).await;
    assert_eq!((response.status(), response.json()["usage"]["completion_tokens"].as_u64()), (200, Some(4)));
    let endpoint: std::net::SocketAddr = response.header("x-ostler-endpoint").unwrap().parse().unwrap();
    assert!(fixture.engines.contains(&endpoint));
    assert_eq!(response.header("x-ostler-pod"), Some(format!("pod-{}", endpoint.port()).as_str()));
    assert_eq!(response.header("x-ostler-decision"), Some("0 in flight, of 2 endpoints"));
    assert!(response.header("content-length").is_some(), "a response that is not rewritten retains its length");
}

// spec: GW-53
#[tokio::test]
async fn stream_contains_usage_and_model_name_of_client() {
    let fixture = start(vec![engine_config(&["base-model-v2"])], &[("base-model-v2", 1)]).await;
    let response = post(fixture.gateway, "/v1/chat/completions", STREAM).await;
    let events = events(&response);
    assert_eq!(events.len(), 7, "role, four tokens, usage, done: {events:?}");
    assert!(events[..6].iter().all(|event| event.contains(r#""model":"chat""#)), "{events:?}");
    assert!(events[5].contains(r#""completion_tokens":4"#));
    assert_eq!(events[6], "[DONE]");
    assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
}

#[rstest]
#[case::default(false)]
#[case::debug_headers(true)]
#[tokio::test]
async fn internal_headers_are_sent_on_request_only(#[case] debug_headers: bool) {
    let options = GatewayOptions { debug_headers, ..GatewayOptions::default() };
    let fixture = start_with_options(vec![engine_config(&["chat"])], options).await;
    let response = post(fixture.gateway, "/v1/chat/completions", CHAT).await;
    assert_eq!((response.status(), response.head.contains("x-ostler-")), (200, debug_headers), "{}", response.head);
}

/// An engine sends requests to the addresses in some of these headers.
#[tokio::test]
async fn control_headers_of_clients_do_not_reach_the_engine() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = start_with_listeners(std::slice::from_ref(&listener)).await;
    let mut client = TcpStream::connect(fixture.gateway).await.unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nX-Prefiller-Host-Port: 169.254.169.254:80\r\n\
        x-data-parallel-host-port: 169.254.169.254:80\r\nX-SLO-E2E-ms: 1\r\nx-gateway-destination-endpoint: 10.0.0.1:1\r\n\
        x-llm-d-model-name-rewrite: other\r\nx-ostler-pod: p\r\nx-request-id: abc\r\n";
    client.write_all(format!("{head}content-length: {}\r\n\r\n{CHAT}", CHAT.len()).as_bytes()).await.unwrap();
    let (mut engine, _) = listener.accept().await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"}") {
        engine.read_buf(&mut received).await.unwrap();
    }
    let received = String::from_utf8(received).unwrap().to_ascii_lowercase();
    let (head, body) = received.split_once("\r\n\r\n").unwrap();
    let mut names: Vec<&str> = head.lines().skip(1).map(|line| line.split_once(':').unwrap().0).collect();
    names.sort_unstable();
    assert_eq!((names.as_slice(), body), (["content-length", "host", "x-request-id"].as_slice(), CHAT));
}

/// Events of the Messages API and of the Responses API, cut at every position.
// spec: GW-53
#[rstest]
#[case::messages("/v1/messages", "event: message_start\ndata: {\"message\":{\"id\":\"1\",\"model\":\"t-v1\"}}\n\n")]
#[case::responses(
    "/v1/responses",
    "event: response.created\ndata: {\"response\":{\"id\":\"1\",\"model\":\"t-v1\"}}\n\n"
)]
#[tokio::test]
async fn nested_model_name_is_restored_in_streams(#[case] path: &str, #[case] event: &'static str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = start_with_listeners(std::slice::from_ref(&listener)).await;
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &fixture.engines, &[("t-v1", 1)])]);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            assert!(read_request(&mut stream).await);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            let chunks: String = event.chars().map(|byte| format!("1\r\n{byte}\r\n")).collect();
            stream.write_all(format!("{head}{chunks}0\r\n\r\n").as_bytes()).await.unwrap();
        }
    });
    let response = post(fixture.gateway, path, STREAM).await;
    assert_eq!((response.status(), response.body), (200, event.replace("t-v1", "chat")));
}

// spec: GW-53
#[tokio::test]
async fn errors_of_engines_name_the_model_of_the_client() {
    let fixture = start(vec![engine_config(&["other"])], &[("gamma", 1)]).await;
    let response = post(fixture.gateway, "/v1/chat/completions", CHAT).await;
    let message = response.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(response.status() == 404 && message.contains("The model `chat` does not exist."), "{message}");
    assert!(!response.body.contains("gamma"), "{}", response.body);
}

/// Reads a request from `stream`. Returns false at the end of the stream.
async fn read_request(stream: &mut TcpStream) -> bool {
    let mut received = Vec::new();
    while !received.ends_with(b"}") && stream.read_buf(&mut received).await.unwrap() > 0 {}
    !received.is_empty()
}

/// Serves a stream of two events; sends the second event after `proceed`.
async fn serve_two_events(listener: TcpListener, proceed: oneshot::Receiver<()>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    assert!(read_request(&mut stream).await);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}b\r\ndata: one\n\n\r\n").as_bytes()).await.unwrap();
    proceed.await.unwrap();
    stream.write_all(b"b\r\ndata: two\n\n\r\n0\r\n\r\n").await.unwrap();
}

/// Requests a stream of two events through a gateway. Returns the gateway, the connection, and what lets the engine send the
/// second event.
async fn start_two_events() -> (GatewayFixture, TcpStream, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = start_with_listeners(std::slice::from_ref(&listener)).await;
    let (proceed, receiver) = oneshot::channel();
    tokio::spawn(serve_two_events(listener, receiver));
    let stream = send(fixture.gateway, "POST", "/v1/chat/completions", STREAM).await;
    (fixture, stream, proceed)
}

#[tokio::test]
async fn tokens_are_streamed_without_buffering() {
    let (_fixture, mut stream, proceed) = start_two_events().await;
    let mut received = Vec::new();
    let first = async {
        while !received.windows(9).any(|window| window == b"data: one") {
            assert!(stream.read_buf(&mut received).await.unwrap() > 0, "the stream ended");
        }
    };
    timeout(TIMEOUT, first).await.expect("timed out waiting for the first token");
    proceed.send(()).unwrap();
    let rest = receive_rest(&mut stream).await;
    assert!(String::from_utf8(rest).unwrap().contains("data: two"));
}

/// The client reads a stream while the gateway shuts down: the gateway accepts no more connections, and completes the response
/// within the time limit.
#[rstest]
#[case::within_the_limit(DRAIN_TIMEOUT - Duration::from_secs(1), true)]
#[case::too_late(DRAIN_TIMEOUT + Duration::from_secs(1), false)]
#[tokio::test(start_paused = true)]
async fn responses_continue_after_the_shutdown(#[case] after: Duration, #[case] is_complete: bool) {
    let (fixture, mut stream, proceed) = start_two_events().await;
    let mut received = Vec::new();
    while !received.windows(9).any(|window| window == b"data: one") {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0, "the stream ended");
    }
    fixture.shutdown.cancel();
    tokio::time::sleep(after).await;
    assert!(TcpStream::connect(fixture.gateway).await.is_err(), "the gateway accepts connections");
    proceed.send(()).ok();
    stream.read_to_end(&mut received).await.ok();
    assert_eq!(String::from_utf8(received).unwrap().contains("data: two"), is_complete);
}

async fn receive_rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    timeout(TIMEOUT, stream.read_to_end(&mut rest))
        .await
        .expect("timed out waiting for the end of the stream")
        .unwrap();
    rest
}

/// The engine is killed in the middle of the second event.
#[rstest]
#[case::openai("/v1/chat/completions", "\"code\":\"engine_failed\"", "\n\ndata: [DONE]\n\n")]
#[case::messages("/v1/messages", "event: error\ndata: {\"error\":{", "\"type\":\"error\"}\n\n")]
#[case::responses("/v1/responses", "event: error\ndata: {\"code\":\"engine_failed\",", "\"type\":\"error\"}\n\n")]
#[tokio::test]
async fn killed_engine_ends_a_stream_with_an_error_event(#[case] path: &str, #[case] event: &str, #[case] end: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = start_with_listeners(std::slice::from_ref(&listener)).await;
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &fixture.engines, &[("target", 1)])]);
    let client = send(fixture.gateway, "POST", path, STREAM).await;
    let (mut engine, _) = listener.accept().await.unwrap();
    assert!(read_request(&mut engine).await);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let text = "data: {\"model\":\"target\"}\n\ndata: {\"model\":\"tar";
    engine.write_all(format!("{head}{:x}\r\n{text}\r\n", text.len()).as_bytes()).await.unwrap();
    drop(engine);
    let response = receive(client).await;
    let rest = response.body.strip_prefix("data: {\"model\":\"chat\"}\n\n").expect(&response.body);
    assert!(rest.contains(event) && rest.ends_with(end) && !rest.contains("tar"), "{rest}");
    assert_eq!(response.status(), 200);
}

// spec: GW-51
#[tokio::test]
async fn traffic_is_split_by_weight_of_target_models() {
    let fixture = start(vec![engine_config(&["a", "b"])], &[("a", 20), ("b", 80)]).await;
    let mut texts = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..200 {
        let response = post(fixture.gateway, "/v1/chat/completions", CHAT).await.json();
        assert_eq!(response["model"], "chat");
        // The text depends on the model that generated it.
        *texts.entry(response["choices"][0]["message"]["content"].to_string()).or_default() += 1;
    }
    let mut counts: Vec<usize> = texts.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts.len(), 2);
    assert!((22..=58).contains(&counts[0]), "{counts:?}");
}

/// Answers requests after `proceed` is cancelled.
async fn serve_after(listener: TcpListener, proceed: CancellationToken) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let proceed = proceed.clone();
        tokio::spawn(async move {
            while read_request(&mut stream).await {
                proceed.cancelled().await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            }
        });
    }
}

#[tokio::test]
async fn load_is_balanced_over_endpoints() {
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let (fixture, proceed) = (start_with_listeners(&listeners).await, CancellationToken::new());
    listeners.into_iter().for_each(|listener| drop(tokio::spawn(serve_after(listener, proceed.clone()))));
    let gateway = fixture.gateway;
    let responses = (0..9).map(|_| tokio::spawn(async move { post(gateway, "/v1/chat/completions", CHAT).await }));
    let responses: Vec<_> = responses.collect();
    let loads = || {
        fixture
            .engines
            .iter()
            .map(|address| fixture.scheduler.endpoint_state(*address, "").requests())
            .collect::<Vec<_>>()
    };
    wait_until("all requests to be in flight", async || loads().into_iter().sum::<usize>() == 9).await;
    assert_eq!(loads(), [3; 3]);
    proceed.cancel();
    let responses: Vec<HttpResponse> =
        futures::future::join_all(responses).await.into_iter().map(Result::unwrap).collect();
    for address in &fixture.engines {
        let served = responses
            .iter()
            .filter(|response| response.header("x-ostler-endpoint") == Some(&address.to_string()))
            .count();
        assert_eq!(served, 3);
    }
    wait_until("no request to be in flight", async || loads() == [0; 3]).await;
}

/// Asserts that the engine aborts a long request when its client disconnects.
async fn assert_aborted_on_disconnect(body: &str) {
    let timing = Timing { decode_step: Duration::from_secs(1), ..Timing::instant() };
    let fixture = start(vec![Config { timing, ..engine_config(&["chat"]) }], &[]).await;
    let running = "vllm:num_requests_running{";
    let client = send(fixture.gateway, "POST", "/v1/completions", body).await;
    wait_until("the request to arrive", async || metric(fixture.engines[0], running).await > 0.0).await;
    drop(client);
    wait_until("the engine to abort the request", async || {
        metric(fixture.engines[0], running).await == 0.0
            && fixture.scheduler.endpoint_state(fixture.engines[0], "").requests() == 0
    })
    .await;
}

#[tokio::test]
async fn disconnect_during_stream_aborts_request() {
    assert_aborted_on_disconnect(r#"{"model":"chat","prompt":"x","max_tokens":3000,"ignore_eos":true,"stream":true}"#)
        .await;
}

#[tokio::test]
async fn disconnect_before_response_aborts_request() {
    assert_aborted_on_disconnect(r#"{"model":"chat","prompt":"x","max_tokens":3000,"ignore_eos":true}"#).await;
}

#[tokio::test]
async fn client_that_ends_its_half_of_the_connection_receives_the_response() {
    let timing = Timing { decode_step: Duration::from_millis(50), ..Timing::instant() };
    let fixture = start(vec![Config { timing, ..engine_config(&["chat"]) }], &[]).await;
    for stream in ["true", "false"] {
        let body = format!(r#"{{"model":"chat","prompt":"x","max_tokens":4,"ignore_eos":true,"stream":{stream}}}"#);
        let mut client = send(fixture.gateway, "POST", "/v1/completions", &body).await;
        client.shutdown().await.unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        let response = response.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
        assert!(
            response.starts_with("HTTP/1.1 200 ") && response.contains("\"finish_reason\":\"length\""),
            "{response}"
        );
    }
}

/// Requests avoid an endpoint that cannot be connected to, except for one probe after a second.
#[tokio::test]
async fn unreachable_endpoint_is_skipped() {
    let fixture = start(vec![engine_config(&["chat"])], &[]).await;
    let (_socket, unreachable) = unreachable_address();
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &[unreachable, fixture.engines[0]], &[])]);
    let (start_time, mut failures) = (Instant::now(), 0);
    for _ in 0..16 {
        let response = post(fixture.gateway, "/v1/chat/completions", CHAT).await;
        failures += u64::from(response.header("x-ostler-decision").unwrap().ends_with("after 1 failed"));
        assert!(failures <= 1 + start_time.elapsed().as_secs(), "{failures} requests were sent to it");
        assert_eq!(
            (response.status(), response.header("x-ostler-endpoint")),
            (200, Some(fixture.engines[0].to_string().as_str()))
        );
    }
}

/// Requests that are sent to an endpoint that drops connection attempts take seconds longer. At most the first one is, although
/// the endpoint has fewer requests in flight than the other one, and its ejection has ended.
#[tokio::test(start_paused = true)]
async fn endpoint_that_drops_connection_attempts_is_skipped() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let (_sockets, unresponsive) = listen_unresponsively(socket).await;
    let fixture = start(vec![engine_config(&["chat"])], &[]).await;
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &[unresponsive, fixture.engines[0]], &[])]);
    let _busy = fixture.scheduler.endpoint_state(fixture.engines[0], "").begin(1_000_000);
    for count in 0..16 {
        let response = post(fixture.gateway, "/v1/chat/completions", CHAT).await;
        let is_retried = response.header("x-ostler-decision").unwrap().ends_with("after 1 failed");
        assert!(response.status() == 200 && (count == 0 || !is_retried), "request {count}: {}", response.head);
        tokio::time::sleep(Duration::from_secs(40)).await;
    }
}

/// Answers `responses` requests on each connection and closes it when it reads the next one, as an engine does if its idle
/// timeout expires at the same time.
async fn serve_then_close(listener: TcpListener, responses: usize) {
    while let Ok((mut stream, _)) = listener.accept().await {
        for count in 0.. {
            if !read_request(&mut stream).await || count == responses {
                break;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        }
    }
}

#[tokio::test]
async fn request_on_stale_connection_is_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = start_with_listeners(std::slice::from_ref(&listener)).await;
    tokio::spawn(serve_then_close(listener, 1));
    for _ in 0..5 {
        let start_time = Instant::now();
        let response = post(fixture.gateway, "/v1/chat/completions", CHAT).await;
        // On a busy host the request may fail after the retry window.
        if response.status() == 503 && start_time.elapsed() > Duration::from_secs(1) {
            continue;
        }
        assert_eq!((response.status(), response.body.as_str()), (200, "{}"));
    }
}

#[tokio::test]
async fn request_on_new_connection_is_not_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = start_with_listeners(std::slice::from_ref(&listener)).await;
    tokio::spawn(serve_then_close(listener, 0));
    let response = post(fixture.gateway, "/v1/chat/completions", CHAT).await;
    assert_eq!((response.status(), response.header("retry-after")), (503, Some("1")));
}

/// A rolling update: the new engine becomes ready while the old one, which stops before it responds, has the request.
#[tokio::test]
async fn request_is_retried_on_an_endpoint_that_became_ready_meanwhile() {
    let old_engine = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = start(vec![engine_config(&["chat"])], &[]).await;
    let new_engine = fixture.engines[0];
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &[old_engine.local_addr().unwrap()], &[])]);
    let client = send(fixture.gateway, "POST", "/v1/chat/completions", CHAT).await;
    let (mut connection, _) = old_engine.accept().await.unwrap();
    assert!(read_request(&mut connection).await);
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &[new_engine], &[])]);
    drop((connection, old_engine));
    let response = receive(client).await;
    let expected = (200, Some("0 in flight, of 1 endpoint, after 1 failed"));
    assert_eq!((response.status(), response.header("x-ostler-decision")), expected);
}

/// Two engines of one pool serve different models.
#[tokio::test]
async fn mixed_pool_learns_which_engine_serves_a_model() {
    let fixture = start(vec![engine_config(&["a"]), engine_config(&["b"])], &[("a", 1), ("b", 1)]).await;
    let mut retries = 0;
    for _ in 0..32 {
        let response = post(fixture.gateway, "/v1/chat/completions", CHAT).await;
        assert_eq!((response.status(), response.json()["model"].as_str()), (200, Some("chat")));
        retries += usize::from(response.header("x-ostler-decision").unwrap().ends_with("after 1 failed"));
    }
    assert!(retries <= 2, "{retries} requests were sent to an engine that does not serve their model");
}

/// A sleeping engine accepts requests and does not respond; its health check succeeds.
#[tokio::test]
async fn sleeping_engine_receives_no_request() {
    let sleeping = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = start(vec![engine_config(&["chat"])], &[]).await;
    let addresses = [sleeping.local_addr().unwrap(), fixture.engines[0]];
    let state = fixture.scheduler.endpoint_state(addresses[0], "");
    assert!(state.begin_scraping());
    let page = |awake: u8| format!("vllm:engine_sleep_state{{sleep_state=\"awake\"}} {awake}.0\n");
    state.record_metrics_page(&page(0), tokio::time::Instant::now());
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &addresses, &[])]);
    for _ in 0..16 {
        assert_eq!(post(fixture.gateway, "/v1/chat/completions", CHAT).await.status(), 200);
    }
    state.record_metrics_page(&page(1), tokio::time::Instant::now());
    let _busy = fixture.scheduler.endpoint_state(addresses[1], "").begin(1_000_000);
    let _client = send(fixture.gateway, "POST", "/v1/chat/completions", CHAT).await;
    let (mut connection, _) = sleeping.accept().await.unwrap();
    assert!(read_request(&mut connection).await, "it receives requests once it is awake");
}

/// After the first byte, the client has a part of the response.
#[tokio::test]
async fn request_is_not_retried_after_the_first_byte() {
    let listeners = [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    let fixture = start_with_listeners(&listeners).await;
    let [first, second] = listeners;
    for address in &fixture.engines {
        fixture.scheduler.endpoint_state(*address, "").begin_scraping();
    }
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &fixture.engines, &[])]);
    let client = send(fixture.gateway, "POST", "/v1/completions", CHAT).await;
    let ((mut connection, _), other) = tokio::select! {
        accepted = first.accept() => (accepted.unwrap(), second),
        accepted = second.accept() => (accepted.unwrap(), first),
    };
    assert!(read_request(&mut connection).await);
    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    drop(connection);
    let mut response = Vec::new();
    let mut client = client;
    client.read_to_end(&mut response).await.ok();
    let response = String::from_utf8(response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("\r\n\r\n{"), "{response}");
    assert!(other.accept().now_or_never().is_none(), "the other engine receives nothing");
}

#[tokio::test]
async fn engine_error_is_returned_unchanged() {
    let fixture = start(vec![engine_config(&["other"])], &[]).await;
    let response = post(fixture.gateway, "/v1/chat/completions", CHAT).await;
    assert_eq!((response.status(), response.json()["error"]["type"].as_str()), (404, Some("NotFoundError")));
}

// spec: GW-50
#[tokio::test]
async fn lists_use_cases_as_models_and_routes_by_pool_path() {
    let fixture = start(vec![engine_config(&["chat"])], &[]).await;
    for path in ["/v1/models", "/ns/pool/v1/models"] {
        let models = get(fixture.gateway, path).await.json();
        assert_eq!(models["data"].as_array().map(Vec::len), Some(1));
        assert_eq!((&models["data"][0]["id"], &models["data"][0]["owned_by"]), (&"chat".into(), &"ns/pool".into()));
    }
    assert_eq!(post(fixture.gateway, "/ns/pool/v1/chat/completions", CHAT).await.status(), 200);
    let response = receive(send(fixture.gateway, "POST", "/ns/other/v1/chat/completions", CHAT).await).await;
    assert_eq!((response.status(), response.json()["error"]["code"].as_str()), (404, Some("pool_not_found")));
}
