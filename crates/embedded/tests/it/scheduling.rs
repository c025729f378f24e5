//! Where one Pod goes among others, by the embedded scheduler and by a kube-scheduler: the same worlds, the same answers.
//!
//! A world is the nodes `a` and `b` in zone 1, `c` in zone 2 and `d` without a zone, Pods that have a node, and one that
//! wants one. Each has one right answer: the only node that fits, or why none does.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use realcluster::{Binaries, Parts, RealCluster};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// One world.
struct World {
    name: &'static str,
    /// Node and labels of Pods that are there, with what else their spec says.
    there: Vec<(&'static str, &'static str, Value)>,
    /// The spec of the Pod that wants a node; it has the label `app: web`.
    wants: Value,
    /// `on a`, or the message of `PodScheduled`.
    answer: &'static str,
}

fn worlds() -> Vec<World> {
    let world = |name, there: &[(&'static str, &'static str, Value)], wants, answer| World {
        name,
        there: there.to_vec(),
        wants,
        answer,
    };
    let web = |node| (node, "web", json!({}));
    let on_all = [web("a"), web("b"), web("c"), web("d")];
    vec![
        world("near a host", &[("b", "db", json!({}))], near(term("host", "db")), "on b"),
        world("near a zone", &[("c", "db", json!({}))], near(term("zone", "db")), "on c"),
        world(
            "near nobody",
            &[],
            near(term("host", "db")),
            "0/4 nodes are available: 4 node(s) didn't match pod affinity rules. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.",
        ),
        world("far from two zones", &[web("a"), web("c")], far(term("zone", "web")), "on d"),
        world(
            "far from all hosts",
            &on_all,
            far(term("host", "web")),
            "0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules. preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.",
        ),
        world(
            "kept away",
            &[("a", "db", far(term("zone", "web"))), ("d", "db", far(term("host", "web")))],
            json!({}),
            "on c",
        ),
        world(
            "kept away from everywhere",
            &["a", "b", "c", "d"].map(|node| (node, "db", far(term("host", "web")))),
            json!({}),
            "0/4 nodes are available: 4 node(s) didn't satisfy existing pods anti-affinity rules. preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.",
        ),
        world("spread over zones", &[web("a")], spread(json!({})), "on c"),
        world(
            "spread over more zones than there are",
            &[web("a"), web("c")],
            spread(json!({"minDomains": 3})),
            "0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label), 3 node(s) didn't match pod topology spread constraints. preemption: 0/4 nodes are available: 1 Preemption is not helpful for scheduling, 3 No preemption victims found for incoming pod.",
        ),
        world(
            "spread where it may not be",
            &[web("a")],
            with(spread(json!({"nodeAffinityPolicy": "Ignore"})), json!({"nodeSelector": {"zone": "1"}})),
            "0/4 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, 2 node(s) didn't match pod topology spread constraints. preemption: 0/4 nodes are available: 2 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.",
        ),
        world(
            "spread where it may be",
            &[web("a"), ("b", "db", port(80))],
            with(spread(json!({})), with(port(80), json!({"nodeSelector": {"zone": "1"}}))),
            "on a",
        ),
        world("a port", &["a", "b", "d"].map(|node| (node, "db", port(80))), port(80), "on c"),
        world(
            "no port",
            &["a", "b", "c", "d"].map(|node| (node, "db", port(80))),
            port(80),
            "0/4 nodes are available: 4 node(s) didn't have free ports for the requested pod ports. preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.",
        ),
        world("the emptiest", &["a", "b", "d"].map(|node| (node, "db", cpu("4"))), json!({}), "on c"),
        world(
            "too much",
            &[],
            cpu("9"),
            "0/4 nodes are available: 4 Insufficient cpu. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.",
        ),
        world(
            "a claim that is not there",
            &[],
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "weights"}}]}),
            "0/4 nodes are available: persistentvolumeclaim \"weights\" not found. not found",
        ),
        world(
            "a gate",
            &[],
            json!({"schedulingGates": [{"name": "example.com/wait"}]}),
            "Scheduling is blocked due to non-empty scheduling gates",
        ),
        world("beside its own kind rather than alone", &[web("b"), ("b", "db", cpu("2"))], wish("podAffinity"), "on b"),
        world("alone rather than beside its own kind", &["a", "b", "c"].map(web), wish("podAntiAffinity"), "on d"),
    ]
}

fn term(key: &str, app: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

fn near(term: Value) -> Value {
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn far(term: Value) -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn wish(side: &str) -> Value {
    let wished = json!([{"weight": 100, "podAffinityTerm": term("host", "web")}]);
    json!({"affinity": {side: {"preferredDuringSchedulingIgnoredDuringExecution": wished}}})
}

fn spread(more: Value) -> Value {
    let constraint = with(term("zone", "web"), json!({"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}));
    json!({"topologySpreadConstraints": [with(constraint, more)]})
}

fn port(number: u16) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": number, "hostPort": number}]}]})
}

fn cpu(amount: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": amount}}}]})
}

/// All fields of both, the second wins.
fn with(mut base: Value, more: Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

fn pod(name: &str, app: &str, spec: Value) -> Pod {
    let usual = json!({"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0});
    let metadata = json!({"name": name, "labels": {"app": app}});
    serde_json::from_value(json!({"metadata": metadata, "spec": with(usual, spec)})).unwrap()
}

async fn make_nodes(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    for (name, zone) in [("a", Some("1")), ("b", Some("1")), ("c", Some("2")), ("d", None)] {
        let mut labels = json!({"host": name});
        if let Some(zone) = zone {
            labels["zone"] = json!(zone);
        }
        let room = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
        let status = json!({"capacity": room, "allocatable": room});
        let node = json!({"metadata": {"name": name, "labels": labels}, "status": status});
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let merge = PatchParams::default();
        nodes.patch_status(name, &merge, &Patch::Merge(json!({"status": status}))).await.unwrap();
        // New nodes are tainted until somebody says that they are ready.
        nodes.patch(name, &merge, &Patch::Merge(json!({"spec": {"taints": null}}))).await.unwrap();
    }
}

/// How long the wanted answer may take to come.
const PATIENCE: Duration = Duration::from_secs(120);

/// Plays one world; the answer that was wanted, or the last that was given.
async fn play(client: &Client, world: &World) -> String {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let make = async |name: &str, app: &str, spec| {
        pods.create(&PostParams::default(), &pod(name, app, spec)).await.unwrap();
    };
    for (at, (node, app, spec)) in world.there.iter().enumerate() {
        make(&format!("there-{at}"), app, with(spec.clone(), json!({"nodeName": node}))).await;
    }
    make("new", "web", world.wants.clone()).await;
    let mut last = String::new();
    let mut changes = watcher(pods.clone(), watcher::Config::default().fields("metadata.name=new"))
        .default_backoff()
        .applied_objects()
        .boxed();
    let waiting = async {
        // A place is for good; a message is not.
        while last != world.answer && !last.starts_with("on ") {
            let Some(Ok(pod)) = changes.next().await else { continue };
            last = answer(&pod).unwrap_or_default();
        }
    };
    // What was asked of another world's leftovers is asked again when they are gone.
    let _ = tokio::time::timeout(PATIENCE, waiting).await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete_collection(&now, &kube::api::ListParams::default()).await.unwrap();
    last
}

fn answer(pod: &Pod) -> Option<String> {
    if let Some(node) = pod.spec.as_ref()?.node_name.as_ref() {
        return Some(format!("on {node}"));
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "PodScheduled")?.message.clone()
}

/// Each world gives its answer, played so often.
async fn compare(client: &Client, tries: usize) {
    make_nodes(client).await;
    let mut differ = String::new();
    for world in worlds() {
        let mut given = String::new();
        for _ in 0..tries {
            given = play(client, &world).await;
            if given == world.answer {
                break;
            }
        }
        if given != world.answer {
            differ += &format!("\n{}\n  wanted {}\n  given  {given}\n", world.name, world.answer);
        }
    }
    assert!(differ.is_empty(), "{differ}");
}

#[tokio::test]
async fn pods_go_where_a_kube_scheduler_puts_them() {
    let (server, stop) = (crate::server(), CancellationToken::new());
    let scheduler = tokio::spawn(embedded::scheduler::run(server.clone(), crate::ports(), stop.clone()));
    compare(&crate::client(&server), 1).await;
    stop.cancel();
    scheduler.await.unwrap();
}

#[tokio::test]
#[ignore = "needs a kube-scheduler: cargo xtask test --with realcluster"]
async fn live() {
    let folder = tempfile::Builder::new().prefix("ostler-scheduling-").tempdir().unwrap().keep();
    let parts = Parts::quiet().with_scheduler();
    let cluster = RealCluster::start_parts(parts, Binaries::of(parts).unwrap(), folder.clone()).await.unwrap();
    // A kube-scheduler hears of nodes, of Pods with a node and of those without apart: it may decide before it has heard of
    // all of a world.
    compare(&cluster.client, 3).await;
    drop(cluster);
    std::fs::remove_dir_all(folder).unwrap();
}
