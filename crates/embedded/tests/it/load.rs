//! Concurrent writers and watches: each watch receives every acknowledged change once and in order, and watches that
//! are not read do not block writers.

use std::collections::BTreeSet;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use embedded::Server;
use embedded::ports::ServerPorts;
use futures::StreamExt;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

const NAMESPACES: usize = 3;
const WRITERS: usize = 8;
/// Objects per writer. Each object is created and updated, and every second one is deleted.
const OBJECTS: usize = 40;
const WATCHES: usize = 24;

fn namespace(number: usize) -> String {
    format!("n{}", number % NAMESPACES)
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

async fn send(server: &Server, method: &str, path: &str, body: Value) -> Value {
    let request = http::Request::builder().method(method).uri(path);
    let request = request
        .header("content-type", if method == "PATCH" { "application/merge-patch+json" } else { "application/json" });
    let response =
        crate::client(server).send(request.body(Body::from(body.to_string().into_bytes())).unwrap()).await.unwrap();
    assert!(response.status().is_success(), "{method} {path}: {}", response.status());
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

/// Runs a writer and returns the revisions of its creations and updates.
async fn write(server: Server, writer: usize) -> Vec<u64> {
    let mut written = Vec::new();
    let collection = format!("/api/v1/namespaces/{}/configmaps", namespace(writer));
    for number in 0..OBJECTS {
        let name = format!("w{writer}-{number}");
        let object = json!({"metadata": {"name": name, "labels": {"parity": (number % 2).to_string()}}});
        written.push(revision(&send(&server, "POST", &collection, object).await));
        let path = format!("{collection}/{name}");
        let changed = send(&server, "PATCH", &path, json!({"data": {"state": "changed"}})).await;
        written.push(revision(&changed));
        if number % 2 == 1 {
            send(&server, "DELETE", &path, json!({})).await;
        }
        tokio::task::yield_now().await;
    }
    written
}

/// Watches `path` until an event has at least the revision `end`, and returns the revisions and types of the events.
async fn watch_until(server: Server, path: String, mut end: watch::Receiver<Option<u64>>) -> Vec<(u64, String)> {
    let request = http::Request::get(&path).body(Body::empty()).unwrap();
    let response = crate::client(&server).send(request).await.unwrap();
    let mut lines = std::pin::pin!(response.into_body().into_data_stream());
    let (mut events, mut buffer) = (Vec::new(), String::new());
    loop {
        if let Some(end) = *end.borrow()
            && events.last().is_some_and(|(last, _)| *last >= end)
        {
            return events;
        }
        let chunk = tokio::select! {
            chunk = lines.next() => chunk.expect("the watch ended").unwrap(),
            _ = end.changed() => continue,
        };
        buffer.push_str(std::str::from_utf8(&chunk).unwrap());
        while let Some((line, remaining)) = buffer.split_once('\n') {
            let event: Value = serde_json::from_str(line).unwrap();
            events.push((revision(&event["object"]), event["type"].as_str().unwrap().to_owned()));
            buffer = remaining.to_owned();
        }
    }
}

fn server_with_history(history: usize) -> Server {
    let server = Server::with_history(&ServerPorts::default(), history);
    (0..NAMESPACES).for_each(|number| {
        server.create("namespaces", json!({"metadata": {"name": namespace(number)}})).unwrap();
    });
    server
}

async fn run_writers(server: &Server) -> Vec<Vec<u64>> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let server = server.clone();
        writers.spawn(async move { (writer, write(server, writer).await) });
    }
    let mut written = vec![Vec::new(); NAMESPACES];
    while let Some(result) = writers.join_next().await {
        let (writer, revisions) = result.unwrap();
        written[writer % NAMESPACES].extend(revisions);
    }
    written.iter_mut().for_each(|all| all.sort_unstable());
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watches_receive_all_events_in_order() {
    let server = server_with_history(embedded::DEFAULT_HISTORY_SIZE);
    let from = revision(&server.get("namespaces", "", "n2").unwrap());
    let (end_sender, end) = watch::channel(None);
    let mut watch_tasks = JoinSet::new();
    for number in 0..WATCHES {
        // Some watches select one namespace, others all namespaces.
        let watched_namespace = (number % 4 != 0).then_some(number % NAMESPACES);
        let scope = watched_namespace.map_or_else(String::new, |number| format!("/namespaces/{}", namespace(number)));
        let path = format!("/api/v1{scope}/configmaps?watch=true&resourceVersion={from}");
        let (server, end) = (server.clone(), end.clone());
        watch_tasks.spawn(async move { (watched_namespace, watch_until(server, path, end).await) });
    }
    let written = run_writers(&server).await;
    // Every watch ends at one of these objects.
    for number in 0..NAMESPACES {
        let collection = format!("/api/v1/namespaces/{}/configmaps", namespace(number));
        let last = revision(&send(&server, "POST", &collection, json!({"metadata": {"name": "last"}})).await);
        end_sender.send_if_modified(|end| end.replace(end.unwrap_or(last)).is_none());
    }
    let deletions = WRITERS * OBJECTS / 2;
    while let Some(task) = watch_tasks.join_next().await {
        let (watched_namespace, events) = task.unwrap();
        let revisions: Vec<u64> = events.iter().map(|(revision, _)| *revision).collect();
        assert!(revisions.is_sorted_by(|a, b| a < b), "out of order: {revisions:?}");
        let received: BTreeSet<u64> = revisions.into_iter().collect();
        let expected =
            written.iter().enumerate().filter(|(number, _)| watched_namespace.is_none_or(|watched| watched == *number));
        assert!(
            expected.flat_map(|(_, all)| all).all(|revision| received.contains(revision)),
            "missing in {watched_namespace:?}"
        );
        if watched_namespace.is_none() {
            assert_eq!(events.iter().filter(|(_, kind)| kind == "DELETED").count(), deletions);
            assert_eq!(events.iter().filter(|(_, kind)| kind == "MODIFIED").count(), WRITERS * OBJECTS);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unread_watches_end_without_blocking_writers() {
    let server = server_with_history(WRITERS * OBJECTS / 4);
    let from = revision(&server.get("namespaces", "", "n2").unwrap());
    let mut responses = Vec::new();
    for _ in 0..WATCHES {
        let path = format!("/api/v1/configmaps?watch=true&resourceVersion={from}");
        responses
            .push(crate::client(&server).send(http::Request::get(path).body(Body::empty()).unwrap()).await.unwrap());
    }
    let written = run_writers(&server).await;
    assert_eq!(written.iter().map(Vec::len).sum::<usize>(), 2 * WRITERS * OBJECTS);
    for response in responses {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let last: Value =
            serde_json::from_slice(bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap()).unwrap();
        assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(410)));
    }
}

#[tokio::test(start_paused = true)]
async fn events_after_the_first_are_batched() {
    let server = server_with_history(embedded::DEFAULT_HISTORY_SIZE);
    let from = revision(&server.get("namespaces", "", "n2").unwrap());
    let path = format!("/api/v1/namespaces/n0/configmaps?watch=true&resourceVersion={from}");
    let response = crate::client(&server).send(http::Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let mut chunks = std::pin::pin!(response.into_body().into_data_stream());
    let create =
        |name: &str| server.create("configmaps", json!({"metadata": {"name": name, "namespace": "n0"}})).unwrap();
    let lines = |chunk: Bytes| chunk.iter().filter(|byte| **byte == b'\n').count();

    create("first");
    let Poll::Ready(Some(Ok(chunk))) = futures::poll!(chunks.next()) else {
        panic!("the event was not sent immediately")
    };
    assert_eq!(lines(chunk), 1);
    for name in ["second", "third"] {
        create(name);
        assert!(futures::poll!(chunks.next()).is_pending());
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let chunk = chunks.next().await.unwrap().unwrap();
    assert_eq!(lines(chunk), 2);
}
