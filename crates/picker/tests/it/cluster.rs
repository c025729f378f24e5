//! Pools and use cases as objects of a cluster, the picker at work on them.

use std::sync::Arc;

use embedded::Server;
use picker::{Datastore, watch_backend_pools};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{api_server, fleet};

const POOLS: &str = "backendpools.inference.networking.x-k8s.io";
const SETS: &str = "llmusecasesets.inference.networking.x-k8s.io";

struct World {
    server: Server,
    pools: Arc<Datastore>,
    _stop: DropGuard,
}

impl World {
    fn start() -> World {
        let server = api_server::start();
        for definition in api::crds() {
            server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
        }
        let (pools, stop) = (Arc::new(Datastore::new(0)), CancellationToken::new());
        let client = kube::Client::new(server.router(), "default");
        tokio::spawn(watch_backend_pools(client, Arc::clone(&pools), stop.clone()));
        World { server, pools, _stop: stop.drop_guard() }
    }

    /// Waits until `probe` holds: of the routing too, whose changes no object tells of.
    async fn until(&self, what: &str, probe: impl Fn(&World) -> bool) {
        fleet::until(what, async || probe(self)).await;
    }

    fn condition(&self, resource: &str, name: &str, kind: &str) -> (Value, Value) {
        let object = self.server.get(resource, "default", name).unwrap();
        let found = cluster::find_condition(&object["status"]["conditions"], kind).cloned().unwrap_or_default();
        (found["status"].clone(), found["reason"].clone())
    }

    fn pool(&self, name: &str) {
        let spec = json!({"selector": {"app": name}, "targetPorts": [8000]});
        self.server.create(POOLS, object("BackendPool", name, &spec)).unwrap();
    }

    fn set(&self, name: &str, pools: &[&str], targets: &Value) {
        let pools: Vec<Value> = pools.iter().map(|name| json!({"name": name})).collect();
        let spec = json!({"poolRef": pools, "useCases": [{"modelName": "m", "targetModels": targets}]});
        self.server.create(SETS, object("LLMUseCaseSet", name, &spec)).unwrap();
    }

    fn pod(&self, name: &str, app: &str, ip: &str) {
        let pod = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut made = (*self.server.create("pods", pod).unwrap()).clone();
        made["status"] = json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]});
        self.server.update_status("pods", made).unwrap();
    }

    fn ready(&self, pool: &str) -> usize {
        let routing = self.pools.routing_table();
        routing.pools.values().find(|found| found.key.name == pool).map_or(0, |pool| pool.ready_endpoints.len())
    }

    /// Pools that answer to a model name.
    fn answering(&self, model: &str) -> Vec<String> {
        let routing = self.pools.routing_table();
        let pools = routing.pools.values().filter(|pool| pool.use_cases.contains_key(model));
        pools.map(|pool| pool.key.name.clone()).collect()
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": kind,
        "metadata": {"namespace": "default", "name": name}, "spec": spec})
}

// spec: GW-31
#[tokio::test]
async fn a_missing_pool_is_told_and_heals_without_an_edit() {
    let world = World::start();
    world.set("chat", &["late"], &json!([]));
    let refs = |world: &World| world.condition(SETS, "chat", "ResolvedRefs");
    let accepted = |world: &World| world.condition(SETS, "chat", "Accepted");
    world.until("the condition", |world| refs(world) == (json!("False"), json!("PoolNotFound"))).await;
    assert_eq!(accepted(&world), (json!("False"), json!("PoolNotFound")));
    world.pool("late");
    world.until("the pool", |world| refs(world).0 == "True" && accepted(world).0 == "True").await;
    assert_eq!(world.answering("m"), ["late"]);
}

// spec: GW-17
// spec: GW-19
// spec: GW-24
#[tokio::test]
async fn a_pool_follows_its_pods_and_makes_nothing() {
    let world = World::start();
    world.pool("llama");
    world.pod("a", "llama", "10.0.0.1");
    world.pod("b", "llama", "10.0.0.2");
    world.pod("c", "other", "10.0.0.3");
    world.until("two endpoints", |world| world.ready("llama") == 2).await;
    let mut unready = (*world.server.get("pods", "default", "a").unwrap()).clone();
    unready["status"]["conditions"][0]["status"] = json!("False");
    world.server.update_status("pods", unready).unwrap();
    world.until("one endpoint", |world| world.ready("llama") == 1).await;
    world.server.delete(POOLS, "default", "llama", None).unwrap();
    world.until("no pool", |world| world.ready("llama") == 0).await;
    assert!(world.server.list("deployments.apps").is_empty() && world.server.list("pods").len() == 3);
}

// spec: GW-29
// spec: GW-30
// spec: GW-5
#[tokio::test]
async fn a_set_serves_several_pools_and_is_changed_without_touching_them() {
    let world = World::start();
    world.pool("one");
    world.pool("two");
    world.set("chat", &["one", "two"], &json!([{"targetModelName": "v1", "weight": 100}]));
    world.until("both pools", |world| world.answering("m") == ["one", "two"]).await;
    let before = world.server.get(POOLS, "default", "one").unwrap()["metadata"]["generation"].clone();
    let mut set = (*world.server.get(SETS, "default", "chat").unwrap()).clone();
    set["spec"]["useCases"][0]["targetModels"] = json!([{"targetModelName": "v2", "weight": 7}]);
    world.server.update(SETS, set).unwrap();
    world
        .until("the new target", |world| {
            let routing = world.pools.routing_table();
            routing
                .pools
                .values()
                .all(|pool| pool.use_cases.get("m").is_some_and(|found| found.targets[0].model == "v2"))
        })
        .await;
    assert_eq!(world.server.get(POOLS, "default", "one").unwrap()["metadata"]["generation"], before);
}
