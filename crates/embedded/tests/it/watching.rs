//! Watches over HTTP: where they resume, what they are told when they cannot, and what tells them how far they are.

use std::time::Duration;

use embedded::Server;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn write(server: &Server, name: &str) -> u64 {
    let made = server.create("configmaps", json!({"metadata": {"name": name, "namespace": "default"}})).unwrap();
    made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

async fn get(server: &Server, query: &str) -> http::Response<Body> {
    let request = http::Request::get(format!("{CONFIG_MAPS}?{query}")).body(Body::empty()).unwrap();
    crate::client(server).send(request).await.unwrap()
}

async fn whole(response: http::Response<Body>) -> (u16, Value) {
    let code = response.status().as_u16();
    (code, serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap())
}

/// The events of a watch until the server ends it.
async fn events(response: http::Response<Body>) -> Vec<Value> {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    std::str::from_utf8(&bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn told(events: &[Value]) -> Vec<String> {
    let tell = |event: &Value| {
        let metadata = &event["object"]["metadata"];
        format!("{} {}", event["type"].as_str().unwrap(), metadata["name"].as_str().unwrap_or("-"))
    };
    events.iter().map(tell).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_the_history_is_told_to_list_again() {
    let server = Server::with_history(&crate::ports(), 3);
    let first = write(&server, "a");
    for name in ["b", "c", "d", "e"] {
        write(&server, name);
    }
    let gone = events(get(&server, &format!("watch=true&resourceVersion={first}")).await).await;
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert_eq!(gone[0]["type"], "ERROR");
    let status = &gone[0]["object"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")));
    assert!(status["message"].as_str().unwrap().starts_with("too old resource version: "), "{status}");

    let within =
        events(get(&server, &format!("watch=true&timeoutSeconds=1&resourceVersion={}", first + 1)).await).await;
    assert_eq!(told(&within), ["ADDED c", "ADDED d", "ADDED e"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_list_that_the_history_forgot_is_gone() {
    let server = Server::with_history(&crate::ports(), 3);
    for name in ["a", "b", "c"] {
        write(&server, name);
    }
    let (_, first) = whole(get(&server, "limit=1").await).await;
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let (code, second) = whole(get(&server, &format!("limit=1&continue={token}")).await).await;
    assert_eq!((code, &second["items"][0]["metadata"]["name"]), (200, &json!("b")));
    for name in ["d", "e", "f", "g"] {
        write(&server, name);
    }
    let (code, gone) = whole(get(&server, &format!("limit=1&continue={token}")).await).await;
    assert_eq!((code, &gone["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_behind_is_dropped_and_nobody_waits_for_it() {
    let server = Server::with_history(&crate::ports(), 3);
    let from = write(&server, "a");
    let slow = get(&server, &format!("watch=true&resourceVersion={from}")).await;
    for number in 0..10 {
        write(&server, &format!("n{number}"));
    }
    let seen = events(slow).await;
    assert_eq!(seen.last().unwrap()["object"]["code"], 410, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_after_the_last_event_it_saw() {
    let server = crate::server();
    let from = write(&server, "a");
    let watch = |from: u64| get_until(&server, from);
    write(&server, "b");
    let seen = events(watch(from).await).await;
    assert_eq!(told(&seen), ["ADDED b"]);
    let last: u64 = seen[0]["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    server.delete("configmaps", "default", "a", None).unwrap();
    write(&server, "c");
    assert_eq!(told(&events(watch(last).await).await), ["DELETED a", "ADDED c"]);
}

async fn get_until(server: &Server, from: u64) -> http::Response<Body> {
    get(server, &format!("watch=true&timeoutSeconds=1&resourceVersion={from}")).await
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_at_the_end_to_who_asks() {
    let server = crate::server();
    let from = write(&server, "a");
    // Of another kind: only a bookmark tells of it.
    server.create("secrets", json!({"metadata": {"name": "s", "namespace": "default"}})).unwrap();
    let start = Instant::now();
    let query = format!("watch=true&timeoutSeconds=130&resourceVersion={from}");
    let seen = events(get(&server, &format!("{query}&allowWatchBookmarks=true")).await).await;
    assert_eq!(told(&seen), ["BOOKMARK -", "BOOKMARK -", "BOOKMARK -"]);
    assert_eq!(start.elapsed().as_secs(), Duration::from_secs(130).as_secs());
    for bookmark in &seen {
        assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], (from + 1).to_string());
        assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    }
    assert!(events(get(&server, &query).await).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_ends_with_a_bookmark() {
    let server = crate::server();
    write(&server, "a");
    let query =
        "watch=true&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let seen = events(get(&server, query).await).await;
    assert_eq!(told(&seen[..2]), ["ADDED a", "BOOKMARK -"]);
    let annotations = &seen[1]["object"]["metadata"]["annotations"];
    assert_eq!(annotations, &json!({"k8s.io/initial-events-end": "true"}));
}
