//! Changed ports of role-based services: the pools route to Pods that serve on the pools' port throughout.

use std::collections::BTreeSet;
use std::sync::Arc;

use embedded::Server;
use rstest::rstest;
use serde_json::{Value, json};

use crate::simulated_cluster::{
    LEADER_WORKER_SETS, SimulatedCluster, condition, ready_service, role, service_with_roles,
};
use crate::test_cluster::FUSIONINFER_SERVICES;

const BACKEND_POOLS: &str = "backendpools.inference.networking.x-k8s.io";
const INFERENCE_POOLS: &str = "inferencepools.inference.networking.k8s.io";

/// How a role states its port.
#[derive(Clone, Copy, Debug)]
enum PortSource {
    Declaration,
    Flag,
}

/// Roles of a service, with Pods that use a whole node each.
#[derive(Clone, Debug)]
struct Roles {
    /// Component type and replicas.
    engines: Vec<(&'static str, i64)>,
    port_source: PortSource,
    nodes_per_replica: i64,
    has_router: bool,
}

// === impl Roles ===

impl Roles {
    fn new(engines: &[(&'static str, i64)]) -> Roles {
        let engines = engines.to_vec();
        Roles { engines, port_source: PortSource::Declaration, nodes_per_replica: 1, has_router: true }
    }

    fn to_json(&self, port: u16) -> Vec<Value> {
        let engine = |(kind, replicas): &(&'static str, i64)| {
            let mut engine = role(kind, kind, *replicas, self.nodes_per_replica, 8);
            let container = &mut engine["template"]["spec"]["containers"][0];
            container["readinessProbe"] =
                json!({"httpGet": {"path": "/health", "port": port}, "initialDelaySeconds": 5});
            match self.port_source {
                PortSource::Declaration => container["ports"][0]["containerPort"] = json!(port),
                PortSource::Flag => {
                    container.as_object_mut().unwrap().remove("ports");
                    container["args"] = json!([format!("--port={port}")]);
                }
            }
            engine
        };
        let router = self.has_router.then(|| json!({"name": "entry", "componentType": "router"}));
        self.engines.iter().map(engine).chain(router).collect()
    }

    /// Starts service `chat` with port 8000 and waits until it is ready.
    async fn start(&self, cluster: &SimulatedCluster) {
        cluster.server.create(FUSIONINFER_SERVICES, service_with_roles("chat", self.to_json(8000))).unwrap();
        cluster.wait_until_ready("chat").await;
    }

    fn set_port(&self, cluster: &SimulatedCluster, port: u16) {
        cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
            service["spec"]["roles"] = json!(self.to_json(port));
        });
    }
}

/// Returns selector and port of the pools: of the BackendPool, or of the InferencePool of a router.
fn pools(server: &Server) -> Vec<(Value, u64)> {
    let backend_pool = server.get(BACKEND_POOLS, "default", "chat");
    let inference_pool = server.get(INFERENCE_POOLS, "default", "chat-pool");
    let backend_pool =
        backend_pool.map(|pool| (pool["spec"]["selector"].clone(), pool["spec"]["targetPorts"][0].as_u64().unwrap()));
    let inference_pool = inference_pool.map(|pool| {
        let spec = &pool["spec"];
        (spec["selector"]["matchLabels"].clone(), spec["targetPorts"][0]["number"].as_u64().unwrap())
    });
    let pools: Vec<_> = backend_pool.into_iter().chain(inference_pool).collect();
    assert!(!pools.is_empty(), "the service has a pool");
    pools
}

fn serves_on(pod: &Value, port: u64) -> bool {
    let container = &pod["spec"]["containers"][0];
    let has_flag = container["args"].to_string().contains(&format!("--port={port}"));
    container["ports"][0]["containerPort"] == port || has_flag
}

/// Returns the roles whose ready Pods a pool reaches.
fn reached_roles(server: &Server, (selector, port): &(Value, u64)) -> BTreeSet<String> {
    let is_reached = |pod: &Arc<Value>| {
        let labels = &pod["metadata"]["labels"];
        selector.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value)
            && cluster::find_condition(&pod["status"]["conditions"], "Ready")
                .is_some_and(|ready| ready["status"] == "True")
            && pod["metadata"]["deletionTimestamp"].is_null()
            && serves_on(pod, *port)
    };
    let name = |pod: Arc<Value>| pod["metadata"]["labels"]["fusioninfer.io/role-name"].as_str().unwrap().to_owned();
    server.list("pods").into_iter().filter(is_reached).map(name).collect()
}

/// Checks that each pool reaches these roles.
fn assert_reached(server: &Server, roles: &[&str]) {
    for pool in pools(server) {
        let reached = reached_roles(server, &pool);
        assert!(roles.iter().all(|role| reached.contains(*role)), "{pool:?} reaches {reached:?}");
    }
}

/// Returns the names of the LeaderWorkerSets that are not terminating.
fn sets(server: &Server) -> Vec<String> {
    let sets = server.list(LEADER_WORKER_SETS).into_iter().filter(|set| set["metadata"]["deletionTimestamp"].is_null());
    sets.map(|set| set["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until all Pods serve on the port and no additional replica exists, and checks after every change that the pools reach
/// the roles.
async fn wait_for_port(cluster: &SimulatedCluster, port: u64, replicas: usize, roles: &[&str]) {
    let is_changed = |server: &Server| {
        let is_routed = pools(server).iter().all(|(_, pool_port)| *pool_port == port);
        (is_routed && sets(server).len() == replicas).then(|| ready_service(server, "chat")).flatten()
    };
    let invariant = |server: &Server| assert_reached(server, roles);
    cluster.wait_for_with_invariant(&format!("port {port}"), &is_changed, &invariant).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_reached(&cluster.server, roles);
    for (selector, _) in pools(&cluster.server) {
        let restriction = &selector["leaderworkerset.sigs.k8s.io/name"];
        assert_eq!(restriction, &Value::Null, "the restriction ends with the old Pods");
    }
}

#[rstest]
#[case::only_replica(Roles::new(&[("worker", 1)]))]
#[case::without_a_router(Roles { has_router: false, ..Roles::new(&[("worker", 1)]) })]
#[case::pair_of_replicas(Roles::new(&[("worker", 2)]))]
#[case::several_replicas(Roles::new(&[("worker", 4)]))]
#[case::several_nodes(Roles { nodes_per_replica: 2, ..Roles::new(&[("worker", 1)]) })]
#[case::port_of_a_flag(Roles { port_source: PortSource::Flag, ..Roles::new(&[("worker", 1)]) })]
#[case::port_of_a_flag_on_several_nodes(
    Roles { port_source: PortSource::Flag, nodes_per_replica: 2, ..Roles::new(&[("worker", 2)]) }
)]
#[case::prefill_and_decode(Roles { has_router: false, ..Roles::new(&[("prefiller", 1), ("decoder", 1)]) })]
#[case::prefill_and_decoders(Roles { has_router: false, ..Roles::new(&[("prefiller", 1), ("decoder", 3)]) })]
#[tokio::test(start_paused = true)]
async fn port_changes_without_an_interruption(#[case] roles: Roles) {
    let cluster = SimulatedCluster::with_gpus(8 * 8);
    roles.start(&cluster).await;
    let names: Vec<&str> = roles.engines.iter().map(|(kind, _)| *kind).collect();
    let replicas = sets(&cluster.server).len();
    roles.set_port(&cluster, 9000);
    wait_for_port(&cluster, 9000, replicas, &names).await;
}

/// Two replicas change one after the other, so they need no additional accelerators.
#[tokio::test(start_paused = true)]
async fn port_changes_on_full_nodes() {
    let cluster = SimulatedCluster::with_gpus(8 * 2);
    let roles = Roles::new(&[("worker", 2)]);
    roles.start(&cluster).await;
    roles.set_port(&cluster, 9000);
    wait_for_port(&cluster, 9000, 2, &["worker"]).await;
}

/// The pools do not move before the updated replica is ready.
#[tokio::test(start_paused = true)]
async fn interruption_on_full_nodes_is_announced() {
    let cluster = SimulatedCluster::with_gpus(8);
    let roles = Roles::new(&[("worker", 1)]);
    roles.start(&cluster).await;
    roles.set_port(&cluster, 9000);
    let announced = |server: &Server| condition(server, "chat", "NoSurgeCapacity");
    let announcement = cluster.wait_for("the announcement", &announced).await;
    assert_eq!(announcement["reason"], "NoFreeAccelerators");
    wait_until_ready_without_announcement(&cluster).await;
    assert_reached(&cluster.server, &["worker"]);
}

async fn wait_until_ready_without_announcement(cluster: &SimulatedCluster) {
    let is_ready = |server: &Server| {
        ready_service(server, "chat").filter(|_| condition(server, "chat", "NoSurgeCapacity").is_none())
    };
    cluster.wait_for("the end of the announcement", &is_ready).await;
}

/// How far a change of the port is when something else happens.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// A Pod with the new port exists.
    Starting,
    /// The pools have the new port, and replicas with the old one remain to be updated.
    Switched,
}

async fn wait_for_progress(cluster: &SimulatedCluster, progress: Progress) {
    let has_progressed = |server: &Server| match progress {
        Progress::Starting => server.list("pods").iter().any(|pod| serves_on(pod, 9000)).then_some(()),
        Progress::Switched => pools(server).iter().all(|(_, port)| *port == 9000).then_some(()),
    };
    let is_reached = |server: &Server| assert_reached(server, &["worker"]);
    cluster.wait_for_with_invariant(&format!("{progress:?}"), &has_progressed, &is_reached).await;
}

/// The second edit reverts the port, or changes it again.
#[rstest]
#[tokio::test(start_paused = true)]
async fn port_changes_again_midway(
    #[values(1, 3)] replicas: i64,
    #[values(Progress::Starting, Progress::Switched)] progress: Progress,
    #[values(8000, 9001)] port: u16,
) {
    let cluster = SimulatedCluster::with_gpus(8 * 6);
    let roles = Roles::new(&[("worker", replicas)]);
    roles.start(&cluster).await;
    roles.set_port(&cluster, 9000);
    wait_for_progress(&cluster, progress).await;
    roles.set_port(&cluster, port);
    wait_for_port(&cluster, u64::from(port), usize::try_from(replicas).unwrap(), &["worker"]).await;
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn operator_restarts_midway(
    #[values(1, 3)] replicas: i64,
    #[values(Progress::Starting, Progress::Switched)] progress: Progress,
) {
    let mut cluster = SimulatedCluster::without_operator([api::crds(), api::integrations::crds()].concat());
    cluster.scale_nodes_to(8 * 6);
    let operator = cluster.test_cluster.start_operator_until_dropped();
    let roles = Roles::new(&[("worker", replicas)]);
    roles.start(&cluster).await;
    roles.set_port(&cluster, 9000);
    wait_for_progress(&cluster, progress).await;
    drop(operator);
    cluster.test_cluster.wait_until_idle().await;
    assert_reached(&cluster.server, &["worker"]);
    let _operator = cluster.test_cluster.start_operator_until_dropped();
    wait_for_port(&cluster, 9000, usize::try_from(replicas).unwrap(), &["worker"]).await;
}

/// A prefiller and a decoder are added beside a worker: the decoder gets the requests once it is ready.
#[tokio::test(start_paused = true)]
async fn worker_serves_until_an_added_pair_is_ready() {
    let cluster = SimulatedCluster::with_gpus(8 * 4);
    let worker = Roles { has_router: false, ..Roles::new(&[("worker", 1)]) };
    worker.start(&cluster).await;
    let with_pair = Roles { has_router: false, ..Roles::new(&[("worker", 1), ("prefiller", 1), ("decoder", 1)]) };
    with_pair.set_port(&cluster, 8000);
    let is_moved = |server: &Server| {
        pools(server).iter().all(|pool| reached_roles(server, pool).contains("decoder")).then_some(())
    };
    let is_reached = |server: &Server| assert!(!reached_roles(server, &pools(server)[0]).is_empty());
    cluster.wait_for_with_invariant("the decoder", &is_moved, &is_reached).await;
    cluster.wait_until_ready("chat").await;
    cluster.test_cluster.wait_until_idle().await;
    let selector = &pools(&cluster.server)[0].0;
    assert_eq!(selector["fusioninfer.io/component-type"], "decoder");
}
