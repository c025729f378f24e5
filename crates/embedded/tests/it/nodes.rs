//! Nodes that are lost, cordoned or deleted, Pods that are evicted, and Pods that make room for others.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not marked as tests

use std::time::Duration;

use embedded::Server;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::EvictParams;
use serde_json::{Value, json};

use crate::workloads::{World, condition, deployment, is_ready, pod, settled};

fn patched(server: &Server, node: &str, change: impl Fn(&mut Value)) {
    let mut changed = server.get("nodes", "", node).unwrap().as_ref().clone();
    change(&mut changed);
    server.update("nodes", changed).unwrap();
}

fn taints(server: &Server, node: &str) -> Vec<String> {
    let node = server.get("nodes", "", node).unwrap();
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.iter().map(|taint| format!("{}:{}", taint["key"], taint["effect"]).replace('"', "")).collect()
}

fn on(server: &Server, node: &str) -> usize {
    server.list("pods").iter().filter(|pod| pod["spec"]["nodeName"] == node).count()
}

fn events(server: &Server, reason: &str) -> Vec<String> {
    let all = server.list("events").into_iter().filter(|event| event["reason"] == reason);
    all.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_renewing_its_lease_loses_its_pods() {
    let world = World::new(&[0, 0]);
    world.server.create("deployments.apps", deployment(2, "one")).unwrap();
    world.until("two ready pods", |server| settled(server, 2)).await;
    let lost = world.pods()[0]["spec"]["nodeName"].as_str().unwrap().to_owned();
    let other = if lost == "n0" { "n1" } else { "n0" };
    let lease = json!({
        "metadata": {"name": lost, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": lost, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    world.server.create("leases.coordination.k8s.io", lease).unwrap();
    world.until("it is tainted", |server| taints(server, &lost).len() == 2).await;
    let expect = ["NoSchedule", "NoExecute"].map(|effect| format!("node.kubernetes.io/unreachable:{effect}"));
    assert_eq!(taints(&world.server, &lost), expect);
    let node = world.server.get("nodes", "", &lost).unwrap();
    assert_eq!(condition(&node, "Ready")["status"], "Unknown");
    let begun = tokio::time::Instant::now();
    world
        .until("its Pods serve nobody", |server| {
            server.list("pods").iter().filter(|pod| pod["spec"]["nodeName"] == *lost).all(|pod| !is_ready(pod))
        })
        .await;
    world.until("they are replaced", |server| settled(server, 2) && on(server, other) == 2).await;
    let waited = begun.elapsed().as_secs();
    assert!((300..302).contains(&waited), "five minutes are tolerated, not {waited} s");
    assert!(events(&world.server, "TaintManagerEviction")[0].starts_with("Marking for deletion Pod default/web-"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_node_go_and_are_replaced() {
    let world = World::new(&[0, 0]);
    world.server.create("deployments.apps", deployment(2, "one")).unwrap();
    world.until("two ready pods", |server| settled(server, 2)).await;
    let gone = world.pods()[0]["spec"]["nodeName"].as_str().unwrap().to_owned();
    world.server.delete("nodes", "", &gone, None).unwrap();
    world.until("they are elsewhere", |server| on(server, &gone) == 0 && settled(server, 2)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_is_not_tolerated_sends_away_and_a_toleration_gives_time() {
    let world = World::new(&[0]);
    let tolerant = json!([{"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
    let spec = |tolerations: Value| json!({"containers": [{"name": "c", "image": "x"}], "tolerations": tolerations});
    world.server.create("pods", pod("plain", spec(json!([])))).unwrap();
    world.server.create("pods", pod("tolerant", spec(tolerant))).unwrap();
    world.until("both run", |server| server.list("pods").iter().all(|pod| is_ready(pod))).await;
    let begun = tokio::time::Instant::now();
    let now = "2026-01-01T00:00:00Z";
    patched(&world.server, "n0", |node| {
        node["spec"]["taints"] = json!([{"key": "gone", "effect": "NoExecute", "timeAdded": now}]);
    });
    world.until("one is gone", |server| server.list("pods").len() == 1).await;
    assert_eq!(world.pods()[0]["metadata"]["name"], "tolerant");
    world.until("the other, too", |server| server.list("pods").is_empty()).await;
    assert!((55..=61).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_takes_nobody_and_keeps_whom_it_has() {
    let world = World::new(&[0]);
    let spec = || json!({"containers": [{"name": "c", "image": "x"}]});
    world.server.create("pods", pod("before", spec())).unwrap();
    world.until("it runs", |server| is_ready(&server.list("pods")[0])).await;
    patched(&world.server, "n0", |node| node["spec"]["unschedulable"] = json!(true));
    world
        .until("it is tainted", |server| taints(server, "n0") == ["node.kubernetes.io/unschedulable:NoSchedule"])
        .await;
    world.server.create("pods", pod("later", spec())).unwrap();
    let later = |server: &Server| server.get("pods", "default", "later").unwrap();
    world.until("it waits", |server| condition(&later(server), "PodScheduled")["reason"] == "Unschedulable").await;
    assert!(is_ready(&world.server.get("pods", "default", "before").unwrap()));
    patched(&world.server, "n0", |node| {
        node["spec"]["unschedulable"] = Value::Null;
    });
    world.until("it runs", |server| is_ready(&later(server))).await;
    assert!(taints(&world.server, "n0").is_empty());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_respects_the_budget() {
    let world = World::new(&[0]);
    world.server.create("deployments.apps", deployment(2, "one")).unwrap();
    let budget = json!({"metadata": {"name": "web", "namespace": "default"},
                        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}});
    world.server.create("poddisruptionbudgets.policy", budget).unwrap();
    let budget = |server: &Server| server.get("poddisruptionbudgets.policy", "default", "web").unwrap();
    let allowed = |server: &Server, count: i64| {
        budget(server)["status"]["disruptionsAllowed"] == count && budget(server)["status"]["currentHealthy"] == 2
    };
    world.until("two ready pods", |server| settled(server, 2) && allowed(server, 0)).await;
    let pods: Api<Pod> = Api::namespaced(crate::client(&world.server), "default");
    let name = world.pods()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let refused = pods.evict(&name, &EvictParams::default()).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
    let cause = &status.details.unwrap().causes[0];
    assert_eq!(cause.message, "The disruption budget web needs 2 healthy pods and has 2 currently");
    let mut fewer = budget(&world.server).as_ref().clone();
    fewer["spec"]["minAvailable"] = json!("50%");
    world.server.update("poddisruptionbudgets.policy", fewer).unwrap();
    world.until("one may go", |server| allowed(server, 1)).await;
    pods.evict(&name, &EvictParams::default()).await.unwrap();
    world.until("it is replaced", |server| server.get("pods", "default", &name).is_none() && settled(server, 2)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_lower_priority_makes_room() {
    let world = World::new(&[2]);
    let class = json!({"metadata": {"name": "urgent"}, "value": 1000});
    world.server.create("priorityclasses.scheduling.k8s.io", class).unwrap();
    let spec = |class: Option<&str>| {
        json!({"priorityClassName": class, "terminationGracePeriodSeconds": 9,
               "containers": [{"name": "c", "image": "stubborn", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]})
    };
    world.server.create("pods", pod("old", spec(None))).unwrap();
    world.until("it runs", |server| is_ready(&server.list("pods")[0])).await;
    let begun = tokio::time::Instant::now();
    world.server.create("pods", pod("new", spec(Some("urgent")))).unwrap();
    let new = |server: &Server| server.get("pods", "default", "new").unwrap();
    world.until("it is promised the room", |server| new(server)["status"]["nominatedNodeName"] == "n0").await;
    let message = condition(&new(&world.server), "PodScheduled")["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), "{message}");
    let old = world.server.get("pods", "default", "old").unwrap();
    assert_eq!(condition(&old, "DisruptionTarget")["reason"], "PreemptionByScheduler");
    world.until("it runs", |server| is_ready(&new(server))).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(9), "the victim has its grace");
    let uid = new(&world.server)["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(events(&world.server, "Preempted"), [format!("Preempted by pod {uid} on node n0")]);
    world.end().await;
}
