//! One instance: its processes, its log, and how requests reach it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
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

/// Runs engines in this process instead of processes of their own.
pub trait EngineRunner: Send + Sync {
    /// Runs an engine until it ends, or until `shutdown` is cancelled, and returns its exit code.
    fn run(&self, command: EngineCommand, shutdown: CancellationToken) -> BoxFuture<'static, i32>;
}

/// What an engine is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineCommand {
    /// Program and arguments.
    pub command_line: Vec<String>,
    /// Variables in addition to those of the launcher.
    pub variables: BTreeMap<String, String>,
}

/// What an instance runs.
pub(super) enum Program {
    /// Processes, whose output is read from the pipe.
    Processes(Box<InstanceProcesses>, pipe::Receiver),
    /// An engine in this process, which ends after the token is cancelled.
    Future(BoxFuture<'static, i32>, CancellationToken),
}

/// An instance that was started.
pub(super) struct StartedInstance {
    pub(super) id: String,
    pub(super) program: Program,
    pub(super) log: Arc<InstanceLog>,
    pub(super) delete: CancellationToken,
    pub(super) deleted: watch::Sender<Option<InstanceState>>,
    /// How long the engine may take to end after SIGTERM.
    pub(super) stop_timeout: Duration,
}
