//! Compares the scheduler with kube-scheduler in the same scenarios.
//!
//! A scenario has the nodes `a` and `b` in zone 1, `c` in zone 2 and `d` without zone, bound Pods, and one pending Pod.
//! Its outcome is unique: the only suitable node, or the reason why no node is suitable.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use realcluster::{Binaries, Components, RealCluster};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Scenario with its expected outcome.
struct Scenario {
    name: &'static str,
    /// Bound Pods: node, app label and additional spec fields.
    bound_pods: Vec<(&'static str, &'static str, Value)>,
    /// Spec of the pending Pod, which has the label `app: web`.
    pending_spec: Value,
    /// Expected outcome: `on a`, or the message of `PodScheduled`.
    expected: &'static str,
}

fn scenarios() -> Vec<Scenario> {
    let scenario = |name, bound_pods: &[(&'static str, &'static str, Value)], pending_spec, expected| Scenario {
        name,
        bound_pods: bound_pods.to_vec(),
        pending_spec,
        expected,
    };
    let web = |node| (node, "web", json!({}));
    let web_on_all_nodes = [web("a"), web("b"), web("c"), web("d")];
    vec![
        scenario("affinity to a host", &[("b", "db", json!({}))], affinity_to(term("host", "db")), "on b"),
        scenario("affinity to a zone", &[("c", "db", json!({}))], affinity_to(term("zone", "db")), "on c"),
        scenario(
            "affinity without a match",
            &[],
            affinity_to(term("host", "db")),
            "0/4 nodes are available: 4 node(s) didn't match pod affinity rules. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.",
        ),
        scenario("anti-affinity to two zones", &[web("a"), web("c")], anti_affinity_to(term("zone", "web")), "on d"),
        scenario(
            "anti-affinity to all hosts",
            &web_on_all_nodes,
            anti_affinity_to(term("host", "web")),
            "0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules. preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.",
        ),
        scenario(
            "existing anti-affinity",
            &[("a", "db", anti_affinity_to(term("zone", "web"))), ("d", "db", anti_affinity_to(term("host", "web")))],
            json!({}),
            "on c",
        ),
        scenario(
            "existing anti-affinity on all nodes",
            &["a", "b", "c", "d"].map(|node| (node, "db", anti_affinity_to(term("host", "web")))),
            json!({}),
            "0/4 nodes are available: 4 node(s) didn't satisfy existing pods anti-affinity rules. preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.",
        ),
        scenario("spread over zones", &[web("a")], spread(json!({})), "on c"),
        scenario(
            "spread with an unreachable minimum of domains",
            &[web("a"), web("c")],
            spread(json!({"minDomains": 3})),
            "0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label), 3 node(s) didn't match pod topology spread constraints. preemption: 0/4 nodes are available: 1 Preemption is not helpful for scheduling, 3 No preemption victims found for incoming pod.",
        ),
        scenario(
            "spread that ignores the node selector",
            &[web("a")],
            merge_fields(spread(json!({"nodeAffinityPolicy": "Ignore"})), json!({"nodeSelector": {"zone": "1"}})),
            "0/4 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, 2 node(s) didn't match pod topology spread constraints. preemption: 0/4 nodes are available: 2 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.",
        ),
        scenario(
            "spread that honors the node selector",
            &[web("a"), ("b", "db", port(80))],
            merge_fields(spread(json!({})), merge_fields(port(80), json!({"nodeSelector": {"zone": "1"}}))),
            "on a",
        ),
        scenario("free host port", &["a", "b", "d"].map(|node| (node, "db", port(80))), port(80), "on c"),
        scenario(
            "no free host port",
            &["a", "b", "c", "d"].map(|node| (node, "db", port(80))),
            port(80),
            "0/4 nodes are available: 4 node(s) didn't have free ports for the requested pod ports. preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.",
        ),
        scenario("least allocated node", &["a", "b", "d"].map(|node| (node, "db", cpu("4"))), json!({}), "on c"),
        scenario(
            "insufficient CPU",
            &[],
            cpu("9"),
            "0/4 nodes are available: 4 Insufficient cpu. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.",
        ),
        scenario(
            "missing claim",
            &[],
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "weights"}}]}),
            "0/4 nodes are available: persistentvolumeclaim \"weights\" not found. not found",
        ),
        scenario(
            "scheduling gate",
            &[],
            json!({"schedulingGates": [{"name": "example.com/wait"}]}),
            "Scheduling is blocked due to non-empty scheduling gates",
        ),
        scenario("preferred affinity", &[web("b"), ("b", "db", cpu("2"))], preferred("podAffinity"), "on b"),
        scenario("preferred anti-affinity", &["a", "b", "c"].map(web), preferred("podAntiAffinity"), "on d"),
    ]
}

fn term(key: &str, app: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

fn affinity_to(term: Value) -> Value {
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn anti_affinity_to(term: Value) -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn preferred(affinity: &str) -> Value {
    let terms = json!([{"weight": 100, "podAffinityTerm": term("host", "web")}]);
    json!({"affinity": {affinity: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn spread(additional_fields: Value) -> Value {
    let constraint = merge_fields(term("zone", "web"), json!({"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}));
    json!({"topologySpreadConstraints": [merge_fields(constraint, additional_fields)]})
}

fn port(number: u16) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": number, "hostPort": number}]}]})
}

fn cpu(amount: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": amount}}}]})
}

/// Merges two objects; fields of `overrides` replace those of `base`.
fn merge_fields(mut base: Value, overrides: Value) -> Value {
    base.as_object_mut().unwrap().extend(overrides.as_object().unwrap().clone());
    base
}

fn pod(name: &str, app: &str, spec: Value) -> Pod {
    let base_spec = json!({"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0});
    let metadata = json!({"name": name, "labels": {"app": app}});
    serde_json::from_value(json!({"metadata": metadata, "spec": merge_fields(base_spec, spec)})).unwrap()
}

async fn create_nodes(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    for (name, zone) in [("a", Some("1")), ("b", Some("1")), ("c", Some("2")), ("d", None)] {
        let mut labels = json!({"host": name});
        if let Some(zone) = zone {
            labels["zone"] = json!(zone);
        }
        let resources = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
        let status = json!({"capacity": resources, "allocatable": resources});
        let node = json!({"metadata": {"name": name, "labels": labels}, "status": status});
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let merge = PatchParams::default();
        nodes.patch_status(name, &merge, &Patch::Merge(json!({"status": status}))).await.unwrap();
        // New nodes have the taint `not-ready`, which kube-controller-manager would remove; it does not run here.
        nodes.patch(name, &merge, &Patch::Merge(json!({"spec": {"taints": null}}))).await.unwrap();
    }
}

/// Time limit for the expected outcome.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a scenario and returns the expected outcome, or the last one observed.
async fn run_scenario(client: &Client, scenario: &Scenario) -> String {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let create = async |name: &str, app: &str, spec| {
        pods.create(&PostParams::default(), &pod(name, app, spec)).await.unwrap();
    };
    for (index, (node, app, spec)) in scenario.bound_pods.iter().enumerate() {
        create(&format!("bound-{index}"), app, merge_fields(spec.clone(), json!({"nodeName": node}))).await;
    }
    create("new", "web", scenario.pending_spec.clone()).await;
    let mut last = String::new();
    let mut changes = watcher(pods.clone(), watcher::Config::default().fields("metadata.name=new"))
        .default_backoff()
        .applied_objects()
        .boxed();
    let waiting = async {
        // Stop once the Pod is bound, because a binding is final; a message may still change.
        while last != scenario.expected && !last.starts_with("on ") {
            let Some(Ok(pod)) = changes.next().await else { continue };
            last = outcome(&pod).unwrap_or_default();
        }
    };
    // A decision that is based on Pods of the previous scenario is retried once those Pods are deleted.
    let _ = tokio::time::timeout(OUTCOME_TIMEOUT, waiting).await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete_collection(&now, &kube::api::ListParams::default()).await.unwrap();
    last
}

fn outcome(pod: &Pod) -> Option<String> {
    if let Some(node) = pod.spec.as_ref()?.node_name.as_ref() {
        return Some(format!("on {node}"));
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "PodScheduled")?.message.clone()
}

/// Runs all scenarios, each up to `tries` times.
async fn compare(client: &Client, tries: usize) {
    create_nodes(client).await;
    let mut differences = String::new();
    for scenario in scenarios() {
        let mut observed = String::new();
        for _ in 0..tries {
            observed = run_scenario(client, &scenario).await;
            if observed == scenario.expected {
                break;
            }
        }
        if observed != scenario.expected {
            differences += &format!("\n{}\n  expected {}\n  observed {observed}\n", scenario.name, scenario.expected);
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[tokio::test]
async fn schedules_like_kube_scheduler() {
    let (server, stop) = (crate::server(), CancellationToken::new());
    let scheduler = tokio::spawn(embedded::run_scheduler(server.clone(), stop.clone()));
    compare(&crate::client(&server), 1).await;
    stop.cancel();
    scheduler.await.unwrap();
}

#[tokio::test]
#[ignore = "needs a kube-scheduler: cargo xtask test --with realcluster"]
async fn live() {
    let directory = tempfile::Builder::new().prefix("ostler-scheduling-").tempdir().unwrap().keep();
    let components = Components::minimal().with_scheduler();
    let cluster = RealCluster::start_components(components, Binaries::find_for(components).unwrap(), directory.clone())
        .await
        .unwrap();
    // kube-scheduler has separate watches for Nodes and Pods and may decide before it has observed the entire scenario.
    compare(&cluster.client, 3).await;
    drop(cluster);
    std::fs::remove_dir_all(directory).unwrap();
}
