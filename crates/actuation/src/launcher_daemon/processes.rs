//! The processes of one instance: a process group, and descendants that have left it.
//!
//! An engine starts workers, which hold memory of GPUs. If its main process ends first, they continue to hold it. An instance is
//! therefore gone only once all its processes are.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

/// Variable that all processes of an instance inherit, with a value of their own.
const MARKER: &str = "OSTLER_LAUNCHER_INSTANCE";
/// Time between two looks at processes that were killed; doubled up to the maximum.
const FIRST_POLL: Duration = Duration::from_millis(5);
const MAX_POLL: Duration = Duration::from_millis(500);
/// How often zombies are looked for that were not adopted yet, after all processes have ended.
const REAP_ATTEMPTS: u32 = 5;

/// What to start.
#[derive(Debug)]
pub(super) struct ProcessSpec<'a> {
    /// Program and arguments, at least one word.
    pub(super) command_line: &'a [String],
    /// Variables in addition to those of the launcher.
    pub(super) variables: &'a BTreeMap<String, String>,
    /// Value of [`MARKER`], unique among all launchers of the host.
    pub(super) marker: String,
}

/// The processes of an instance that was started. Dropping the value kills the process group.
#[derive(Debug)]
pub(super) struct InstanceProcesses {
    child: Child,
    /// Id of the main process and of its group; `None` once the group is empty.
    group: Option<Pid>,
    /// The entry of the environment.
    marker: String,
}

// === impl InstanceProcesses ===

impl InstanceProcesses {
    /// Starts a program in a process group of its own. The pipe receives its standard output and standard error in their order.
    ///
    /// # Errors
    /// The program cannot be run.
    pub(super) fn start(spec: &ProcessSpec<'_>) -> io::Result<(InstanceProcesses, pipe::Receiver)> {
        let (program, args) = spec.command_line.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (output, writer) = io::pipe()?;
        let mut command = Command::new(program);
        command.args(args).envs(spec.variables).env(MARKER, &spec.marker);
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0).kill_on_drop(true);
        let child = command.spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let processes = InstanceProcesses { child, group, marker: format!("{MARKER}={}", spec.marker) };
        Ok((processes, pipe::Receiver::from_owned_fd(output.into())?))
    }

    /// Waits for the main process, and returns its exit code, or the negative number of the signal that ended it.
    pub(super) async fn wait(&mut self) -> i32 {
        match self.child.wait().await {
            Ok(status) => exit_code(status),
            Err(error) => {
                tracing::error!(%error, "failed to wait for the process of an instance");
                -1
            }
        }
    }

    /// Sends SIGTERM to the main process, which ends its workers itself; waits for it for at most `timeout`, then kills the group.
    pub(super) async fn terminate(&mut self, timeout: Duration) -> i32 {
        // An error means that it has ended.
        if let Some(pid) = self.group.filter(|_| self.child.id().is_some()) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        if let Ok(code) = tokio::time::timeout(timeout, self.wait()).await {
            return code;
        }
        self.kill_group();
        self.wait().await
    }

    /// Kills the processes that remain after the main process, and waits until none is left.
    pub(super) async fn kill_remaining(&mut self) {
        self.kill_group();
        let mut remaining = Remaining { group: self.group, marker: self.marker.clone(), killed: HashSet::new() };
        let (mut poll, mut reap_attempts) = (FIRST_POLL, 0);
        loop {
            let kill = move || (remaining.kill(), remaining);
            // An error means that the runtime is shutting down.
            let Ok((is_gone, returned)) = tokio::task::spawn_blocking(kill).await else { return };
            if is_gone && (returned.killed.is_empty() || reap_attempts == REAP_ATTEMPTS) {
                // Another process may get the id from now on.
                self.group = None;
                return;
            }
            remaining = returned;
            reap_attempts += u32::from(is_gone);
            tokio::time::sleep(poll).await;
            poll = (poll * 2).min(MAX_POLL);
        }
    }

    fn kill_group(&self) {
        if let Some(group) = self.group {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for InstanceProcesses {
    fn drop(&mut self) {
        self.kill_group();
    }
}

/// Makes orphans of the instances children of this process, so that it can reap them if it is not the first process of the
/// container.
pub(super) fn adopt_orphans() {
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        tracing::debug!(%error, "cannot adopt orphans");
    }
}

/// Processes of an instance whose main process has ended.
struct Remaining {
    group: Option<Pid>,
    marker: String,
    /// Processes outside the group that were killed, and may remain as zombies.
    killed: HashSet<Pid>,
}

// === impl Remaining ===

impl Remaining {
    /// Kills the processes, reaps those that this process has adopted, and returns whether all have ended.
    fn kill(&mut self) -> bool {
        let survivors = processes_with(&self.marker);
        for pid in &survivors {
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
        }
        let is_gone = survivors.is_empty();
        self.killed.extend(survivors);
        // The parent of a process may have to end first, before it is adopted.
        self.killed.retain(|pid| {
            let is_reaped = matches!(rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG), Ok(Some(_)));
            !is_reaped && rustix::process::test_kill_process(*pid).is_ok()
        });
        let Some(group) = self.group else { return is_gone };
        while let Ok(Some(_)) = rustix::process::waitpgid(group, WaitOptions::NOHANG) {}
        is_gone && rustix::process::test_kill_process_group(group).is_err()
    }
}

/// Returns the processes whose environment contains `marker`. A zombie has none.
fn processes_with(marker: &str) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        Some((pid, entry.path().join("environ")))
    });
    pids.filter(|(_, environment)| has_entry(environment, marker)).map(|(pid, _)| pid).collect()
}

fn has_entry(environment: &Path, marker: &str) -> bool {
    let entries = std::fs::read(environment).unwrap_or_default();
    entries.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes())
}

fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or(-1)
}
