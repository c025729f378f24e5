//! A server on a disk that is slow or temporarily full.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use axum::body::Body;
use futures::poll;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::MAX_QUEUED_BYTES;
use super::crash_tests::{TEST_TIMEOUT, open};
use super::faults::FaultyDisk;
use super::queued_bytes::QueuedBytes;
use crate::Server;
use crate::ports::{Admission, AdmissionRequest, AdmissionResponse, ServerPorts};

fn queued_bytes(server: &Server) -> &QueuedBytes {
    server.store().journal.as_ref().unwrap().queued_bytes()
}

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

#[tokio::test]
async fn tasks_of_the_process_wait_for_a_slow_journal() {
    timeout(TEST_TIMEOUT, check_tasks_wait()).await.expect("the journal did not continue in time");
}

/// Checks that writers that do not wait for durability cannot outrun the disk.
async fn check_tasks_wait() {
    const OBJECT_BYTES: usize = 900 * 1024;
    let disk = FaultyDisk::default();
    let server = Server::with_store(&ServerPorts::default(), open(&disk).unwrap());
    disk.set_slow(true);
    let mut written = 0;
    loop {
        let mut ready = pin!(server.before_write());
        // The first poll lets other tasks continue.
        if poll!(&mut ready).is_pending() && poll!(&mut ready).is_pending() {
            break;
        }
        let metadata = json!({"namespace": "default", "generateName": "c"});
        let data = json!({"k": "x".repeat(OBJECT_BYTES)});
        server.create("configmaps", json!({"metadata": metadata, "data": data})).unwrap();
        written += 1;
        assert!(written < 30, "the queue is not limited");
    }
    assert!(written * OBJECT_BYTES > 15 * 1024 * 1024, "{written} objects");
    assert!(queued_bytes(&server).get() < 18 * 1024 * 1024);
    disk.set_slow(false);
    server.before_write().await;
    server.flush().await.unwrap();
    assert_eq!(queued_bytes(&server).get(), 0);
    disk.set_full(true);
    // The journal may notice the full disk before the write, with it, or before the flush.
    drop(server.create("configmaps", json!({"metadata": {"namespace": "default", "name": "lost"}})));
    drop(server.flush().await);
    assert!(server.get("configmaps", "default", "lost").is_none());
    assert_eq!(queued_bytes(&server).get(), 0, "writes that were rolled back are not queued");
    disk.set_full(false);
}

/// The steps of a cascade wait for the journal: neither the records nor the history of a large deletion are held in memory.
#[rstest]
#[case::namespace("namespaces", "", "full", false)]
#[case::owner("configmaps", "full", "owner", false)]
#[case::storage_fails("namespaces", "", "full", true)]
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn cascade_waits_for_a_slow_journal(
    #[case] resource: &str,
    #[case] namespace: &str,
    #[case] name: &str,
    #[case] is_full: bool,
) {
    const COUNT: usize = 40;
    const OBJECT_BYTES: usize = 900 * 1024;
    let disk = FaultyDisk::default();
    let server = Server::with_store(&ServerPorts::default(), open(&disk).unwrap());
    server.create("namespaces", json!({"metadata": {"name": "full"}})).unwrap();
    let owner = server.create("configmaps", json!({"metadata": {"namespace": "full", "name": "owner"}})).unwrap();
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let data = json!({"k": "x".repeat(OBJECT_BYTES)});
    for index in 0..COUNT {
        let metadata = json!({"namespace": "full", "name": format!("c{index}"), "ownerReferences": [reference]});
        server.create("configmaps", json!({"metadata": metadata, "data": data})).unwrap();
        server.flush().await.unwrap();
    }

    disk.set_slow(true);
    thread::scope(|scope| {
        let deletion = scope.spawn(|| server.delete(resource, namespace, name, None));
        while queued_bytes(&server).waiting() == 0 && !deletion.is_finished() {
            thread::yield_now();
        }
        let (queued, remaining) = (queued_bytes(&server).get(), server.list("configmaps").len());
        disk.set_full(is_full);
        disk.set_slow(false);
        deletion.join().unwrap().unwrap();
        assert!(remaining > COUNT / 2, "{remaining} objects remain");
        assert!(queued < MAX_QUEUED_BYTES + 3 * OBJECT_BYTES, "{queued} bytes are queued");
    });
    disk.set_full(false);
    if !is_full {
        server.flush().await.unwrap();
        assert!(server.list("configmaps").is_empty());
    }
}

/// Rejects deletions of dependents until they are allowed, and records the threads that review them then.
#[derive(Default)]
struct DeletionReviews {
    are_allowed: AtomicBool,
    threads: Mutex<Vec<ThreadId>>,
}

impl Admission for DeletionReviews {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        let is_allowed = self.are_allowed.load(Ordering::Relaxed);
        let is_deletion = request.operation == "DELETE" && request.name == "dependent";
        if is_deletion && is_allowed {
            self.threads.lock().unwrap().push(thread::current().id());
        }
        AdmissionResponse { allowed: !is_deletion || is_allowed, ..AdmissionResponse::default() }
    }
}

/// The deletion of a dependent is resumed after a rollback, outside of the only async worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn deletions_are_resumed_after_a_rollback() {
    let (disk, reviews) = (FaultyDisk::default(), Arc::<DeletionReviews>::default());
    let ports = ServerPorts { admission: Arc::<DeletionReviews>::clone(&reviews), ..ServerPorts::default() };
    let server = Server::with_store(&ports, open(&disk).unwrap());
    let metadata = |name: &str| json!({"namespace": "default", "name": name});
    let owner = server.create("configmaps", json!({"metadata": metadata("owner")})).unwrap();
    let mut dependent = json!({"metadata": metadata("dependent")});
    dependent["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    server.create("configmaps", dependent).unwrap();
    server.delete("configmaps", "default", "owner", None).unwrap();
    server.flush().await.unwrap();
    let worker = tokio::spawn(async { thread::current().id() }).await.unwrap();
    let (resuming, stop) = (server.clone(), CancellationToken::new());
    let task = tokio::spawn({
        let stop = stop.clone();
        async move { resuming.resume_after_rollbacks(stop).await }
    });
    tokio::task::yield_now().await;
    let remains = || server.get("configmaps", "default", "dependent").is_some();
    assert!(remains(), "admission rejected the deletion");

    reviews.are_allowed.store(true, Ordering::Relaxed);
    disk.set_full(true);
    // The journal may notice the full disk before the write.
    server.create("configmaps", json!({"metadata": metadata("lost")})).ok();
    let resumed = async {
        while server.get("configmaps", "default", "lost").is_some() {
            tokio::task::yield_now().await;
        }
        disk.set_full(false);
        while remains() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        task.await.unwrap();
    };
    timeout(TEST_TIMEOUT, resumed).await.expect("the deletion was not resumed");
    assert!(reviews.threads.lock().unwrap().iter().all(|thread| *thread != worker));
}
