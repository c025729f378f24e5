//! The state that all requests share, and the creation and deletion of instances.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::{InstanceConfig, validate_id};
use super::error::LauncherError;
use super::gpus::{GpuSource, Gpus};
use super::instance::{EngineCommand, EngineRunner, InstanceHandle, Program, StartedInstance};
use super::instance_log::InstanceLog;
use super::processes::{InstanceProcesses, ProcessSpec};
use super::table::{InstanceState, InstanceTable};

const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// How long a deletion waits for processes that were killed, after the time for them to end by themselves.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How instances run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceOptions {
    /// Program and first arguments of engines whose request has no `command`; at least one word.
    pub engine_command: Vec<String>,
    /// Where the GPUs of the node are listed.
    pub gpus: GpuSource,
    /// Maximum number of instances, including those that have stopped.
    pub max_instances: usize,
    /// Directory of their logs.
    pub log_directory: PathBuf,
    /// Number of bytes of each log that are retained.
    pub log_bytes: u64,
    /// How long an engine may take to end after SIGTERM before it is killed.
    pub stop_timeout: Duration,
}

/// State of the launcher.
pub(super) struct LauncherState {
    options: InstanceOptions,
    table: Mutex<InstanceTable<InstanceHandle>>,
    /// Receives the revision after each change.
    revision: watch::Sender<u64>,
    gpus: Gpus,
    /// Runs engines in this process; `None` for processes of their own.
    runner: Option<Arc<dyn EngineRunner>>,
    /// Instances that were started, for the owner of the launcher to run.
    started: mpsc::Sender<StartedInstance>,
    /// Cancelled when no more instances are started.
    pub(super) ends: CancellationToken,
    /// Distinguishes the processes of this launcher from those of others.
    marker: String,
}

// === impl LauncherState ===

impl LauncherState {
    pub(super) fn new(
        options: InstanceOptions,
        runner: Option<Arc<dyn EngineRunner>>,
        started: mpsc::Sender<StartedInstance>,
    ) -> LauncherState {
        LauncherState {
            table: Mutex::new(InstanceTable::new(options.max_instances)),
            revision: watch::Sender::new(0),
            gpus: Gpus::new(options.gpus.clone()),
            runner,
            started,
            ends: CancellationToken::new(),
            marker: random_id(),
            options,
        }
    }

    /// Returns whether engines run in this process.
    pub(super) fn runs_in_process(&self) -> bool {
        self.runner.is_some()
    }

    /// Reads the instances.
    pub(super) fn read<T>(&self, read: impl FnOnce(&InstanceTable<InstanceHandle>) -> T) -> T {
        read(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the instances, and wakes those who watch them.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut InstanceTable<InstanceHandle>) -> T) -> T {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut table);
        self.revision.send_replace(table.revision());
        result
    }

    /// Returns a receiver that is notified of each change.
    pub(super) fn watch_revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Starts an instance, with a random id if there is none.
    ///
    /// # Errors
    /// The request is invalid, conflicts with another instance, or the program cannot be run.
    pub(super) async fn create(&self, id: Option<String>, body: &[u8]) -> Result<InstanceState, LauncherError> {
        let id = id.unwrap_or_else(random_id);
        validate_id(&id)?;
        let mut config = InstanceConfig::parse(body)?;
        if let Some(uuids) = &config.gpu_uuids {
            let indexes: Vec<String> = self.gpus.indexes(uuids).await?.iter().map(u32::to_string).collect();
            config.env_vars.get_or_insert_default().insert(VISIBLE_DEVICES.to_owned(), indexes.join(","));
        }
        // Reserved first, so that each instance that was started is run.
        let slot = self.started.reserve().await.map_err(|_| LauncherError::ShuttingDown)?;
        let (state, started) = self.change(|table| {
            if self.ends.is_cancelled() {
                return Err(LauncherError::ShuttingDown);
            }
            table.check(&id, &config)?;
            let (started, handle) = self.start(&id, &config, table.revision() + 1)?;
            Ok((table.insert(&id, config, handle), started))
        })?;
        tracing::info!(instance = state.id, "instance created");
        slot.send(started);
        Ok(state)
    }

    /// Deletes an instance, and waits until its processes have ended. The deletion goes on if the returned future is dropped.
    ///
    /// # Errors
    /// The instance does not exist, or its processes do not end.
    pub(super) async fn delete(&self, id: &str) -> Result<InstanceState, LauncherError> {
        let handle = self.read(|table| table.handle(id))?;
        let mut states = self.delete_instances(vec![(id.to_owned(), handle)]).await?;
        states.pop().ok_or_else(|| LauncherError::InstanceNotFound(id.to_owned()))
    }

    /// Deletes all instances at the same time, and waits until their processes have ended.
    ///
    /// # Errors
    /// The processes of one of them do not end.
    pub(super) async fn delete_all(&self) -> Result<Vec<InstanceState>, LauncherError> {
        self.delete_instances(self.read(InstanceTable::handles)).await
    }

    async fn delete_instances(
        &self,
        instances: Vec<(String, InstanceHandle)>,
    ) -> Result<Vec<InstanceState>, LauncherError> {
        instances.iter().for_each(|(_, handle)| handle.delete.cancel());
        let deadline = Instant::now() + self.options.stop_timeout + KILL_TIMEOUT;
        let mut states = Vec::with_capacity(instances.len());
        for (id, mut handle) in instances {
            let deleted = tokio::time::timeout_at(deadline, handle.deleted.wait_for(Option::is_some)).await;
            let state = deleted.ok().and_then(|deleted| deleted.ok()?.clone());
            states.push(state.ok_or(LauncherError::StillRunning(id))?);
        }
        Ok(states)
    }

    /// Starts the processes of an instance.
    fn start(
        &self,
        id: &str,
        config: &InstanceConfig,
        revision: u64,
    ) -> Result<(StartedInstance, InstanceHandle), LauncherError> {
        let options = &self.options;
        let path = options.log_directory.join(format!("launcher-{}-{id}.log", self.marker));
        let log = InstanceLog::create(&path, options.log_bytes)
            .map_err(|error| LauncherError::StartFailed(format!("failed to create {}: {error}", path.display())))?;
        let command_line = config.command_line(&options.engine_command);
        let variables = config.env_vars.clone().unwrap_or_default();
        let program = match &self.runner {
            Some(runner) => {
                let shutdown = CancellationToken::new();
                Program::Future(runner.run(EngineCommand { command_line, variables }, shutdown.clone()), shutdown)
            }
            None => {
                let marker = format!("{}-{revision}", self.marker);
                let spec = ProcessSpec { command_line: &command_line, variables: &variables, marker };
                let (processes, output) =
                    InstanceProcesses::start(&spec).map_err(|error| start_error(&command_line, &error))?;
                Program::Processes(Box::new(processes), output)
            }
        };
        let (log, delete, (sender, deleted)) = (Arc::new(log), CancellationToken::new(), watch::channel(None));
        let handle = InstanceHandle { delete: delete.clone(), deleted, log: Arc::clone(&log) };
        let (id, stop_timeout) = (id.to_owned(), options.stop_timeout);
        Ok((StartedInstance { id, program, log, delete, deleted: sender, stop_timeout }, handle))
    }
}

fn start_error(command_line: &[String], error: &io::Error) -> LauncherError {
    let program = command_line.first().cloned().unwrap_or_default();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            LauncherError::InvalidCommand { program, cause: error.to_string() }
        }
        _ => LauncherError::StartFailed(format!("{program}: {error}")),
    }
}

/// Returns 128 random bits in hexadecimal.
fn random_id() -> String {
    let mut bytes = [0_u8; 16];
    // It fails only if the operating system has no source of random numbers; ids then conflict, which is reported.
    let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
