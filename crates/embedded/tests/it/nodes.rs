//! Tests of lost, cordoned and deleted nodes, of evictions and of preemption.

#![allow(clippy::unwrap_used, clippy::panic)] // clippy exempts test functions but not test helpers

use std::time::Duration;

use embedded::Server;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::EvictParams;
use serde_json::{Value, json};

use crate::workloads::{TestCluster, condition, deployment, is_ready, is_rolled_out, pod};

fn update_node(server: &Server, node: &str, change: impl Fn(&mut Value)) {
    let mut changed = server.get("nodes", "", node).unwrap().as_ref().clone();
    change(&mut changed);
    server.update("nodes", changed).unwrap();
}

fn taints(server: &Server, node: &str) -> Vec<String> {
    let node = server.get("nodes", "", node).unwrap();
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.iter().map(|taint| format!("{}:{}", taint["key"], taint["effect"]).replace('"', "")).collect()
}

fn pods_on_node(server: &Server, node: &str) -> usize {
    server.list("pods").iter().filter(|pod| pod["spec"]["nodeName"] == node).count()
}

fn events(server: &Server, reason: &str) -> Vec<String> {
    let all = server.list("events").into_iter().filter(|event| event["reason"] == reason);
    all.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn node_without_lease_renewal_loses_its_pods() {
    let cluster = TestCluster::new(&[0, 0]);
    cluster.server.create("deployments.apps", deployment(2, "one")).unwrap();
    cluster.wait_for("two ready pods", |server| is_rolled_out(server, 2)).await;
    let lost_node = cluster.pods()[0]["spec"]["nodeName"].as_str().unwrap().to_owned();
    let other = if lost_node == "n0" { "n1" } else { "n0" };
    let lease = json!({
        "metadata": {"name": lost_node, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": lost_node, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    cluster.server.create("leases.coordination.k8s.io", lease).unwrap();
    cluster.wait_for("the node is tainted", |server| taints(server, &lost_node).len() == 2).await;
    let expected_taints = ["NoSchedule", "NoExecute"].map(|effect| format!("node.kubernetes.io/unreachable:{effect}"));
    assert_eq!(taints(&cluster.server, &lost_node), expected_taints);
    let node = cluster.server.get("nodes", "", &lost_node).unwrap();
    assert_eq!(condition(&node, "Ready")["status"], "Unknown");
    let start = tokio::time::Instant::now();
    cluster
        .wait_for("its Pods are not ready", |server| {
            server.list("pods").iter().filter(|pod| pod["spec"]["nodeName"] == *lost_node).all(|pod| !is_ready(pod))
        })
        .await;
    cluster
        .wait_for("the Pods are replaced", |server| is_rolled_out(server, 2) && pods_on_node(server, other) == 2)
        .await;
    let elapsed_seconds = start.elapsed().as_secs();
    assert!((300..302).contains(&elapsed_seconds), "Pods are evicted after 300 s, not {elapsed_seconds} s");
    assert!(events(&cluster.server, "TaintManagerEviction")[0].starts_with("Marking for deletion Pod default/web-"));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_deleted_node_are_replaced() {
    let cluster = TestCluster::new(&[0, 0]);
    cluster.server.create("deployments.apps", deployment(2, "one")).unwrap();
    cluster.wait_for("two ready pods", |server| is_rolled_out(server, 2)).await;
    let deleted = cluster.pods()[0]["spec"]["nodeName"].as_str().unwrap().to_owned();
    cluster.server.delete("nodes", "", &deleted, None).unwrap();
    cluster
        .wait_for("the Pods run on another node", |server| {
            pods_on_node(server, &deleted) == 0 && is_rolled_out(server, 2)
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_execute_taint_evicts_after_toleration_seconds() {
    let cluster = TestCluster::new(&[0]);
    let tolerant = json!([{"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
    let spec = |tolerations: Value| json!({"containers": [{"name": "c", "image": "x"}], "tolerations": tolerations});
    cluster.server.create("pods", pod("plain", spec(json!([])))).unwrap();
    cluster.server.create("pods", pod("tolerant", spec(tolerant))).unwrap();
    cluster.wait_for("both Pods are ready", |server| server.list("pods").iter().all(|pod| is_ready(pod))).await;
    let start = tokio::time::Instant::now();
    let now = "2026-01-01T00:00:00Z";
    update_node(&cluster.server, "n0", |node| {
        node["spec"]["taints"] = json!([{"key": "gone", "effect": "NoExecute", "timeAdded": now}]);
    });
    cluster.wait_for("the Pod without toleration is evicted", |server| server.list("pods").len() == 1).await;
    assert_eq!(cluster.pods()[0]["metadata"]["name"], "tolerant");
    cluster.wait_for("the tolerating Pod is evicted", |server| server.list("pods").is_empty()).await;
    assert!((55..=61).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cordoned_node_retains_its_pods() {
    let cluster = TestCluster::new(&[0]);
    let spec = || json!({"containers": [{"name": "c", "image": "x"}]});
    cluster.server.create("pods", pod("before", spec())).unwrap();
    cluster.wait_for("the Pod is ready", |server| is_ready(&server.list("pods")[0])).await;
    update_node(&cluster.server, "n0", |node| node["spec"]["unschedulable"] = json!(true));
    cluster
        .wait_for("the node is tainted", |server| {
            taints(server, "n0") == ["node.kubernetes.io/unschedulable:NoSchedule"]
        })
        .await;
    cluster.server.create("pods", pod("later", spec())).unwrap();
    let later_pod = |server: &Server| server.get("pods", "default", "later").unwrap();
    cluster
        .wait_for("the Pod is unschedulable", |server| {
            condition(&later_pod(server), "PodScheduled")["reason"] == "Unschedulable"
        })
        .await;
    assert!(is_ready(&cluster.server.get("pods", "default", "before").unwrap()));
    update_node(&cluster.server, "n0", |node| {
        node["spec"]["unschedulable"] = Value::Null;
    });
    cluster.wait_for("the Pod is ready", |server| is_ready(&later_pod(server))).await;
    assert!(taints(&cluster.server, "n0").is_empty());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn eviction_respects_disruption_budget() {
    let cluster = TestCluster::new(&[0]);
    cluster.server.create("deployments.apps", deployment(2, "one")).unwrap();
    let budget = json!({"metadata": {"name": "web", "namespace": "default"},
                        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}});
    cluster.server.create("poddisruptionbudgets.policy", budget).unwrap();
    let budget = |server: &Server| server.get("poddisruptionbudgets.policy", "default", "web").unwrap();
    let allowed = |server: &Server, count: i64| {
        budget(server)["status"]["disruptionsAllowed"] == count && budget(server)["status"]["currentHealthy"] == 2
    };
    cluster.wait_for("two ready pods", |server| is_rolled_out(server, 2) && allowed(server, 0)).await;
    let pods: Api<Pod> = Api::namespaced(crate::client(&cluster.server), "default");
    let name = cluster.pods()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let rejected = pods.evict(&name, &EvictParams::default()).await;
    let Err(kube::Error::Api(status)) = rejected else { panic!("{rejected:?}") };
    assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
    let cause = &status.details.unwrap().causes[0];
    assert_eq!(cause.message, "The disruption budget web needs 2 healthy pods and has 2 currently");
    let mut updated_budget = budget(&cluster.server).as_ref().clone();
    updated_budget["spec"]["minAvailable"] = json!("50%");
    cluster.server.update("poddisruptionbudgets.policy", updated_budget).unwrap();
    cluster.wait_for("one disruption is allowed", |server| allowed(server, 1)).await;
    pods.evict(&name, &EvictParams::default()).await.unwrap();
    cluster
        .wait_for("the Pod is replaced", |server| {
            server.get("pods", "default", &name).is_none() && is_rolled_out(server, 2)
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn preempts_pod_of_lower_priority() {
    let cluster = TestCluster::new(&[2]);
    let class = json!({"metadata": {"name": "urgent"}, "value": 1000});
    cluster.server.create("priorityclasses.scheduling.k8s.io", class).unwrap();
    let spec = |class: Option<&str>| {
        json!({"priorityClassName": class, "terminationGracePeriodSeconds": 9,
               "containers": [{"name": "c", "image": "stubborn", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]})
    };
    cluster.server.create("pods", pod("old", spec(None))).unwrap();
    cluster.wait_for("the Pod is ready", |server| is_ready(&server.list("pods")[0])).await;
    let start = tokio::time::Instant::now();
    cluster.server.create("pods", pod("new", spec(Some("urgent")))).unwrap();
    let new = |server: &Server| server.get("pods", "default", "new").unwrap();
    cluster.wait_for("the node is nominated", |server| new(server)["status"]["nominatedNodeName"] == "n0").await;
    let message = condition(&new(&cluster.server), "PodScheduled")["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), "{message}");
    let old = cluster.server.get("pods", "default", "old").unwrap();
    assert_eq!(condition(&old, "DisruptionTarget")["reason"], "PreemptionByScheduler");
    cluster.wait_for("the Pod is ready", |server| is_ready(&new(server))).await;
    assert_eq!(start.elapsed(), Duration::from_secs(9), "the victim has its entire grace period");
    let uid = new(&cluster.server)["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(events(&cluster.server, "Preempted"), [format!("Preempted by pod {uid} on node n0")]);
    cluster.stop().await;
}
