//! A server on a disk that is slow or temporarily full.

use std::pin::pin;

use axum::body::Body;
use futures::poll;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt;

use super::crash_tests::{TEST_TIMEOUT, open};
use super::faults::FaultyDisk;
use crate::Server;
use crate::ports::ServerPorts;

#[tokio::test]
async fn responses_and_watches_wait_for_durability() {
    timeout(TEST_TIMEOUT, check_responses_wait()).await.expect("the server did not respond in time");
}

/// Checks that responses to writes, reads that could return these writes, and watches all wait for the disk.
async fn check_responses_wait() {
    let disk = FaultyDisk::default();
    let server = Server::with_store(&ServerPorts::default(), open(&disk).unwrap());
    server.flush().await.unwrap();
    let mut changes = server.subscribe();
    let request = |method: &str, body: &Value| {
        let request = http::Request::builder().method(method).uri("/api/v1/namespaces/default/configmaps");
        let request = request.header("content-type", "application/json").body(Body::from(body.to_string())).unwrap();
        crate::router(&server).oneshot(request)
    };

    disk.set_slow(true);
    let mut write = pin!(request("POST", &json!({"metadata": {"name": "a"}})));
    assert!(poll!(&mut write).is_pending());
    assert!(server.get("configmaps", "default", "a").is_some(), "later writes see the object");
    let mut read = pin!(request("GET", &Value::Null));
    assert!(poll!(&mut read).is_pending());
    assert!(poll!(pin!(changes.next())).is_pending());

    disk.set_slow(false);
    assert_eq!(write.await.unwrap().status(), 201);
    assert_eq!(read.await.unwrap().status(), 200);
    assert_eq!(changes.next().await.unwrap().name, "a");

    // A write that cannot be persisted is rejected and never becomes visible.
    disk.set_full(true);
    let rejected = request("POST", &json!({"metadata": {"name": "b"}})).await.unwrap();
    assert_eq!(rejected.status(), 507);
    assert!(changes.next().await.is_err(), "watchers relist");
    assert!(server.get("configmaps", "default", "b").is_none());
    assert_eq!(request("GET", &Value::Null).await.unwrap().status(), 200);
    disk.set_full(false);
}
