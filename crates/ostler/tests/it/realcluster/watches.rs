//! Watches recover after the connection to the API server is interrupted and resource versions expire.

use serde_json::json;

use super::test_cluster::{DEPLOYMENTS, OME, PODS, TestCluster};

const NAMESPACE: &str = "watches";
/// Number of watches to expire: more than the number of watched kinds.
const EXPIRED_WATCHES: usize = 40;

pub(super) async fn watches_recover(test_cluster: &TestCluster) {
    test_cluster.namespace(NAMESPACE).await;
    let service = |name: &str| {
        json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"model": {"name": "llama-3-2-3b-instruct"}}})
    };
    test_cluster.apply(&service("before")).await;
    test_cluster.wait_for_condition(OME, NAMESPACE, "before", ("Ready", "True"), "").await;
    let proxy = &test_cluster.operator().proxy;

    // After an interruption, the watches continue at their resource version.
    proxy.cut_watches();
    test_cluster.apply(&service("cut")).await;
    test_cluster.wait_for_condition(OME, NAMESPACE, "cut", ("Ready", "True"), "").await;

    // While the proxy is closed, a service is deleted and another one created. Then all watches must restart with a list.
    proxy.reject_requests();
    test_cluster.delete(OME, NAMESPACE, "before").await;
    test_cluster.apply(&service("during")).await;
    let writes_before = proxy.writes().len();
    proxy.expire_watches(EXPIRED_WATCHES);
    proxy.accept_requests();
    test_cluster.wait_for_condition(OME, NAMESPACE, "during", ("Ready", "True"), "").await;
    assert!(proxy.expired_watches() > 0, "at least one watch received an expired resource version");
    let repeated_writes: Vec<_> =
        proxy.writes().into_iter().skip(writes_before).filter(|write| write.path.contains("/cut-engine")).collect();
    assert!(repeated_writes.is_empty(), "unchanged objects are not written again: {repeated_writes:?}");

    for name in ["cut", "during"] {
        test_cluster.delete(OME, NAMESPACE, name).await;
    }
    test_cluster.wait_for_deletion(NAMESPACE, &[OME, DEPLOYMENTS, PODS]).await;
}
