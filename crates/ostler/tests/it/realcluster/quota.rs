//! Quota of a namespace by Kueue: two services, quota for one.

use serde_json::{Value, json};

use super::serving::service;
use super::test_cluster::{DEPLOYMENTS, OME, PODS, TestCluster, eventually, find_condition, object_named};
use crate::session::{ostler, outcome};

const NAMESPACE: &str = "quota";
const QUEUES: (&str, &str) = ("clusterqueues.kueue.x-k8s.io", "v1beta2");
const FLAVORS: (&str, &str) = ("resourceflavors.kueue.x-k8s.io", "v1beta2");

/// Returns the objects with which an administrator limits the namespace to `gpus` accelerators.
fn quota(gpus: u32) -> [Value; 3] {
    let api_version = "kueue.x-k8s.io/v1beta2";
    let resources = json!([{"name": "cpu", "nominalQuota": 100}, {"name": "memory", "nominalQuota": "1Ti"},
        {"name": "nvidia.com/gpu", "nominalQuota": gpus}]);
    let group = json!({"coveredResources": ["cpu", "memory", "nvidia.com/gpu"],
        "flavors": [{"name": "default-flavor", "resources": resources}]});
    [
        json!({"apiVersion": api_version, "kind": "ResourceFlavor", "metadata": {"name": "default-flavor"}}),
        json!({"apiVersion": api_version, "kind": "ClusterQueue", "metadata": {"name": "team"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]}}),
        json!({"apiVersion": api_version, "kind": "LocalQueue", "metadata": {"name": "inference", "namespace": NAMESPACE},
            "spec": {"clusterQueue": "team"}}),
    ]
}

fn queued_service(name: &str) -> Value {
    let mut service = service(NAMESPACE, name, json!({}));
    service["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "inference"});
    service
}

fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

fn explain(test_cluster: &TestCluster, name: &str) -> String {
    let kubeconfig = test_cluster.cluster.kubeconfig.display().to_string();
    let args = ["explain", "isvc", name, "-n", NAMESPACE, "--kubeconfig", &kubeconfig];
    let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    stdout
}

/// Kueue gates the Pod of the second service until the first one is deleted. Product messages name queue, quota and remedies.
pub(super) async fn service_over_quota_runs_once_quota_is_free(test_cluster: &mut TestCluster) {
    if !test_cluster.cluster.can_install_kueue() {
        return eprintln!("         skipped: no binary of Kueue");
    }
    test_cluster.cluster.install_kueue().await.unwrap();
    test_cluster.namespace(NAMESPACE).await;
    for object in quota(1) {
        test_cluster.apply(&object).await;
    }
    test_cluster.apply(&queued_service("chat")).await;
    test_cluster.wait_for_condition(OME, NAMESPACE, "chat", ("Ready", "True"), "").await;

    test_cluster.apply(&queued_service("search")).await;
    let waiting = "waiting for quota: Kueue has not admitted the Pod to LocalQueue inference; run `kubectl describe ";
    let service = test_cluster.wait_for_condition(OME, NAMESPACE, "search", ("Ready", "False"), waiting).await;
    assert_eq!(find_condition(&service, "Ready").unwrap()["reason"], "WaitingForQuota");
    let pods = test_cluster.wait_for("both Pods", PODS, NAMESPACE, |objects| objects.len() == 2).await;
    for (name, pod) in &pods {
        assert_eq!(is_gated(pod), name.starts_with("search-"), "{pod}");
    }
    let is_explained = |text: &str| text.contains("insufficient unused quota for nvidia.com/gpu");
    let explanation = eventually("the reason of Kueue", async || {
        Some(explain(test_cluster, "search")).filter(|text| is_explained(text))
    })
    .await;
    for remedy in ["`nominalQuota`", "LocalQueue inference", "scale down a service that uses it: chat"] {
        assert!(explanation.contains(remedy), "{explanation}");
    }

    test_cluster.delete(OME, NAMESPACE, "chat").await;
    test_cluster.wait_for_condition(OME, NAMESPACE, "search", ("Ready", "True"), "").await;
    let remaining = test_cluster.wait_for("one Pod", PODS, NAMESPACE, |objects| objects.len() == 1).await;
    let (name, pod) = remaining.first_key_value().unwrap();
    assert_eq!(pod["metadata"]["uid"], object_named(&pods, name)["metadata"]["uid"], "Kueue admits the gated Pod");

    // The quota is raised instead.
    test_cluster.apply(&queued_service("chat")).await;
    test_cluster.wait_for_condition(OME, NAMESPACE, "chat", ("Ready", "False"), "WaitingForQuota").await;
    for object in quota(2) {
        test_cluster.apply(&object).await;
    }
    test_cluster.wait_for_condition(OME, NAMESPACE, "chat", ("Ready", "True"), "").await;
    for name in ["chat", "search"] {
        test_cluster.delete(OME, NAMESPACE, name).await;
    }
    test_cluster.wait_for_deletion(NAMESPACE, &[OME, DEPLOYMENTS, PODS]).await;
    test_cluster.delete(QUEUES, "", "team").await;
    test_cluster.delete(FLAVORS, "", "default-flavor").await;
}
