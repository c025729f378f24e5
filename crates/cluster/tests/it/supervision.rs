//! Watches that panic, and lists that fail in one namespace, in paused time.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use cluster::{Kind, Stores, UnsyncedWatch, Watches};
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use supervisor::Supervisor;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");

type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Returns a client of a server that returns `respond` of the namespace and the number of the list, and watches without
/// events.
fn client(respond: impl Fn(&str, usize) -> (StatusCode, ResponseBody) + Send + Sync + 'static) -> kube::Client {
    let lists = AtomicUsize::new(0);
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let namespace = request.uri().path().split('/').nth(4).unwrap_or_default();
        let (status, body) = match is_watch {
            true => (StatusCode::OK, StreamBody::new(stream::pending()).boxed_unsync()),
            false => respond(namespace, lists.fetch_add(1, Relaxed)),
        };
        async move { Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap()) }
    });
    cluster::client_of_service(service, "default")
}

fn json_body(value: &Value) -> ResponseBody {
    Full::new(Bytes::from(value.to_string())).boxed_unsync()
}

/// Returns a list of one Pod.
fn list(name: &str) -> (StatusCode, ResponseBody) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": name, "uid": name}});
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [pod]});
    (StatusCode::OK, json_body(&list))
}

/// Returns a list that panics when the watch reads it.
fn broken_list() -> (StatusCode, ResponseBody) {
    let frames =
        stream::poll_fn(|_| -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> { panic!("broken list") });
    (StatusCode::OK, StreamBody::new(frames).boxed_unsync())
}

fn forbidden() -> (StatusCode, ResponseBody) {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "pods is forbidden"});
    (StatusCode::FORBIDDEN, json_body(&status))
}

#[tokio::test(start_paused = true)]
async fn watch_that_panics_is_restarted_and_lists_again() {
    let client = client(|_, number| if number < 2 { broken_list() } else { list("p") });
    let (stores, supervisor) = (Stores::new("us"), Supervisor::default());
    let (mut watches, mut changes) = Watches::new(client, stores.clone(), supervisor.clone(), CancellationToken::new());
    watches.start(POD);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(supervisor.outages(), ["the watch of pods panicked: broken list; it restarts after 1 s"]);
    assert!(!watches.have_synced());
    timeout(Duration::from_secs(60), changes.recv()).await.expect("the watch was not restarted").unwrap();
    assert_eq!(stores.list(POD)[0]["metadata"]["name"], "p");
    assert!(watches.have_synced() && supervisor.outages().is_empty());
    let _ = watches.stop(POD);
    sleep(Duration::from_millis(1)).await;
    assert!(supervisor.statuses().borrow().is_empty(), "a stopped watch is not supervised");
}

#[tokio::test(start_paused = true)]
async fn watch_that_always_panics_is_a_failure() {
    let (stores, supervisor) = (Stores::new("us"), Supervisor::default());
    let client = client(|_, _| broken_list());
    let (mut watches, _changes) = Watches::new(client, stores, supervisor.clone(), CancellationToken::new());
    watches.restrict_to(&["a".to_owned()]);
    watches.start(POD);
    let failure = timeout(Duration::from_secs(3600), supervisor.failed()).await.unwrap();
    assert_eq!(failure.to_string(), "the watch of pods in namespace a failed repeatedly: it panicked: broken list");
}

fn unsynced(namespace: &str, error: Option<&str>) -> UnsyncedWatch {
    UnsyncedWatch { kind: POD, namespace: namespace.to_owned(), error: error.map(str::to_owned) }
}

/// The operator may not list one namespace; another one is still being listed.
#[tokio::test(start_paused = true)]
async fn rejection_in_one_namespace_does_not_count_for_another() {
    let client = client(|namespace, _| match namespace {
        "forbidden" => forbidden(),
        _ => (StatusCode::OK, StreamBody::new(stream::pending()).boxed_unsync()),
    });
    let (mut watches, _changes) =
        Watches::new(client, Stores::new("us"), Supervisor::default(), CancellationToken::new());
    watches.restrict_to(&["forbidden".to_owned(), "slow".to_owned()]);
    watches.start(POD);
    sleep(Duration::from_secs(25)).await;
    assert!(!watches.have_synced());
    assert_eq!(watches.unsynced(), [unsynced("forbidden", Some("pods is forbidden")), unsynced("slow", None)]);
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_are_rejected_or_listed_have_synced() {
    let is_allowed = Arc::<AtomicBool>::default();
    let client = client({
        let is_allowed = Arc::clone(&is_allowed);
        move |namespace, _| match namespace {
            "forbidden" if !is_allowed.load(Relaxed) => forbidden(),
            _ => list("p"),
        }
    });
    let (mut watches, _changes) =
        Watches::new(client, Stores::new("us"), Supervisor::default(), CancellationToken::new());
    watches.restrict_to(&["forbidden".to_owned(), "a".to_owned()]);
    watches.start(POD);
    sleep(Duration::from_secs(5)).await;
    assert!(!watches.have_synced());
    sleep(Duration::from_secs(20)).await;
    assert!(watches.have_synced());
    assert_eq!(watches.unsynced(), [unsynced("forbidden", Some("pods is forbidden"))], "work starts without them");
    is_allowed.store(true, Relaxed);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(watches.unsynced(), []);
}

/// No decision depends on an optional kind.
#[tokio::test(start_paused = true)]
async fn optional_kind_that_is_rejected_has_synced() {
    let (mut watches, _changes) =
        Watches::new(client(|_, _| forbidden()), Stores::new("us"), Supervisor::default(), CancellationToken::new());
    watches.start_optional(POD);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(watches.unsynced(), [unsynced("", Some("pods is forbidden"))]);
    sleep(Duration::from_secs(20)).await;
    assert!(watches.have_synced() && watches.unsynced().is_empty());
}
