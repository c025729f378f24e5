//! Background tasks of the operator that panic, and work that makes no progress.

use std::convert::Infallible;
use std::future::pending;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use axum::body::{Body, Bytes};
use cluster::{Clock, Health};
use http::Response;
use operator::{Options, WebhookOptions, WebhookTarget};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::test_cluster::{OME_SERVICES, OperatorRequest, PausedClock, TIMEOUT, TestCluster, minimal_service};

/// Returns a client of the API server. Responses whose requests `is_broken` selects panic when they are read.
fn client(
    test_cluster: &TestCluster,
    is_broken: impl Fn(&OperatorRequest) -> bool + Clone + Send + 'static,
) -> kube::Client {
    let router = embedded::router(&test_cluster.server);
    let service = tower::service_fn(move |request: OperatorRequest| {
        let (is_broken, router) = (is_broken(&request), router.clone());
        async move {
            if is_broken {
                let panic =
                    futures::stream::poll_fn(|_| -> Poll<Option<Result<Bytes, Infallible>>> { panic!("broken body") });
                return Ok(Response::new(Body::from_stream(panic)));
            }
            router.oneshot(request.map(Body::new)).await.map_err(|error: Infallible| error)
        }
    });
    cluster::client_of_service(service, "default")
}

/// The first list of Nodes panics.
#[tokio::test(start_paused = true)]
async fn operator_is_not_ready_until_a_watch_that_panicked_is_restarted() {
    let test_cluster = TestCluster::with_catalog();
    let options = Options::default();
    let health = Arc::clone(&options.health);
    let lists = Arc::new(AtomicUsize::new(0));
    let client = client(&test_cluster, move |request| {
        request.uri().path() == "/api/v1/nodes" && lists.fetch_add(1, Relaxed) == 0
    });
    test_cluster.start_operator_with_client(client, options);
    tokio::time::sleep(Duration::from_millis(900)).await;
    let reasons = health.check_readiness().unwrap_err();
    let outage = "the watch of nodes panicked: broken body; it restarts after 1 s";
    assert!(reasons.lines().any(|line| line == outage), "{reasons}");
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", crate::MODEL)).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    assert_eq!(health.check_readiness(), Ok(()));
}

/// Every response about the webhook configuration panics.
#[tokio::test(start_paused = true)]
async fn operator_ends_with_an_error_if_a_task_panics_repeatedly() {
    let test_cluster = TestCluster::with_catalog();
    let target = WebhookTarget::Service { namespace: "ome-system".to_owned(), name: "ostler-webhook".to_owned() };
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let options = Options { webhook: Some(WebhookOptions { listener, target }), ..Options::default() };
    let health = Arc::clone(&options.health);
    let client = client(&test_cluster, |request| request.uri().path().contains("/secrets/"));
    let run = operator::run(client, options, CancellationToken::new());
    let failure = tokio::time::timeout(TIMEOUT, run).await.expect("the operator did not end").unwrap_err();
    assert_eq!(failure.to_string(), "the admission webhook failed repeatedly: it panicked: broken body");
    let reasons = health.check_readiness().unwrap_err();
    assert!(reasons.contains("the admission webhook panicked: broken body; it is not restarted again"), "{reasons}");
}

/// Returns a client of an API server that forbids to list `resource` while `is_forbidden`.
fn restricted_client(
    test_cluster: &TestCluster,
    resource: &'static str,
    is_forbidden: Arc<AtomicBool>,
) -> kube::Client {
    let router = embedded::router(&test_cluster.server);
    let service = tower::service_fn(move |request: OperatorRequest| {
        let is_rejected = is_forbidden.load(Relaxed) && request.uri().path().ends_with(resource);
        let router = router.clone();
        async move {
            if is_rejected {
                let message = format!("{resource} is forbidden: no role of the operator allows it");
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                    "code": 403, "message": message});
                let response = Response::builder().status(403).header("content-type", "application/json");
                return Ok(response.body(Body::from(status.to_string())).unwrap());
            }
            router.oneshot(request.map(Body::new)).await.map_err(|error: Infallible| error)
        }
    });
    cluster::client_of_service(service, "default")
}

/// The operator works with the kinds that it may read, and reports the others.
#[tokio::test(start_paused = true)]
async fn operator_is_not_ready_while_a_required_kind_is_forbidden() {
    let test_cluster = TestCluster::with_catalog();
    let options = Options::default();
    let (health, is_forbidden) = (Arc::clone(&options.health), Arc::new(AtomicBool::new(true)));
    let client = restricted_client(&test_cluster, "poddisruptionbudgets", Arc::clone(&is_forbidden));
    test_cluster.start_operator_with_client(client, options);
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", crate::MODEL)).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let reason = "failed to list poddisruptionbudgets.policy: \
        poddisruptionbudgets is forbidden: no role of the operator allows it";
    assert_eq!(health.check_readiness(), Err(reason.to_owned()));
    is_forbidden.store(false, Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(health.check_readiness(), Ok(()));
}

/// A clock that panics the next few times that it is read. The operator reads it when it handles a change.
struct BrokenClock {
    clock: PausedClock,
    panics: AtomicUsize,
}

impl Clock for BrokenClock {
    fn now(&self) -> jiff::Timestamp {
        let is_broken = self.panics.fetch_update(Relaxed, Relaxed, |panics| panics.checked_sub(1)).is_ok();
        assert!(!is_broken, "broken clock");
        self.clock.now()
    }
}

/// Changes that panic stop neither the operator nor other changes, and are handled again.
#[tokio::test(start_paused = true)]
async fn changes_that_panic_are_handled_again() {
    const ALWAYS: usize = 1_000_000;
    let test_cluster = TestCluster::with_catalog();
    let clock = Arc::new(BrokenClock { clock: PausedClock::start(), panics: AtomicUsize::new(0) });
    let options = Options { clock: Arc::<BrokenClock>::clone(&clock), ..Options::default() };
    let metrics = Arc::clone(&options.metrics);
    let client = client(&test_cluster, |_| false);
    let operator = tokio::spawn(operator::run(client, options, CancellationToken::new()));
    test_cluster.wait_until_idle().await;

    // Only the changes of the first two services panic.
    clock.panics.store(2, Relaxed);
    for name in ["a", "b", "c"] {
        test_cluster.server.create(OME_SERVICES, minimal_service(name, crate::MODEL)).unwrap();
    }
    for name in ["c", "a", "b"] {
        test_cluster.wait_for_condition(OME_SERVICES, name, "RuntimeResolved", "True").await;
    }
    let text = metrics.render();
    assert!(text.contains("ostler_panics_total{operation=\"change\"} 2\n"), "{text}");
    let events = |name: &str| {
        let is_panic = |event: &&Arc<serde_json::Value>| {
            event["reason"] == "InternalError" && event["involvedObject"]["name"] == name
        };
        let events = test_cluster.server.list("events");
        let messages = events.iter().filter(is_panic).map(|event| format!("{} {}", event["type"], event["message"]));
        messages.collect::<Vec<_>>()
    };
    let event = |name: &str| {
        format!(
            "\"Warning\" \"The handling of a change of InferenceService default/{name} panicked: broken clock; the operator \
             retries with increasing delays\""
        )
    };
    test_cluster.wait_until_idle().await;
    assert_eq!((events("a"), events("b"), events("c")), (vec![event("a")], vec![event("b")], Vec::new()));

    // Every attempt panics for a minute.
    test_cluster.wait_until_idle().await;
    clock.panics.store(ALWAYS, Relaxed);
    test_cluster.server.create(OME_SERVICES, minimal_service("d", crate::MODEL)).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let attempts = ALWAYS - clock.panics.swap(0, Relaxed);
    assert!((5..30).contains(&attempts), "{attempts} attempts");
    test_cluster.wait_for_condition(OME_SERVICES, "d", "RuntimeResolved", "True").await;
    test_cluster.wait_until_idle().await;
    assert_eq!(events("d"), [event("d")], "one event for all attempts");
    assert!(!operator.is_finished());
}

/// Advances the paused clock without returning to the runtime, as a computation that does not end.
fn advance_in_one_poll(duration: Duration) {
    let advance = pin!(tokio::time::advance(duration));
    assert!(advance.poll(&mut std::task::Context::from_waker(Waker::noop())).is_pending());
}

/// A clock whose next read takes 181 s. It records the liveness of the operator at the end.
struct SlowClock {
    clock: PausedClock,
    is_slow: AtomicBool,
    health: Arc<Health>,
    liveness: OnceLock<Result<(), String>>,
}

impl Clock for SlowClock {
    fn now(&self) -> jiff::Timestamp {
        if self.is_slow.swap(false, Relaxed) {
            advance_in_one_poll(Duration::from_secs(181));
            self.liveness.set(self.health.check_liveness()).unwrap();
        }
        self.clock.now()
    }
}

#[tokio::test(start_paused = true)]
async fn operator_is_not_alive_while_its_control_loop_makes_no_progress() {
    let test_cluster = TestCluster::with_catalog();
    let health = Arc::new(Health::default());
    let clock = Arc::new(SlowClock {
        clock: PausedClock::start(),
        is_slow: AtomicBool::new(false),
        health: Arc::clone(&health),
        liveness: OnceLock::new(),
    });
    let options = Options { clock: Arc::<SlowClock>::clone(&clock), health: Arc::clone(&health), ..Options::default() };
    let client = client(&test_cluster, |_| false);
    tokio::spawn(operator::run(client, options, test_cluster.shutdown_token()));
    test_cluster.wait_until_idle().await;
    assert_eq!(health.check_liveness(), Ok(()));

    clock.is_slow.store(true, Relaxed);
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", crate::MODEL)).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    let stalled = Err("the control loop has made no progress for 181 s".to_owned());
    assert_eq!(clock.liveness.get(), Some(&stalled));
    assert_eq!(health.check_liveness(), Ok(()));
}

/// A request for the status of the service is never answered. The reconcile does not observe its deadline in time.
#[tokio::test(start_paused = true)]
async fn operator_is_not_alive_while_a_reconcile_makes_no_progress() {
    let test_cluster = TestCluster::with_catalog();
    let options = Options::default();
    let (health, unanswered) = (Arc::clone(&options.health), Arc::new(Notify::new()));
    let (router, notify) = (embedded::router(&test_cluster.server), Arc::clone(&unanswered));
    let service = tower::service_fn(move |request: OperatorRequest| {
        let (router, notify) = (router.clone(), Arc::clone(&notify));
        async move {
            if request.uri().path().ends_with("/chat/status") {
                notify.notify_one();
                pending::<()>().await;
            }
            router.oneshot(request.map(Body::new)).await.map_err(|error: Infallible| error)
        }
    });
    test_cluster.start_operator_with_client(cluster::client_of_service(service, "default"), options);
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", crate::MODEL)).unwrap();
    let wait_for_request =
        async || tokio::time::timeout(TIMEOUT, unanswered.notified()).await.expect("the operator reported no status");
    wait_for_request().await;
    assert_eq!(health.check_liveness(), Ok(()));
    advance_in_one_poll(Duration::from_secs(181));
    let stalled = "the reconcile of InferenceService default/chat has made no progress for 181 s";
    assert_eq!(health.check_liveness(), Err(stalled.to_owned()));
    // The request fails at its deadline, and the operator retries it.
    wait_for_request().await;
    assert_eq!(health.check_liveness(), Ok(()));
}
