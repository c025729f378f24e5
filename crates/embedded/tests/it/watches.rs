//! Tests of watches: resumption, expiration and bookmarks.

use std::time::Duration;

use embedded::Server;
use embedded::ports::ServerPorts;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn create_config_map(server: &Server, name: &str) -> u64 {
    let created = server.create("configmaps", json!({"metadata": {"name": name, "namespace": "default"}})).unwrap();
    created["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

async fn get(server: &Server, query: &str) -> http::Response<Body> {
    let request = http::Request::get(format!("{CONFIG_MAPS}?{query}")).body(Body::empty()).unwrap();
    crate::client(server).send(request).await.unwrap()
}

async fn read_json(response: http::Response<Body>) -> (u16, Value) {
    let code = response.status().as_u16();
    (code, serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap())
}

/// Returns the events of a watch until the server ends it.
async fn events(response: http::Response<Body>) -> Vec<Value> {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    std::str::from_utf8(&bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn summaries(events: &[Value]) -> Vec<String> {
    let summarize = |event: &Value| {
        let metadata = &event["object"]["metadata"];
        format!("{} {}", event["type"].as_str().unwrap(), metadata["name"].as_str().unwrap_or("-"))
    };
    events.iter().map(summarize).collect()
}

#[tokio::test(start_paused = true)]
async fn watch_from_compacted_revision_expires() {
    let server = Server::with_history(&ServerPorts::default(), 3);
    let first = create_config_map(&server, "a");
    for name in ["b", "c", "d", "e"] {
        create_config_map(&server, name);
    }
    let expired = events(get(&server, &format!("watch=true&resourceVersion={first}")).await).await;
    assert_eq!(expired.len(), 1, "{expired:?}");
    assert_eq!(expired[0]["type"], "ERROR");
    let status = &expired[0]["object"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")));
    assert!(status["message"].as_str().unwrap().starts_with("too old resource version: "), "{status}");

    let within =
        events(get(&server, &format!("watch=true&timeoutSeconds=1&resourceVersion={}", first + 1)).await).await;
    assert_eq!(summaries(&within), ["ADDED c", "ADDED d", "ADDED e"]);
}

#[tokio::test(start_paused = true)]
async fn continue_token_of_compacted_revision_expires() {
    let server = Server::with_history(&ServerPorts::default(), 3);
    for name in ["a", "b", "c"] {
        create_config_map(&server, name);
    }
    let (_, first) = read_json(get(&server, "limit=1").await).await;
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let (code, second) = read_json(get(&server, &format!("limit=1&continue={token}")).await).await;
    assert_eq!((code, &second["items"][0]["metadata"]["name"]), (200, &json!("b")));
    for name in ["d", "e", "f", "g"] {
        create_config_map(&server, name);
    }
    let (code, expired) = read_json(get(&server, &format!("limit=1&continue={token}")).await).await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn slow_watch_expires_without_blocking_writes() {
    let server = Server::with_history(&ServerPorts::default(), 3);
    let from = create_config_map(&server, "a");
    let slow = get(&server, &format!("watch=true&resourceVersion={from}")).await;
    for number in 0..10 {
        create_config_map(&server, &format!("n{number}"));
    }
    let received = events(slow).await;
    assert_eq!(received.last().unwrap()["object"]["code"], 410, "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_resumes_after_last_event() {
    let server = crate::server();
    let from = create_config_map(&server, "a");
    let watch = |from: u64| watch_from(&server, from);
    create_config_map(&server, "b");
    let received = events(watch(from).await).await;
    assert_eq!(summaries(&received), ["ADDED b"]);
    let last: u64 = received[0]["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    server.delete("configmaps", "default", "a", None).unwrap();
    create_config_map(&server, "c");
    assert_eq!(summaries(&events(watch(last).await).await), ["DELETED a", "ADDED c"]);
}

async fn watch_from(server: &Server, from: u64) -> http::Response<Body> {
    get(server, &format!("watch=true&timeoutSeconds=1&resourceVersion={from}")).await
}

#[tokio::test(start_paused = true)]
async fn sends_bookmarks_every_minute_and_at_the_end() {
    let server = crate::server();
    let from = create_config_map(&server, "a");
    // This change of another resource advances the revision, which the watch reports only in a bookmark.
    server.create("secrets", json!({"metadata": {"name": "s", "namespace": "default"}})).unwrap();
    let start = Instant::now();
    let query = format!("watch=true&timeoutSeconds=130&resourceVersion={from}");
    let received = events(get(&server, &format!("{query}&allowWatchBookmarks=true")).await).await;
    assert_eq!(summaries(&received), ["BOOKMARK -", "BOOKMARK -", "BOOKMARK -"]);
    assert_eq!(start.elapsed().as_secs(), Duration::from_secs(130).as_secs());
    for bookmark in &received {
        assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], (from + 1).to_string());
        assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    }
    assert!(events(get(&server, &query).await).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_bookmark() {
    let server = crate::server();
    create_config_map(&server, "a");
    let query =
        "watch=true&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let received = events(get(&server, query).await).await;
    assert_eq!(summaries(&received[..2]), ["ADDED a", "BOOKMARK -"]);
    let annotations = &received[1]["object"]["metadata"]["annotations"];
    assert_eq!(annotations, &json!({"k8s.io/initial-events-end": "true"}));
}
