//! A complete cluster: API server, controllers, scheduler and node agent as tasks of this process.

use apimachinery::{Status, object, persistent_volume};
use apiserver::{DEFAULT_HISTORY_SIZE, Server, Store};
use node_agent::NodeDirectories;
use serde_json::Value;
use supervisor::{Supervisor, TaskOutput, TaskStatuses};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::failure::{ClusterFailure, NodeRegistrationError};
use crate::ports::Ports;

/// Running cluster.
pub struct Cluster {
    server: Server,
    tasks: ClusterTasks,
}

/// The background tasks of a cluster; dropping the value aborts them.
#[derive(Default)]
struct ClusterTasks {
    supervisor: Supervisor,
    stop: CancellationToken,
    handles: JoinSet<()>,
}

// === impl Cluster ===

impl Cluster {
    /// Starts a cluster with an empty in-memory store and registers the Nodes in `nodes`. Container logs stay in
    /// memory. Must run inside a Tokio runtime.
    ///
    /// # Errors
    /// Those of [`Self::start_with_store`].
    pub fn start(ports: Ports, nodes: Vec<Value>) -> Result<Self, NodeRegistrationError> {
        Self::start_with_store(Store::new(DEFAULT_HISTORY_SIZE), ports, nodes, NodeDirectories::default())
    }

    /// Starts a cluster with an existing store and host directories for logs and volumes.
    ///
    /// # Errors
    /// If the API server rejects one of `nodes`. Nothing is running then.
    pub fn start_with_store(
        store: Store,
        ports: Ports,
        nodes: Vec<Value>,
        directories: NodeDirectories,
    ) -> Result<Self, NodeRegistrationError> {
        let server = Server::with_store(&ports.server, store);
        for node in nodes {
            let name = object::name(&node).to_owned();
            register_node(&server, node).map_err(|status| NodeRegistrationError { name, status: Box::new(status) })?;
        }
        if directories.volumes.is_some()
            && server.list(persistent_volume::CLASSES).is_empty()
            && let Err(error) = server.create(persistent_volume::CLASSES, controllers::standard_storage_class())
        {
            tracing::error!(%error, "failed to create the default StorageClass");
        }
        let tasks = spawn_tasks(&server, &ports, &directories);
        Ok(Self { server, tasks })
    }

    /// Returns the API server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns a receiver of the states of the background tasks. It is notified when a task fails or is restarted.
    #[must_use]
    pub fn task_statuses(&self) -> watch::Receiver<TaskStatuses> {
        self.tasks.supervisor.statuses()
    }

    /// Waits until the cluster cannot continue: a background task has failed repeatedly, or the store can no longer
    /// persist writes. The other tasks continue until [`Self::stop`]. Cancel-safe.
    pub async fn failed(&self) -> ClusterFailure {
        tokio::select! {
            failure = self.server.storage_failed() => ClusterFailure::Storage(failure),
            failure = self.tasks.supervisor.failed() => ClusterFailure::Task(failure),
        }
    }

    /// Stops all containers and tasks and flushes the store.
    pub async fn stop(self) {
        self.tasks.stop().await;
        if let Err(failure) = self.server.flush().await {
            tracing::error!(%failure, "failed to flush the store");
        }
    }
}

// === impl ClusterTasks ===

impl ClusterTasks {
    /// Spawns a task. `start` receives the token that stops it, and is called again after each failure.
    fn spawn<F: Future<Output: TaskOutput> + Send + 'static>(
        &mut self,
        name: &'static str,
        start: impl Fn(CancellationToken) -> F + Send + 'static,
    ) {
        let stop = self.stop.clone();
        self.handles.spawn(self.supervisor.supervise(name, stop.clone(), move || start(stop.clone())));
    }

    /// Stops all tasks and waits until they have ended.
    async fn stop(mut self) {
        self.stop.cancel();
        while self.handles.join_next().await.is_some() {}
    }
}

/// Spawns the background tasks.
fn spawn_tasks(server: &Server, ports: &Ports, directories: &NodeDirectories) -> ClusterTasks {
    let mut tasks = ClusterTasks::default();
    let (cloned_server, volumes_dir) = (server.clone(), directories.volumes.clone());
    tasks.spawn("workload controllers", move |stop| {
        controllers::run_workload_controllers(cloned_server.clone(), volumes_dir.clone(), stop)
    });
    let cloned_server = server.clone();
    tasks.spawn("node lifecycle controller", move |stop| {
        controllers::run_node_lifecycle_controller(cloned_server.clone(), stop)
    });
    let cloned_server = server.clone();
    tasks.spawn("scheduler", move |stop| controllers::run_scheduler(cloned_server.clone(), stop));
    let (cloned_server, ports, directories) = (server.clone(), ports.clone(), directories.clone());
    tasks.spawn("node agent", move |stop| {
        let Ports { runtime, network, devices, .. } = ports.clone();
        node_agent::run_node_agent(cloned_server.clone(), runtime, network, devices, directories.clone(), stop)
    });
    let cloned_server = server.clone();
    tasks.spawn("garbage collector", move |stop| {
        let server = cloned_server.clone();
        async move { server.retry_deletions(stop).await }
    });
    let cloned_server = server.clone();
    tasks.spawn("rollback watcher", move |stop| {
        let server = cloned_server.clone();
        async move { server.resume_after_rollbacks(stop).await }
    });
    tasks
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_always_panics_fails_the_cluster() {
        let mut tasks = ClusterTasks::default();
        tasks.spawn("scheduler", |_| async { panic!("broken") as () });
        let failure = ClusterFailure::Task(tasks.supervisor.failed().await);
        assert_eq!(failure.to_string(), "the scheduler failed repeatedly: it panicked: broken");
        tasks.stop().await;
    }
}
