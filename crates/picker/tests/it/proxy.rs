//! Requests that are answered.

use std::time::{Duration, Instant};

use crate::fleet::{Answer, engine, get, metric, pool, post, receive, send, start};
use engine::{Config, Timing};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

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

#[tokio::test]
async fn tokens_arrive_one_by_one() {
    let timing = Timing { decode_step: Duration::from_millis(60), ..Timing::instant() };
    let fleet = start(vec![Config { timing, ..engine(&["chat"]) }], &[]).await;
    let begin = Instant::now();
    let mut stream = send(fleet.gateway, "POST", "/v1/chat/completions", STREAM).await;
    let mut seen = Vec::new();
    while !seen.windows(5).any(|window| window == b"data:") {
        seen.push(stream.read_u8().await.unwrap());
    }
    let first = begin.elapsed();
    let _ = receive_rest(&mut stream).await;
    assert!(first + Duration::from_millis(120) < begin.elapsed(), "first after {first:?} of {:?}", begin.elapsed());
}

async fn receive_rest(stream: &mut tokio::net::TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
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

#[tokio::test]
async fn load_is_spread_over_endpoints() {
    let timing = Timing { decode_step: Duration::from_millis(20), ..Timing::instant() };
    let config = Config { timing, ..engine(&["chat"]) };
    let fleet = start(vec![config.clone(), config.clone(), config], &[]).await;
    let answers = futures::future::join_all((0..9).map(|_| post(fleet.gateway, "/v1/chat/completions", CHAT))).await;
    for address in &fleet.engines {
        let served =
            answers.iter().filter(|answer| answer.header("x-ostler-endpoint") == Some(&address.to_string())).count();
        assert_eq!(served, 3);
    }
    assert!(fleet.engines.iter().all(|address| fleet.pools.load(*address).requests() == 0));
}

async fn cancelled(body: &str) {
    let timing = Timing { decode_step: Duration::from_millis(20), ..Timing::instant() };
    let fleet = start(vec![Config { timing, ..engine(&["chat"]) }], &[]).await;
    let running = "vllm:num_requests_running{";
    let client = send(fleet.gateway, "POST", "/v1/completions", body).await;
    let begin = Instant::now();
    while metric(fleet.engines[0], running).await == 0.0 {
        assert!(begin.elapsed() < Duration::from_secs(5), "the request did not arrive");
    }
    drop(client);
    let begin = Instant::now();
    while metric(fleet.engines[0], running).await > 0.0 || fleet.pools.load(fleet.engines[0]).requests() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(5), "the engine still works for nobody");
    }
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
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
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
            let mut seen = Vec::new();
            while !seen.ends_with(b"}") && stream.read_buf(&mut seen).await.unwrap() > 0 {}
            if answered == answers || seen.is_empty() {
                break;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_kept_connection_that_closes_under_a_request_is_replaced() {
    let fleet = start(vec![], &[]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    fleet.pools.replace(vec![pool(&fleet.pools, &[listener.local_addr().unwrap()], &[])]);
    tokio::spawn(closing(listener, 1));
    for _ in 0..5 {
        let answer = post(fleet.gateway, "/v1/chat/completions", CHAT).await;
        assert_eq!((answer.status(), answer.body.as_str()), (200, "{}"));
    }
}

#[tokio::test]
async fn a_new_connection_that_closes_is_not_tried_again() {
    let fleet = start(vec![], &[]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    fleet.pools.replace(vec![pool(&fleet.pools, &[listener.local_addr().unwrap()], &[])]);
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
