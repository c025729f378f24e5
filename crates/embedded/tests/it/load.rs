//! Many writers and many watches at once: each watch sees everything that was acknowledged, once and in order, and
//! those that do not read keep nobody waiting.

use std::collections::BTreeSet;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use embedded::Server;
use futures::StreamExt;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

const NAMESPACES: usize = 3;
const WRITERS: usize = 8;
/// Objects of one writer: each is created, changed, and every other one deleted.
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

/// The revisions of what one writer wrote; a deletion's is not told, and is 0.
async fn write(server: Server, writer: usize) -> Vec<u64> {
    let mut written = Vec::new();
    let home = format!("/api/v1/namespaces/{}/configmaps", namespace(writer));
    for number in 0..OBJECTS {
        let name = format!("w{writer}-{number}");
        let made = json!({"metadata": {"name": name, "labels": {"parity": (number % 2).to_string()}}});
        written.push(revision(&send(&server, "POST", &home, made).await));
        let path = format!("{home}/{name}");
        let changed = send(&server, "PATCH", &path, json!({"data": {"state": "changed"}})).await;
        written.push(revision(&changed));
        if number % 2 == 1 {
            send(&server, "DELETE", &path, json!({})).await;
        }
        tokio::task::yield_now().await;
    }
    written
}

/// Revisions and types of events, until one of `end` or later was seen.
async fn follow(server: Server, path: String, mut end: watch::Receiver<Option<u64>>) -> Vec<(u64, String)> {
    let request = http::Request::get(&path).body(Body::empty()).unwrap();
    let response = crate::client(&server).send(request).await.unwrap();
    let mut lines = std::pin::pin!(response.into_body().into_data_stream());
    let (mut seen, mut rest) = (Vec::new(), String::new());
    loop {
        if let Some(end) = *end.borrow()
            && seen.last().is_some_and(|(last, _)| *last >= end)
        {
            return seen;
        }
        let chunk = tokio::select! {
            chunk = lines.next() => chunk.expect("the watch goes on").unwrap(),
            _ = end.changed() => continue,
        };
        rest.push_str(std::str::from_utf8(&chunk).unwrap());
        while let Some((line, behind)) = rest.split_once('\n') {
            let event: Value = serde_json::from_str(line).unwrap();
            seen.push((revision(&event["object"]), event["type"].as_str().unwrap().to_owned()));
            rest = behind.to_owned();
        }
    }
}

fn prepared(history: usize) -> Server {
    let server = Server::with_history(&crate::ports(), history);
    (0..NAMESPACES).for_each(|number| {
        server.create("namespaces", json!({"metadata": {"name": namespace(number)}})).unwrap();
    });
    server
}

async fn all_written(server: &Server) -> Vec<Vec<u64>> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let server = server.clone();
        writers.spawn(async move { (writer, write(server, writer).await) });
    }
    let mut written = vec![Vec::new(); NAMESPACES];
    while let Some(one) = writers.join_next().await {
        let (writer, revisions) = one.unwrap();
        written[writer % NAMESPACES].extend(revisions);
    }
    written.iter_mut().for_each(|all| all.sort_unstable());
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_watch_loses_or_reorders_an_event() {
    let server = prepared(embedded::store::HISTORY);
    let from = revision(&server.get("namespaces", "", "n2").unwrap());
    let (goal, end) = watch::channel(None);
    let mut followers = JoinSet::new();
    for number in 0..WATCHES {
        // Some see one namespace, some all of them.
        let home = (number % 4 != 0).then_some(number % NAMESPACES);
        let scope = home.map_or_else(String::new, |home| format!("/namespaces/{}", namespace(home)));
        let path = format!("/api/v1{scope}/configmaps?watch=true&resourceVersion={from}");
        let (server, end) = (server.clone(), end.clone());
        followers.spawn(async move { (home, follow(server, path, end).await) });
    }
    let written = all_written(&server).await;
    // Every watch ends with one of these.
    for number in 0..NAMESPACES {
        let home = format!("/api/v1/namespaces/{}/configmaps", namespace(number));
        let last = revision(&send(&server, "POST", &home, json!({"metadata": {"name": "last"}})).await);
        goal.send_if_modified(|goal| goal.replace(goal.unwrap_or(last)).is_none());
    }
    let deletions = WRITERS * OBJECTS / 2;
    while let Some(follower) = followers.join_next().await {
        let (home, seen) = follower.unwrap();
        let revisions: Vec<u64> = seen.iter().map(|(revision, _)| *revision).collect();
        assert!(revisions.is_sorted_by(|a, b| a < b), "out of order: {revisions:?}");
        let shown: BTreeSet<u64> = revisions.into_iter().collect();
        let expected = written.iter().enumerate().filter(|(number, _)| home.is_none_or(|home| home == *number));
        assert!(expected.flat_map(|(_, all)| all).all(|revision| shown.contains(revision)), "lost in {home:?}");
        if home.is_none() {
            assert_eq!(seen.iter().filter(|(_, kind)| kind == "DELETED").count(), deletions);
            assert_eq!(seen.iter().filter(|(_, kind)| kind == "MODIFIED").count(), WRITERS * OBJECTS);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watches_that_nobody_reads_are_ended_and_writers_go_on() {
    let server = prepared(WRITERS * OBJECTS / 4);
    let from = revision(&server.get("namespaces", "", "n2").unwrap());
    let mut slow = Vec::new();
    for _ in 0..WATCHES {
        let path = format!("/api/v1/configmaps?watch=true&resourceVersion={from}");
        slow.push(crate::client(&server).send(http::Request::get(path).body(Body::empty()).unwrap()).await.unwrap());
    }
    let written = all_written(&server).await;
    assert_eq!(written.iter().map(Vec::len).sum::<usize>(), 2 * WRITERS * OBJECTS);
    for response in slow {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let last: Value =
            serde_json::from_slice(bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap()).unwrap();
        assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(410)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_alone_is_sent_at_once_and_those_close_behind_it_together() {
    let server = prepared(embedded::store::HISTORY);
    let from = revision(&server.get("namespaces", "", "n2").unwrap());
    let path = format!("/api/v1/namespaces/n0/configmaps?watch=true&resourceVersion={from}");
    let response = crate::client(&server).send(http::Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let mut pieces = std::pin::pin!(response.into_body().into_data_stream());
    let make =
        |name: &str| server.create("configmaps", json!({"metadata": {"name": name, "namespace": "n0"}})).unwrap();
    let lines = |piece: Bytes| piece.iter().filter(|byte| **byte == b'\n').count();

    make("first");
    let Poll::Ready(Some(Ok(piece))) = futures::poll!(pieces.next()) else { panic!("it was not sent") };
    assert_eq!(lines(piece), 1);
    for name in ["second", "third"] {
        make(name);
        assert!(futures::poll!(pieces.next()).is_pending());
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let piece = pieces.next().await.unwrap().unwrap();
    assert_eq!(lines(piece), 2);
}
