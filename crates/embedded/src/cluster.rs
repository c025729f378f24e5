//! A complete cluster: API server, controllers, scheduler and node agent as tasks of this process.

use apimachinery::{Status, object, persistent_volume};
use apiserver::{DEFAULT_HISTORY_SIZE, Server, Store};
use node_agent::NodeDirectories;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ports::Ports;

/// Running cluster.
pub struct Cluster {
    server: Server,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

// === impl Cluster ===

impl Cluster {
    /// Starts a cluster with an empty in-memory store and registers the Nodes in `nodes`. Container logs stay in
    /// memory. Must run inside a Tokio runtime.
    #[must_use]
    pub fn start(ports: Ports, nodes: Vec<Value>) -> Self {
        Self::start_with_store(Store::new(DEFAULT_HISTORY_SIZE), ports, nodes, NodeDirectories::default())
    }

    /// Starts a cluster with an existing store and host directories for logs and volumes.
    #[must_use]
    pub fn start_with_store(store: Store, ports: Ports, nodes: Vec<Value>, directories: NodeDirectories) -> Self {
        let server = Server::with_store(&ports.server, store);
        for node in nodes {
            if let Err(error) = register_node(&server, node) {
                tracing::error!(%error, "failed to register a node");
            }
        }
        if directories.volumes.is_some()
            && server.list(persistent_volume::CLASSES).is_empty()
            && let Err(error) = server.create(persistent_volume::CLASSES, controllers::standard_storage_class())
        {
            tracing::error!(%error, "failed to create the default StorageClass");
        }
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(controllers::run_workload_controllers(server.clone(), directories.volumes.clone(), stop.clone()));
        tasks.spawn(controllers::run_node_lifecycle_controller(server.clone(), stop.clone()));
        tasks.spawn(controllers::run_scheduler(server.clone(), stop.clone()));
        tasks.spawn(node_agent::run_node_agent(
            server.clone(),
            ports.runtime,
            ports.network,
            directories,
            stop.clone(),
        ));
        tasks.spawn(watch_rollbacks(server.clone(), stop.clone()));
        Self { server, stop, tasks }
    }

    /// Returns the API server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Stops all containers and tasks and flushes the store.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        if let Err(failure) = self.server.flush().await {
            tracing::error!(%failure, "failed to flush the store");
        }
    }
}

/// Registers a node as a kubelet does at startup: an existing Node gets the current labels, annotations and resources
/// and retains everything else.
fn register_node(server: &Server, node: Value) -> Result<(), Status> {
    let Some(existing) = server.get("nodes", "", object::name(&node)) else {
        return server.create("nodes", node).map(|_| ());
    };
    let mut updated = Value::clone(&existing);
    for field in ["labels", "annotations"] {
        let mut merged = existing["metadata"][field].clone();
        let current = node["metadata"][field].as_object().into_iter().flatten();
        current.for_each(|(key, value)| {
            object::members(&mut merged).insert(key.clone(), value.clone());
        });
        object::set_metadata_field(&mut updated, field, Some(merged).filter(|merged| !merged.is_null()));
    }
    let mut status = Value::clone(&*server.update("nodes", updated)?);
    for field in ["capacity", "allocatable"] {
        if let Some(current) = node["status"].get(field) {
            object::members(&mut status["status"]).insert(field.to_owned(), current.clone());
        }
    }
    server.update_status("nodes", status).map(|_| ())
}

/// Resumes interrupted deletions and reloads custom resource definitions after the store rolled back writes.
async fn watch_rollbacks(server: Server, stop: CancellationToken) {
    let mut changes = server.subscribe();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            change = changes.next() => if change.is_err() {
                server.resume();
            },
        }
    }
}
