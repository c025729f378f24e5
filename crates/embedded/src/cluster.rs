//! The whole: server, controllers, scheduler and node agent as tasks of this process.

use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::node::Folders;
use crate::ports::Ports;
use crate::server::Server;
use crate::{node, scheduler, workloads};

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
        Self::start_in(ports, nodes, Folders::default())
    }

    /// The same with folders of this machine.
    #[must_use]
    pub fn start_in(ports: Ports, nodes: Vec<Value>, folders: Folders) -> Self {
        let server = Server::new(&ports);
        for node in nodes {
            if let Err(error) = server.create("nodes", node) {
                tracing::error!(%error, "a node was refused");
            }
        }
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(workloads::run(server.clone(), ports.clone(), stop.clone()));
        tasks.spawn(scheduler::run(server.clone(), ports.clone(), stop.clone()));
        tasks.spawn(node::run(server.clone(), ports, folders, stop.clone()));
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
    }
}
