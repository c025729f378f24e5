//! Requests that are answered.

use std::time::{Duration, Instant};

use crate::fleet::{Answer, PATIENCE, before, engine, get, metric, nobody, pool, post, receive, send, start, until};
use engine::{Config, Timing};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

const CHAT: &str = r#"{"model":"chat","messages":[{"role":"user","content":"hi"}],"max_tokens":4,"ignore_eos":true}"#;
const STREAM: &str = r#"{"model":"chat","messages":[{"role":"user","content":"hi"}],"max_tokens":4,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}"#;

fn events(answer: &Answer) -> Vec<&str> {
    answer.body.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect()
}

// spec: GW-13
#[tokio::test]
async fn an_answer_says_which_endpoint_gave_it_and_why() {
    let fleet = start(vec![engine(&["chat"]), engine(&["chat"])], &[]).await;
    let answer = post(fleet.gateway, "/v1/chat/completions", CHAT).await;
    assert_eq!((answer.status(), answer.json()["usage"]["completion_tokens"].as_u64()), (200, Some(4)));
    let endpoint: std::net::SocketAddr = answer.header("x-ostler-endpoint").unwrap().parse().unwrap();
    assert!(fleet.engines.contains(&endpoint));
    assert_eq!(answer.header("x-ostler-pod"), Some(format!("pod-{}", endpoint.port()).as_str()));
    assert_eq!(answer.header("x-ostler-decision"), Some("0 in flight, of 2 endpoints"));
    assert!(answer.header("content-length").is_some(), "an answer that is not rewritten keeps its length");
}

// spec: GW-53
#[tokio::test]
async fn a_stream_carries_usage_and_the_clients_model_name() {
    let fleet = start(vec![engine(&["base-model-v2"])], &[("base-model-v2", 1)]).await;
    let answer = post(fleet.gateway, "/v1/chat/completions", STREAM).await;
    let events = events(&answer);
    assert_eq!(events.len(), 7, "role, four tokens, usage, done: {events:?}");
    assert!(events[..6].iter().all(|event| event.contains(r#""model":"chat""#)), "{events:?}");
    assert!(events[5].contains(r#""completion_tokens":4"#));
    assert_eq!(events[6], "[DONE]");
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
}

/// Reads a request from `stream`; false when there is none any more.
async fn asked(stream: &mut TcpStream) -> bool {
    let mut seen = Vec::new();
    while !seen.ends_with(b"}") && stream.read_buf(&mut seen).await.unwrap() > 0 {}
    !seen.is_empty()
}

/// An engine that sends the first event of a stream, and the second when it is told.
async fn halting(listener: TcpListener, go_on: oneshot::Receiver<()>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    assert!(asked(&mut stream).await);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}b\r\ndata: one\n\n\r\n").as_bytes()).await.unwrap();
    go_on.await.unwrap();
    stream.write_all(b"b\r\ndata: two\n\n\r\n0\r\n\r\n").await.unwrap();
}

#[tokio::test]
async fn tokens_arrive_one_by_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fleet = before(std::slice::from_ref(&listener)).await;
    let (go_on, told) = oneshot::channel();
    tokio::spawn(halting(listener, told));
    let mut stream = send(fleet.gateway, "POST", "/v1/chat/completions", STREAM).await;
    let mut seen = Vec::new();
    let first = async {
        while !seen.windows(9).any(|window| window == b"data: one") {
            assert!(stream.read_buf(&mut seen).await.unwrap() > 0, "the stream ended");
        }
    };
    timeout(PATIENCE, first).await.expect("the first token waits for the next one");
    go_on.send(()).unwrap();
    let rest = receive_rest(&mut stream).await;
    assert!(String::from_utf8(rest).unwrap().contains("data: two"));
}

async fn receive_rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the stream does not end").unwrap();
    rest
}

// spec: GW-51
#[tokio::test]
async fn traffic_is_split_by_weight_and_the_drawn_model_reaches_the_engine() {
    let fleet = start(vec![engine(&["a", "b"])], &[("a", 20), ("b", 80)]).await;
    let mut texts = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..200 {
        let answer = post(fleet.gateway, "/v1/chat/completions", CHAT).await.json();
        assert_eq!(answer["model"], "chat");
        // The text depends on the model that generated it.
        *texts.entry(answer["choices"][0]["message"]["content"].to_string()).or_default() += 1;
    }
    let mut shares: Vec<usize> = texts.into_values().collect();
    shares.sort_unstable();
    assert_eq!(shares.len(), 2);
    assert!((22..=58).contains(&shares[0]), "{shares:?}");
}

/// Answers every request once `go_on` is cancelled.
async fn holding(listener: TcpListener, go_on: CancellationToken) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let go_on = go_on.clone();
        tokio::spawn(async move {
            while asked(&mut stream).await {
                go_on.cancelled().await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            }
        });
    }
}

#[tokio::test]
async fn load_is_spread_over_endpoints() {
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let (fleet, go_on) = (before(&listeners).await, CancellationToken::new());
    listeners.into_iter().for_each(|listener| drop(tokio::spawn(holding(listener, go_on.clone()))));
    let gateway = fleet.gateway;
    let answers = (0..9).map(|_| tokio::spawn(async move { post(gateway, "/v1/chat/completions", CHAT).await }));
    let answers: Vec<_> = answers.collect();
    let loads = || fleet.engines.iter().map(|address| fleet.pools.load(*address).requests()).collect::<Vec<_>>();
    until("all of them to be under way", async || loads().into_iter().sum::<usize>() == 9).await;
    assert_eq!(loads(), [3; 3]);
    go_on.cancel();
    let answers: Vec<Answer> = futures::future::join_all(answers).await.into_iter().map(Result::unwrap).collect();
    for address in &fleet.engines {
        let served =
            answers.iter().filter(|answer| answer.header("x-ostler-endpoint") == Some(&address.to_string())).count();
        assert_eq!(served, 3);
    }
    until("nothing to be under way", async || loads() == [0; 3]).await;
}

/// The engine would work for the better part of an hour.
async fn cancelled(body: &str) {
    let timing = Timing { decode_step: Duration::from_secs(1), ..Timing::instant() };
    let fleet = start(vec![Config { timing, ..engine(&["chat"]) }], &[]).await;
    let running = "vllm:num_requests_running{";
    let client = send(fleet.gateway, "POST", "/v1/completions", body).await;
    until("the request to arrive", async || metric(fleet.engines[0], running).await > 0.0).await;
    drop(client);
    until("the engine to work for nobody", async || {
        metric(fleet.engines[0], running).await == 0.0 && fleet.pools.load(fleet.engines[0]).requests() == 0
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_ends_the_work() {
    cancelled(r#"{"model":"chat","prompt":"x","max_tokens":3000,"ignore_eos":true,"stream":true}"#).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_ends_the_work() {
    cancelled(r#"{"model":"chat","prompt":"x","max_tokens":3000,"ignore_eos":true}"#).await;
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_is_passed_over() {
    let fleet = start(vec![engine(&["chat"])], &[]).await;
    let (_closed, closed) = nobody();
    fleet.pools.replace(vec![pool(&fleet.pools, &[closed, fleet.engines[0]], &[])]);
    for _ in 0..16 {
        let answer = post(fleet.gateway, "/v1/chat/completions", CHAT).await;
        assert_eq!(
            (answer.status(), answer.header("x-ostler-endpoint")),
            (200, Some(fleet.engines[0].to_string().as_str()))
        );
    }
}

/// Answers `answers` requests on each connection and closes it on reading the next, as an engine does whose idle time
/// ends just then.
async fn closing(listener: TcpListener, answers: usize) {
    while let Ok((mut stream, _)) = listener.accept().await {
        for answered in 0.. {
            if !asked(&mut stream).await || answered == answers {
                break;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_kept_connection_that_closes_under_a_request_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fleet = before(std::slice::from_ref(&listener)).await;
    tokio::spawn(closing(listener, 1));
    for _ in 0..5 {
        let begun = Instant::now();
        let answer = post(fleet.gateway, "/v1/chat/completions", CHAT).await;
        // An engine that closes so late had begun to work: a machine that stood still shows nothing here.
        if answer.status() == 503 && begun.elapsed() > Duration::from_secs(1) {
            continue;
        }
        assert_eq!((answer.status(), answer.body.as_str()), (200, "{}"));
    }
}

#[tokio::test]
async fn a_new_connection_that_closes_is_not_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fleet = before(std::slice::from_ref(&listener)).await;
    tokio::spawn(closing(listener, 0));
    let answer = post(fleet.gateway, "/v1/chat/completions", CHAT).await;
    assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")));
}

#[tokio::test]
async fn an_engines_own_error_is_passed_on() {
    let fleet = start(vec![engine(&["other"])], &[]).await;
    let answer = post(fleet.gateway, "/v1/chat/completions", CHAT).await;
    assert_eq!((answer.status(), answer.json()["error"]["type"].as_str()), (404, Some("NotFoundError")));
}

// spec: GW-50
#[tokio::test]
async fn models_are_the_use_cases_and_a_path_addresses_a_pool() {
    let fleet = start(vec![engine(&["chat"])], &[]).await;
    for path in ["/v1/models", "/ns/pool/v1/models"] {
        let models = get(fleet.gateway, path).await.json();
        assert_eq!(models["data"].as_array().map(Vec::len), Some(1));
        assert_eq!((&models["data"][0]["id"], &models["data"][0]["owned_by"]), (&"chat".into(), &"ns/pool".into()));
    }
    assert_eq!(post(fleet.gateway, "/ns/pool/v1/chat/completions", CHAT).await.status(), 200);
    let other = receive(send(fleet.gateway, "POST", "/ns/other/v1/chat/completions", CHAT).await).await;
    assert_eq!((other.status(), other.json()["error"]["code"].as_str()), (404, Some("pool_not_found")));
}
