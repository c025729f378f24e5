//! One instance: its processes, its log, and how requests reach it.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::instance_log::InstanceLog;
use super::processes::InstanceProcesses;
use super::table::InstanceState;

/// How requests reach an instance.
#[derive(Clone, Debug)]
pub(super) struct InstanceHandle {
    /// Cancelled to delete the instance.
    pub(super) delete: CancellationToken,
    /// The last state, once the instance is deleted.
    pub(super) deleted: watch::Receiver<Option<InstanceState>>,
    pub(super) log: Arc<InstanceLog>,
}

/// An instance that was started.
#[derive(Debug)]
pub(super) struct StartedInstance {
    pub(super) id: String,
    pub(super) processes: InstanceProcesses,
    pub(super) output: pipe::Receiver,
    pub(super) log: Arc<InstanceLog>,
    pub(super) delete: CancellationToken,
    pub(super) deleted: watch::Sender<Option<InstanceState>>,
    /// How long the engine may take to end after SIGTERM.
    pub(super) stop_timeout: Duration,
}
