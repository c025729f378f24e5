//! An API server whose pools a gateway watches, and simulated engines.

use std::{net::SocketAddr, sync::Arc};

use apiserver::Server;
use engine::RequestMemory;
use picker::{GatewayOptions, Scheduler, SchedulingPolicy, serve_gateway, watch_pools};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    api_server,
    gateway_fixture::{self, post},
    picker_fixture::{install_definitions, reserve_sockets},
};

pub(crate) const POOLS: &str = "backendpools.inference.networking.x-k8s.io";
pub(crate) const USE_CASE_SETS: &str = "llmusecasesets.inference.networking.x-k8s.io";
pub(crate) const USE_CASES: &str = "llmusecases.inference.networking.x-k8s.io";
pub(crate) const DEPLOYMENTS: &str = "deployments.apps";

/// An API server and the scheduler of a gateway that watches it.
pub(crate) struct WatchFixture {
    pub(crate) server: Server,
    pub(crate) scheduler: Arc<Scheduler>,
    _shutdown: DropGuard,
}

impl WatchFixture {
    pub(crate) fn start() -> WatchFixture {
        let server = api_server::start();
        install_definitions(&server);
        WatchFixture::watch(server)
    }

    pub(crate) fn start_without_definitions() -> WatchFixture {
        WatchFixture::watch(api_server::start())
    }

    pub(crate) fn watch(server: Server) -> WatchFixture {
        WatchFixture::watch_with(server, None)
    }

    /// Watches with this Service of endpoint pickers.
    pub(crate) fn watch_with(server: Server, endpoint_picker_service: Option<&str>) -> WatchFixture {
        let (scheduler, shutdown) =
            (Arc::new(Scheduler::new(SchedulingPolicy::default(), 0)), CancellationToken::new());
        let client = kube::Client::new(apiserver::router(&server), "default");
        let options = picker::WatchOptions {
            endpoint_picker_service: endpoint_picker_service.map(|service| service.parse().unwrap()),
            ..picker::WatchOptions::new(Arc::new(cluster::SystemClock))
        };
        tokio::spawn(watch_pools(client, Arc::clone(&scheduler), options, shutdown.clone()));
        WatchFixture { server, scheduler, _shutdown: shutdown.drop_guard() }
    }

    /// Polls until `condition` is true. A watch would not observe changes of the snapshot.
    pub(crate) async fn wait_until(&self, description: &str, condition: impl Fn(&WatchFixture) -> bool) {
        gateway_fixture::wait_until(description, async || condition(self)).await;
    }

    pub(crate) fn condition(&self, resource: &str, name: &str, condition_type: &str) -> (Value, Value) {
        let object = self.server.get(resource, "default", name).unwrap();
        let condition =
            cluster::find_condition(&object["status"]["conditions"], condition_type).cloned().unwrap_or_default();
        (condition["status"].clone(), condition["reason"].clone())
    }

    pub(crate) fn create_pool(&self, name: &str) {
        self.create_pool_with_port(name, 8000);
    }

    pub(crate) fn create_pool_with_port(&self, name: &str, port: u16) {
        self.create_pool_of(name, &json!({"selector": {"app": name}, "targetPorts": [port]}));
    }

    pub(crate) fn create_pool_of(&self, name: &str, spec: &Value) {
        self.server.create(POOLS, object("BackendPool", name, spec)).unwrap();
    }

    /// Starts one simulated engine for each list of models, and creates ready Pods of `app`. Returns the port of the engines.
    pub(crate) fn start_engines(&self, app: &str, models: &[&[&str]]) -> u16 {
        let (_, port, sockets) = reserve_sockets();
        for ((host, socket), models) in sockets.into_iter().zip(models) {
            let listener = socket.listen(1024).unwrap();
            let ip = listener.local_addr().unwrap().ip().to_string();
            let config = gateway_fixture::engine_config(models);
            tokio::spawn(engine::serve(listener, config, RequestMemory::default(), CancellationToken::new()));
            self.create_pod(&format!("{app}-{host}"), app, &ip);
        }
        port
    }

    /// Starts a gateway and returns its address.
    pub(crate) async fn start_gateway(&self) -> SocketAddr {
        self.start_gateway_with(GatewayOptions::default()).await
    }

    /// Starts a gateway with options, and returns its address.
    pub(crate) async fn start_gateway_with(&self, options: GatewayOptions) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_gateway(listener, Arc::clone(&self.scheduler), options, CancellationToken::new()));
        address
    }

    pub(crate) fn create_use_case_set(&self, name: &str, pools: &[&str], targets: &Value) {
        let pools: Vec<Value> = pools.iter().map(|name| json!({"name": name})).collect();
        let spec = json!({"poolRef": pools, "useCases": [{"modelName": "m", "targetModels": targets}]});
        self.server.create(USE_CASE_SETS, object("LLMUseCaseSet", name, &spec)).unwrap();
    }

    pub(crate) fn create_pod(&self, name: &str, app: &str, ip: &str) {
        // Deletion of a Pod on a node waits for its containers.
        let pod = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]}});
        let mut created = (*self.server.create("pods", pod).unwrap()).clone();
        created["status"] =
            json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]});
        self.server.update_status("pods", created).unwrap();
    }

    pub(crate) fn ready_endpoints(&self, pool: &str) -> usize {
        let table = self.scheduler.snapshot();
        table.pools.values().find(|candidate| candidate.key.name == pool).map_or(0, |pool| pool.ready_endpoints.len())
    }

    /// Returns the names of the pools that serve a model.
    pub(crate) fn pools_serving(&self, model: &str) -> Vec<String> {
        let table = self.scheduler.snapshot();
        let pools = table.pools.values().filter(|pool| pool.use_cases.contains_key(model));
        pools.map(|pool| pool.key.name.clone()).collect()
    }
}

pub(crate) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": kind,
        "metadata": {"namespace": "default", "name": name}, "spec": spec})
}

/// Sends a request for one token; returns the status and the model of the response.
pub(crate) async fn complete(gateway: SocketAddr, path: &str, model: &str) -> (u16, Value) {
    let body = json!({"model": model, "prompt": "hi", "max_tokens": 1}).to_string();
    let response = post(gateway, path, &body).await;
    (response.status(), response.json()["model"].clone())
}
