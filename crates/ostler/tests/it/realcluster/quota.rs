//! Quota of a namespace by Kueue: two services, quota for one; and flavors for two classes.

use serde_json::{Value, json};

use super::serving::service;
use super::test_cluster::{
    CLASSES, DEPLOYMENTS, NODES, OME, Objects, PODS, TestCluster, eventually, find_condition, object_named,
};
use crate::session::{ostler, outcome};

const NAMESPACE: &str = "quota";
const QUEUES: (&str, &str) = ("clusterqueues.kueue.x-k8s.io", "v1beta2");
const FLAVORS: (&str, &str) = ("resourceflavors.kueue.x-k8s.io", "v1beta2");
const WORKLOADS: (&str, &str) = ("workloads.kueue.x-k8s.io", "v1beta2");
const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";

/// Returns a queue of the namespace for `gpus` accelerators of each flavor; Kueue prefers the first flavor.
fn queue(namespace: &str, gpus: u32, flavors: &[&str]) -> [Value; 2] {
    let resources = json!([{"name": "cpu", "nominalQuota": 100}, {"name": "memory", "nominalQuota": "1Ti"},
        {"name": "nvidia.com/gpu", "nominalQuota": gpus}]);
    let flavors: Vec<Value> = flavors.iter().map(|name| json!({"name": name, "resources": resources})).collect();
    let group = json!({"coveredResources": ["cpu", "memory", "nvidia.com/gpu"], "flavors": flavors});
    [
        json!({"apiVersion": API_VERSION, "kind": "ClusterQueue", "metadata": {"name": namespace},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]}}),
        json!({"apiVersion": API_VERSION, "kind": "LocalQueue", "metadata": {"name": "inference", "namespace": namespace},
            "spec": {"clusterQueue": namespace}}),
    ]
}

/// Returns the objects with which an administrator limits the namespace to `gpus` accelerators.
fn quota(gpus: u32) -> [Value; 3] {
    let flavor = json!({"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "default-flavor"}});
    let [cluster_queue, local_queue] = queue(NAMESPACE, gpus, &["default-flavor"]);
    [flavor, cluster_queue, local_queue]
}

fn queued_service(name: &str) -> Value {
    queued(service(NAMESPACE, name, json!({})))
}

fn queued(mut service: Value) -> Value {
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
    test_cluster.delete(QUEUES, "", NAMESPACE).await;
    test_cluster.delete(FLAVORS, "", "default-flavor").await;
}

/// The second flavor of the queue is that of the service: the first one matches neither its node selector nor its node.
// spec: ACC-55
pub(super) async fn workload_is_admitted_to_the_flavor_of_its_class(test_cluster: &TestCluster) {
    const PRODUCT: &str = "nvidia.com/gpu.product";
    let namespace = "flavors";
    if !test_cluster.cluster.can_install_kueue() {
        return eprintln!("         skipped: no binary of Kueue");
    }
    test_cluster.namespace(namespace).await;
    let mut node = realcluster::gpu_nodes(20, 21).remove(0);
    for (label, value) in [(PRODUCT, "A100-SXM4-40GB"), ("nvidia.com/gpu.memory", "40960")] {
        node["metadata"]["labels"][label] = json!(value);
    }
    test_cluster.apply(&node).await;
    let flavors = [("gpu-h100", "NVIDIA-H100-80GB-HBM3"), ("gpu-a100", "A100-SXM4-40GB")];
    for (name, product) in flavors {
        test_cluster
            .apply(&json!({"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": name},
                "spec": {"nodeLabels": {PRODUCT: product}}}))
            .await;
        let has_nodes = |objects: &Objects| {
            objects.get(name).is_some_and(|class| class["status"]["availableNodes"].as_u64() >= Some(1))
        };
        test_cluster.wait_for("the flavor's class", CLASSES, "", has_nodes).await;
    }
    for object in queue(namespace, 8, &flavors.map(|(name, _)| name)) {
        test_cluster.apply(&object).await;
    }
    for (name, product) in flavors {
        let service_name = format!("on-{name}");
        let annotations = json!({"ome.io/accelerator-class": name});
        test_cluster.apply(&queued(service(namespace, &service_name, annotations))).await;
        test_cluster.wait_for_condition(OME, namespace, &service_name, ("Ready", "True"), "").await;
        let template =
            &test_cluster.get(DEPLOYMENTS, namespace, &format!("{service_name}-engine")).await["spec"]["template"];
        assert_eq!(template["spec"]["nodeSelector"][PRODUCT], product, "{template:#}");
        assert_eq!(template["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"], "1", "{template:#}");

        let pods = test_cluster.wait_for("the Pods", PODS, namespace, |objects| !objects.is_empty()).await;
        let (pod_name, pod) = pods.iter().find(|(pod, _)| pod.starts_with(&service_name)).unwrap();
        let workloads =
            test_cluster.wait_for("the workloads", WORKLOADS, namespace, |objects| !objects.is_empty()).await;
        let is_of_pod = |workload: &&Value| workload["metadata"]["ownerReferences"][0]["name"] == **pod_name;
        let workload = workloads.values().find(is_of_pod).unwrap_or_else(|| panic!("{workloads:?}"));
        let assigned = &workload["status"]["admission"]["podSetAssignments"][0];
        assert_eq!(assigned["flavors"]["nvidia.com/gpu"], name, "{assigned}");
        assert_eq!(assigned["resourceUsage"]["nvidia.com/gpu"], "1", "{assigned}");
        let node = test_cluster.get(NODES, "", pod["spec"]["nodeName"].as_str().unwrap()).await;
        assert_eq!(node["metadata"]["labels"][PRODUCT], product);
    }
    for (name, _) in flavors {
        test_cluster.delete(OME, namespace, &format!("on-{name}")).await;
    }
    test_cluster.wait_for_deletion(namespace, &[OME, DEPLOYMENTS, PODS]).await;
    test_cluster.delete(QUEUES, "", namespace).await;
    for (name, _) in flavors {
        test_cluster.delete(FLAVORS, "", name).await;
        test_cluster.wait_for("no class", CLASSES, "", |objects| !objects.contains_key(name)).await;
    }
    test_cluster.delete(NODES, "", "gpu-20").await;
}
