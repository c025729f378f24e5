//! An API server that does not answer requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use cluster::Health;
use http::{Method, Request};
use operator::Options;
use tower::ServiceExt as _;

use crate::accelerator_classes::gpu_node;
use crate::test_cluster::{OME_SERVICES, TestCluster, minimal_service};
use crate::{MODEL, owned_objects};

/// Starts the operator with a client that never gets a response to the requests that `is_unanswered` selects. Returns
/// its health and the number of these requests.
fn start_operator(
    test_cluster: &TestCluster,
    is_unanswered: impl Fn(&Request<kube::client::Body>) -> bool + Clone + Send + 'static,
) -> (Arc<Health>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let unanswered = Arc::clone(&count);
    let router = embedded::router(&test_cluster.server);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (is_unanswered, router) = (is_unanswered(&request), router.clone());
        let unanswered = Arc::clone(&unanswered);
        async move {
            if is_unanswered {
                unanswered.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }
            router.oneshot(request.map(axum::body::Body::new)).await.map_err(|error: Infallible| error)
        }
    });
    let options = Options::default();
    let health = Arc::clone(&options.health);
    test_cluster.start_operator_with_client(cluster::client_of_service(service, "default"), options);
    (health, count)
}

/// No other item starts before the exclusive item is complete.
#[tokio::test(start_paused = true)]
async fn unanswered_write_of_an_exclusive_item_delays_other_items_only() {
    let test_cluster = TestCluster::with_catalog();
    test_cluster.server.create("nodes", gpu_node("gpu-b", "NVIDIA-X900")).unwrap();
    let discovered = "/apis/ome.io/v1beta1/acceleratorclasses/nvidia-x900";
    let (health, unanswered) = start_operator(&test_cluster, move |request| {
        request.method() == Method::PATCH && request.uri().path() == discovered
    });
    while unanswered.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", MODEL)).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    assert_eq!(health.check_liveness(), Ok(()));
    assert!(test_cluster.server.get("acceleratorclasses.ome.io", "", "nvidia-x900").is_none());
}

#[tokio::test(start_paused = true)]
async fn operator_works_after_an_hour_without_responses() {
    let test_cluster = TestCluster::with_catalog();
    test_cluster.server.create(OME_SERVICES, minimal_service("chat", MODEL)).unwrap();
    let is_unresponsive = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&is_unresponsive);
    let (health, _) = start_operator(&test_cluster, move |_| flag.load(Ordering::Relaxed));
    assert_eq!(health.check_readiness(), Err("the controller is starting".to_owned()));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let reasons = health.check_readiness().unwrap_err();
    assert!(reasons.starts_with("waiting for the first list of ") && reasons.contains("nodes, pods"), "{reasons}");
    assert_eq!(health.check_liveness(), Ok(()), "restarting the operator would not help");
    assert!(owned_objects(&test_cluster.server).is_empty());
    is_unresponsive.store(false, Ordering::Relaxed);
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    assert_eq!(health.check_readiness(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn writes_continue_after_a_running_operator_got_no_responses() {
    let test_cluster = TestCluster::with_catalog();
    let is_unresponsive = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_unresponsive);
    let (health, unanswered) =
        start_operator(&test_cluster, move |request| flag.load(Ordering::Relaxed) && request.method() != Method::GET);
    test_cluster.server.create(OME_SERVICES, minimal_service("first", MODEL)).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "first", "RuntimeResolved", "True").await;
    is_unresponsive.store(true, Ordering::Relaxed);
    for name in ["second", "third"] {
        test_cluster.server.create(OME_SERVICES, minimal_service(name, MODEL)).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert!(unanswered.load(Ordering::Relaxed) > 2, "writes are retried");
    assert_eq!(health.check_liveness(), Ok(()));
    is_unresponsive.store(false, Ordering::Relaxed);
    for name in ["second", "third"] {
        test_cluster.wait_for_condition(OME_SERVICES, name, "RuntimeResolved", "True").await;
    }
}
