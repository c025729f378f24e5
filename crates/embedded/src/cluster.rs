//! The whole: server, controllers, scheduler and node agent as tasks of this process.

use apimachinery::status::Status;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::node::Folders;
use crate::ports::Ports;
use crate::server::Server;
use crate::store::{HISTORY, Store};
use crate::workloads::volume_claim;
use crate::{node, node_lifecycle, object, scheduler, workloads};

/// A running cluster.
pub struct Cluster {
    server: Server,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

// === impl Cluster ===

impl Cluster {
    /// Starts everything; `nodes` are Node objects. Logs are kept in memory. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(ports: Ports, nodes: Vec<Value>) -> Self {
        Self::start_on(Store::new(HISTORY), ports, nodes, Folders::default())
    }

    /// The same with what a store holds, and with folders of this machine.
    #[must_use]
    pub fn start_on(store: Store, ports: Ports, nodes: Vec<Value>, folders: Folders) -> Self {
        let server = Server::on(&ports, store);
        for node in nodes {
            if let Err(error) = register(&server, node) {
                tracing::error!(%error, "a node was refused");
            }
        }
        if folders.volumes.is_some()
            && server.list(volume_claim::CLASSES).is_empty()
            && let Err(error) = server.create(volume_claim::CLASSES, volume_claim::standard_class())
        {
            tracing::error!(%error, "the default StorageClass was refused");
        }
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(workloads::run(server.clone(), ports.clone(), folders.volumes.clone(), stop.clone()));
        tasks.spawn(node_lifecycle::run(server.clone(), ports.clone(), stop.clone()));
        tasks.spawn(scheduler::run(server.clone(), ports.clone(), stop.clone()));
        tasks.spawn(node::run(server.clone(), ports, folders, stop.clone()));
        tasks.spawn(resume(server.clone(), stop.clone()));
        Self { server, stop, tasks }
    }

    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Ends every container and every task.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        if let Err(failure) = self.server.flush().await {
            tracing::error!(%failure, "the last writes were not stored");
        }
    }
}

/// Puts up a node, as its kubelet does at every start: one that is known gets the labels, the annotations and the
/// resources of now, and keeps what others wrote.
fn register(server: &Server, node: Value) -> Result<(), Status> {
    let Some(known) = server.get("nodes", "", object::name(&node)) else {
        return server.create("nodes", node).map(|_| ());
    };
    let mut main = Value::clone(&known);
    for field in ["labels", "annotations"] {
        let mut all = known["metadata"][field].clone();
        let now = node["metadata"][field].as_object().into_iter().flatten();
        now.for_each(|(key, value)| {
            object::members(&mut all).insert(key.clone(), value.clone());
        });
        object::set_metadata(&mut main, field, Some(all).filter(|all| !all.is_null()));
    }
    let mut status = Value::clone(&*server.update("nodes", main)?);
    for field in ["capacity", "allocatable"] {
        if let Some(now) = node["status"].get(field) {
            object::members(&mut status["status"]).insert(field.to_owned(), now.clone());
        }
    }
    server.update_status("nodes", status).map(|_| ())
}

/// After writes were undone, goes on with what they had begun.
async fn resume(server: Server, stop: CancellationToken) {
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
