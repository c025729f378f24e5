//! Role-based services with LeaderWorkerSet and Volcano: Pod templates, names, partial deployment, recovery of Pods, and the fields
//! of the PodGroup that the operator does not own.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::capacity::{cordon, uids};
use super::gangs::{bound_pods_per_replica, role, wait_for_scheduling_cycle};
use super::test_cluster::{
    GROUPS, Objects, PODS, ROLES, SERVICES, SETS, STATEFUL_SETS, TestCluster, find_condition, object_named,
};

const NAMESPACE: &str = "roles";
const NAME: &str = "qwen-inference";
const NODE_COUNT: usize = 10;
const DEFINITIONS: (&str, &str) = ("customresourcedefinitions.apiextensions.k8s.io", "v1");
/// Size of the annotation with which `kubectl apply` stores a whole object.
const MAX_DEFINITION_BYTES: usize = 256 * 1024;

fn service(name: &str, role: &Value) -> Value {
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"roles": [role]}})
}

/// Returns whether a value has all fields of another one. LeaderWorkerSet adds empty fields.
fn contains(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::Object(fields), Value::Object(parts)) => {
            parts.iter().all(|(name, part)| fields.get(name).is_some_and(|value| contains(value, part)))
        }
        (Value::Array(items), Value::Array(parts)) => {
            items.len() == parts.len() && items.iter().zip(parts).all(|(item, part)| contains(item, part))
        }
        _ => value == part,
    }
}

/// `hostnameOverride` and `restartPolicyRules` are fields of Kubernetes 1.34, newer than the types that ostler uses.
// spec: TOP-8
pub(super) async fn pod_template_is_passed_unchanged(test_cluster: &TestCluster) {
    test_cluster.namespace(NAMESPACE).await;
    let template = json!({
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}],
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "hostnameOverride": "engine",
        "initContainers": [{"name": "fetch", "image": "example.com/fetch:1", "command": ["fetch"],
            "volumeMounts": [{"name": "shm", "mountPath": "/cache"}]}],
        "containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.11.0", "args": ["--model", "Qwen/Qwen3-8B"],
            "env": [{"name": "HF_HOME", "value": "/cache"}], "volumeMounts": [{"name": "shm", "mountPath": "/cache"}],
            "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
            "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    });
    let role = json!({"name": "inference", "componentType": "worker", "template": {"spec": template}});
    let stored = test_cluster.apply(&service("free-form", &role)).await;
    assert_eq!(stored["spec"]["roles"][0]["template"]["spec"], template);
    test_cluster.wait_for_condition(ROLES, NAMESPACE, "free-form", ("Ready", "True"), "").await;
    let set = test_cluster.get(SETS, NAMESPACE, "free-form-inference-0").await;
    let applied = &set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"];
    assert!(contains(applied, &template), "{applied:#}");

    let definition = test_cluster.get(DEFINITIONS, "", ROLES.0).await;
    let spec = definition["spec"].to_string();
    assert!(spec.len() < MAX_DEFINITION_BYTES, "{} bytes", spec.len());
    for field in ["tolerations", "volumes", "affinity"] {
        assert!(!spec.contains(&format!("{field:?}")), "the definition embeds the schema of {field}");
    }
    test_cluster.delete(ROLES, NAMESPACE, "free-form").await;
    test_cluster.wait_for_deletion(NAMESPACE, &[ROLES, SETS, STATEFUL_SETS, PODS, SERVICES]).await;
}

/// Two replicas of four nodes with eight GPUs each, on 32, 56 and 64 GPUs.
// spec: TOP-41
// spec: TOP-68
pub(super) async fn one_complete_replica_runs_if_two_do_not_fit(test_cluster: &TestCluster) {
    test_cluster.cluster.apply(&realcluster::gpu_nodes(0, NODE_COUNT)).await.unwrap();
    for number in 4..NODE_COUNT {
        cordon(test_cluster, &format!("gpu-{number}"), true).await;
    }
    test_cluster.apply(&service(NAME, &role("inference", "worker", 2, 4, 8))).await;
    let is_complete = |objects: &Objects| bound_pods_per_replica(objects).into_values().collect::<Vec<_>>() == [4];
    let mut replica = BTreeMap::new();
    for nodes in [4, 7] {
        for number in 4..nodes {
            cordon(test_cluster, &format!("gpu-{number}"), false).await;
        }
        let description = format!("one replica on {} GPUs", nodes * 8);
        test_cluster.wait_for(&description, PODS, NAMESPACE, is_complete).await;
        wait_for_scheduling_cycle(test_cluster, nodes - 1).await;
        let pods = test_cluster.wait_for("eight Pods", PODS, NAMESPACE, |objects| objects.len() == 8).await;
        assert!(is_complete(&pods), "{:?} after a complete scheduling cycle", bound_pods_per_replica(&pods));
        assert!(replica.is_empty() || replica == bound_pods_per_replica(&pods), "the replica is not moved");
        replica = bound_pods_per_replica(&pods);
    }
    let message = "Scheduled replicas: inference 1 of 2; ";
    test_cluster
        .wait_for(message, ROLES, NAMESPACE, |objects| {
            find_condition(object_named(objects, NAME), "GangScheduled").is_some_and(|condition| {
                condition["reason"] == "PartialCapacity" && condition["message"].as_str().unwrap().starts_with(message)
            })
        })
        .await;
    cordon(test_cluster, "gpu-7", false).await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    let pods = test_cluster.wait_for("eight Pods", PODS, NAMESPACE, |objects| objects.len() == 8).await;
    assert_eq!(bound_pods_per_replica(&pods).into_values().collect::<Vec<_>>(), [4, 4]);
    let names = |index: usize| ["", "-1", "-2", "-3"].map(|worker| format!("{NAME}-inference-{index}-0{worker}"));
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), [names(0), names(1)].concat());
    let nodes: BTreeSet<&str> = pods.values().map(|pod| pod["spec"]["nodeName"].as_str().unwrap()).collect();
    assert_eq!(nodes.len(), 8, "each Pod has a node of its own");
}

/// LeaderWorkerSet recreates the group of a deleted worker. The operator writes neither its objects nor Pods.
// spec: TOP-77
pub(super) async fn deleted_worker_restarts_its_group(test_cluster: &TestCluster) {
    let old = test_cluster.wait_for("eight Pods", PODS, NAMESPACE, |objects| objects.len() == 8).await;
    let sets = identities(test_cluster).await;
    let group = test_cluster.get(GROUPS, NAMESPACE, NAME).await;
    let leader = format!("{NAME}-inference-0-0");
    test_cluster.delete(PODS, NAMESPACE, &format!("{leader}-1")).await;
    let is_replaced = |pods: &Objects, name: &str| uids(pods).get(name).is_some_and(|uid| *uid != uids(&old)[name]);
    let is_recreated = |pods: &Objects| {
        pods.len() == 8
            && old.keys().all(|name| is_replaced(pods, name) == name.starts_with(&leader))
            && bound_pods_per_replica(pods).into_values().eq([4, 4])
    };
    test_cluster.wait_for("the group to be recreated, and no other", PODS, NAMESPACE, is_recreated).await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    assert_eq!(identities(test_cluster).await, sets);
    let group_after = test_cluster.get(GROUPS, NAMESPACE, NAME).await;
    assert_eq!((&group_after["metadata"]["uid"], &group_after["spec"]), (&group["metadata"]["uid"], &group["spec"]));

    let user = &test_cluster.account.as_ref().unwrap().user;
    let requests = realcluster::audited_requests(&test_cluster.cluster.audit_log(), user, Timestamp::MIN).unwrap();
    let reads = ["get", "list", "watch"];
    let is_write_of_pods = |request: &&realcluster::AuditedRequest| {
        request.resource.split('/').next() == Some("pods") && !reads.contains(&&*request.verb)
    };
    let writes: Vec<_> = requests.iter().filter(is_write_of_pods).collect();
    assert!(writes.is_empty(), "the operator writes Pods: {writes:?}");
}

/// Returns UID and generation of the LeaderWorkerSets, by name.
async fn identities(test_cluster: &TestCluster) -> BTreeMap<String, [Value; 2]> {
    let sets = test_cluster.wait_for("two sets", SETS, NAMESPACE, |objects| objects.len() == 2).await;
    let identity = |set: Value| ["uid", "generation"].map(|field| set["metadata"][field].clone());
    sets.into_iter().map(|(name, set)| (name, identity(set))).collect()
}

/// The PodGroup has no status subresource: status and defaulted fields are part of the object that the operator updates.
// spec: TOP-59
pub(super) async fn updates_of_the_group_retain_fields_of_volcano(test_cluster: &TestCluster) {
    let is_running = |group: &Value| group["status"]["phase"] == "Running" && group["spec"]["queue"] == "default";
    let groups = test_cluster
        .wait_for("the status of Volcano", GROUPS, NAMESPACE, |objects| is_running(object_named(objects, NAME)))
        .await;
    assert_eq!(groups[NAME]["spec"]["minMember"], 4);
    for (change, min_member) in [
        (json!({"spec": {"schedulingStrategy": {"gangPolicy": "All"}}}), 8),
        (json!({"spec": {"roles": [role("inference", "worker", 1, 4, 8)]}}), 4),
    ] {
        test_cluster.patch(ROLES, NAMESPACE, NAME, &change).await;
        let groups = test_cluster
            .wait_for(&format!("minMember {min_member}"), GROUPS, NAMESPACE, |objects| {
                object_named(objects, NAME)["spec"]["minMember"] == min_member
            })
            .await;
        assert!(is_running(&groups[NAME]), "{:#}", groups[NAME]);
    }
    let group = test_cluster.get(GROUPS, NAMESPACE, NAME).await;
    let fields_of = |manager: &Value| manager["fieldsV1"]["f:spec"].as_object().cloned().unwrap_or_default();
    for manager in group["metadata"]["managedFields"].as_array().unwrap() {
        if manager["manager"] == operator::FIELD_MANAGER {
            assert!(manager["fieldsV1"]["f:status"].is_null(), "{manager:#}");
            assert!(!fields_of(manager).contains_key("f:queue"), "{manager:#}");
        }
    }
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    for number in 8..NODE_COUNT {
        cordon(test_cluster, &format!("gpu-{number}"), false).await;
    }
    test_cluster.delete(ROLES, NAMESPACE, NAME).await;
    test_cluster.wait_for_deletion(NAMESPACE, &[ROLES, SETS, STATEFUL_SETS, GROUPS, PODS, SERVICES]).await;
}
