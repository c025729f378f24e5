//! API servers that stop responding, in paused time.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use cluster::{Change, Kind, Stores, Watches, read_object};
use futures::{AsyncReadExt as _, Stream, StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use serde_json::json;
use supervisor::Supervisor;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const NODE: Kind = Kind::cluster_scoped("", "v1", "Node", "nodes");

type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Returns a body of these chunks, each sent after a delay.
fn body(chunks: impl Stream<Item = (Duration, String)> + Send + 'static) -> ResponseBody {
    let frames = chunks.then(|(delay, chunk)| async move {
        sleep(delay).await;
        Ok(Frame::data(Bytes::from(chunk)))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Returns a body that ends after `text`.
fn complete(text: String) -> ResponseBody {
    body(stream::iter([(Duration::ZERO, text)]))
}

/// Returns a body that neither continues nor ends after `text`.
fn endless(text: String) -> ResponseBody {
    body(stream::iter([(Duration::ZERO, text)]).chain(stream::pending()))
}

/// Returns a client of a server that returns `respond` of the number of the request, or never responds.
fn client(respond: impl Fn(usize) -> Option<ResponseBody> + Send + Sync + 'static) -> kube::Client {
    let (respond, requests) = (Arc::new(respond), AtomicUsize::new(0));
    let service = tower::service_fn(move |_: Request<Body>| {
        let response = respond(requests.fetch_add(1, Relaxed));
        async move {
            match response {
                Some(body) => Ok::<_, Infallible>(Response::new(body)),
                None => std::future::pending().await,
            }
        }
    });
    cluster::client_of_service(service, "default")
}

/// Reads an object and returns the error and the elapsed seconds.
async fn read_failure(client: &kube::Client) -> (String, u64) {
    let (start, limit) = (Instant::now(), Duration::from_secs(3600));
    let result = tokio::time::timeout(limit, read_object(client, NODE, "", "n")).await;
    let error = result.expect("the request has no deadline").unwrap_err();
    (error.to_string(), start.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn unanswered_request_fails_after_its_deadline() {
    let (error, seconds) = read_failure(&client(|_| None)).await;
    assert!(
        error.contains("failed to read Node") && error.contains("did not complete the request within 30 s"),
        "{error}"
    );
    assert_eq!(seconds, 30);
}

#[tokio::test(start_paused = true)]
async fn response_without_its_body_fails_after_the_deadline() {
    let (error, seconds) = read_failure(&client(|_| Some(endless("{\"metadata\":".to_owned())))).await;
    assert!(error.contains("within 30 s"), "{error}");
    assert_eq!(seconds, 30);
}

#[tokio::test(start_paused = true)]
async fn slow_body_does_not_extend_the_deadline() {
    let spaces = || stream::repeat((Duration::from_secs(7), " ".to_owned()));
    let (error, seconds) = read_failure(&client(move |_| Some(body(spaces())))).await;
    assert!(error.contains("within 30 s"), "{error}");
    assert_eq!(seconds, 30);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_after_ten_minutes_of_silence_only() {
    let bookmarks = || stream::repeat((Duration::from_secs(590), "{}\n".to_owned())).take(10).chain(stream::pending());
    let client = client(move |_| Some(body(bookmarks())));
    let (start, mut text) = (Instant::now(), String::new());
    let request = Request::get("/api/v1/nodes?watch=true").body(Vec::new()).unwrap();
    let mut watch = std::pin::pin!(client.request_stream(request).await.unwrap());
    let end = tokio::time::timeout(Duration::from_secs(36_000), watch.read_to_string(&mut text)).await;
    let error = end.expect("the watch has no limit").unwrap_err();
    assert!(error.to_string().contains("neither an event nor a bookmark for 10 min"), "{error}");
    assert_eq!(start.elapsed().as_secs(), 10 * 590 + 600);
}

fn node(name: &str, version: u32) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()}})
}

fn added(name: &str, version: u32) -> String {
    format!("{}\n", json!({"type": "ADDED", "object": node(name, version)}))
}

/// The API server does not answer the first list, the first watch, and stops sending on the second watch.
#[tokio::test(start_paused = true)]
async fn watches_recover_from_silence() {
    let client = client(|request| {
        match request {
        0 | 2 => None,
        1 => Some(complete(
            json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": [node("a", 1)]})
                .to_string(),
        )),
        3 => Some(endless(added("b", 2))),
        _ => Some(endless(added("c", 3))),
    }
    });
    let stores = Stores::new("us");
    let (mut watches, mut changes) =
        Watches::new(client, stores.clone(), Supervisor::default(), CancellationToken::new());
    watches.start(NODE);
    let receive = async {
        for name in ["a", "b", "c"] {
            while stores.list(NODE).iter().all(|node| node["metadata"]["name"] != name) {
                let _: Change = changes.recv().await.unwrap();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(900), receive).await.expect("the watch did not recover");
    assert!(watches.have_synced());
}

/// A decision based on an incomplete cache may be permanent, so a slow API server must not count as a forbidden kind.
#[tokio::test(start_paused = true)]
async fn kind_of_an_unresponsive_server_is_not_synced() {
    let (mut watches, _changes) =
        Watches::new(client(|_| None), Stores::new("us"), Supervisor::default(), CancellationToken::new());
    watches.start(NODE);
    sleep(Duration::from_secs(3600)).await;
    assert!(!watches.have_synced());
}

/// The conversion webhook of an optional API may not respond. Decisions do not depend on its kinds.
#[tokio::test(start_paused = true)]
async fn optional_kind_of_an_unresponsive_server_does_not_block_the_others() {
    let (mut watches, _changes) =
        Watches::new(client(|_| None), Stores::new("us"), Supervisor::default(), CancellationToken::new());
    watches.start_optional(NODE);
    sleep(Duration::from_secs(30)).await;
    assert!(!watches.have_synced());
    sleep(Duration::from_secs(15)).await;
    assert!(watches.have_synced());
}
