//! Updates of the LeaderWorkerSet of an `ome.io` service: an additional group serves while the only one is recreated, also if its
//! number of nodes changes, which Volcano must schedule beside the old group.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::test_cluster::{
    ENDPOINT_SLICES, GROUPS, OME, Objects, PODS, SERVICES, SETS, STATEFUL_SETS, TestCluster, object_named,
};

const NAMESPACE: &str = "group-surge";

/// Image and number of ready Pods of each group, by index.
type ReadyGroups = BTreeMap<String, (String, usize)>;

/// Returns a service with one replica on this number of nodes, which it uses completely.
fn service(image: &str, nodes: usize) -> Value {
    let runner = json!({"name": "ome-container", "image": image, "ports": [{"containerPort": 8080}],
        "resources": {"limits": {"nvidia.com/gpu": "8"}}});
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "large", "namespace": NAMESPACE},
        "spec": {"engine": {"leader": {"runner": runner}, "worker": {"size": nodes - 1, "runner": runner}}}})
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_true = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    pod["metadata"]["deletionTimestamp"].is_null() && conditions.into_iter().flatten().any(is_true)
}

fn ready_groups(pods: &Objects) -> ReadyGroups {
    let mut groups = ReadyGroups::new();
    for pod in pods.values().filter(|pod| is_ready(pod)) {
        let index = pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"].as_str().unwrap();
        let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
        groups.entry(index.to_owned()).or_insert((image.to_owned(), 0)).1 += 1;
    }
    groups
}

fn uids(pods: &Objects) -> BTreeSet<String> {
    pods.values().map(|pod| pod["metadata"]["uid"].to_string()).collect()
}

/// Returns whether the Service of the engine has an endpoint that gets requests.
fn has_endpoint(slices: &Objects) -> bool {
    let of_engine =
        slices.values().filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == "large-engine");
    let mut endpoints = of_engine.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    endpoints.any(|endpoint| endpoint["conditions"]["ready"] == true)
}

/// Applies `service` and waits until only one group of this size and image remains, which is ready. The old Pods stop only after
/// the additional group is ready, and the Service of the engine always has an endpoint.
async fn update(test_cluster: &TestCluster, image: &str, nodes: usize) {
    let old_pods = test_cluster.wait_for("Pods", PODS, NAMESPACE, |objects| !objects.is_empty()).await;
    let old_uids = uids(&old_pods);
    let new_group = (image.to_owned(), nodes);
    let complete = async {
        test_cluster.apply(&service(image, nodes)).await;
        test_cluster
            .wait_for("the additional group beside the old one", PODS, NAMESPACE, |pods| {
                let all_old_remain = uids(pods).is_superset(&old_uids);
                let is_additional_ready = ready_groups(pods).get("1") == Some(&new_group);
                assert!(all_old_remain || is_additional_ready, "the old group stops first: {:?}", ready_groups(pods));
                all_old_remain && is_additional_ready
            })
            .await;
        let expected = ReadyGroups::from([("0".to_owned(), new_group.clone())]);
        test_cluster
            .wait_for("only the updated group", PODS, NAMESPACE, |pods| {
                pods.len() == nodes && ready_groups(pods) == expected
            })
            .await;
        test_cluster.wait_for_condition(OME, NAMESPACE, "large", ("Ready", "True"), "").await;
    };
    let interrupted =
        test_cluster.wait_for("an interruption", ENDPOINT_SLICES, NAMESPACE, |slices| !has_endpoint(slices));
    tokio::select! {
        () = complete => {}
        slices = interrupted => panic!("no endpoint: {slices:?}"),
    }
}

/// The group grows with a new image, gets another image, and shrinks.
pub(super) async fn additional_group_serves_during_update(test_cluster: &TestCluster) {
    test_cluster.namespace(NAMESPACE).await;
    test_cluster.cluster.apply(&realcluster::gpu_nodes(0, 10)).await.unwrap();
    test_cluster.apply(&service("vllm/vllm-openai:v0.11.0", 2)).await;
    test_cluster.wait_for_condition(OME, NAMESPACE, "large", ("Ready", "True"), "").await;
    test_cluster.wait_for("an endpoint", ENDPOINT_SLICES, NAMESPACE, has_endpoint).await;
    update(test_cluster, "vllm/vllm-openai:v0.12.0", 4).await;
    let groups = test_cluster.wait_for("the group", GROUPS, NAMESPACE, |objects| objects.contains_key("large")).await;
    assert_eq!(object_named(&groups, "large")["spec"]["subGroupPolicy"][0]["subGroupSize"], 4);
    update(test_cluster, "vllm/vllm-openai:v0.13.0", 4).await;
    update(test_cluster, "vllm/vllm-openai:v0.13.0", 2).await;
    test_cluster.delete(OME, NAMESPACE, "large").await;
    test_cluster.wait_for_deletion(NAMESPACE, &[OME, SETS, STATEFUL_SETS, GROUPS, PODS, SERVICES]).await;
}
