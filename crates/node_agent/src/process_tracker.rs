//! A list of the started processes in a file, so that the next start of the same data directory can kill processes
//! that survived a crash.
//!
//! A process is identified by its id and start time within one boot of the host. Descendants that have left the
//! process group are identified by environment variables: one whose value is different for every start, and one for the
//! container.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::proc::{self, Process};

/// Name of an environment variable that is set for every started process.
const ENV_MARKER: &str = "EMBEDDED_STARTED_BY";

/// Name of an environment variable that is set for every process of a container.
const CONTAINER_MARKER: &str = "EMBEDDED_CONTAINER";

/// Maximum number of checks, every [`POLL_INTERVAL`], until killed processes have exited: drivers need time to free
/// GPU memory.
const MAX_POLLS: u32 = 1500;
/// The same for the processes of a container, whose end is reported afterwards.
const MAX_CONTAINER_POLLS: u32 = 250;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Required number of consecutive checks that find no orphans. One is not enough, because the environment of a process
/// is briefly empty during `exec`.
const REQUIRED_EMPTY_POLLS: u32 = 2;

/// Records the running processes. The default value records nothing. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct ProcessTracker(Option<Arc<ProcessTable>>);

/// The list of processes and its file.
#[derive(Debug)]
struct ProcessTable {
    file: PathBuf,
    list: Mutex<ProcessList>,
}

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ProcessList {
    /// Boot id of the host. Process ids and start times recorded during another boot are invalid.
    boot: String,
    /// Value of the environment variable.
    mark: String,
    /// Process id, which is also the process group id → start time in clock ticks since boot.
    started: BTreeMap<i32, u64>,
}

/// The entry of one process, which is removed on drop.
#[derive(Debug)]
pub(crate) struct ProcessEntry {
    tracker: ProcessTracker,
    pid: Option<i32>,
}

/// Orphaned processes of an earlier start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OrphanedProcesses {
    /// Number of killed processes.
    pub killed: usize,
    /// Number of processes that still run.
    pub remaining: usize,
}

// === impl ProcessTracker ===

impl ProcessTracker {
    /// Kills the processes of an earlier start and writes a new list to the same file.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(file: PathBuf, marker: String) -> io::Result<(Self, OrphanedProcesses)> {
        let orphans = match read(&file)? {
            Some(list) => kill_orphans(&list),
            None => OrphanedProcesses::default(),
        };
        let list = ProcessList { boot: proc::boot_id(), mark: marker, started: BTreeMap::new() };
        write(&file, &list)?;
        Ok((Self(Some(Arc::new(ProcessTable { file, list: Mutex::new(list) }))), orphans))
    }

    /// Returns the marker of a run of a container: no other run of this or another start has the same one, because
    /// the processes of a run may still be killed when the next one starts.
    pub(crate) fn container_marker(&self, pod_uid: &str, container: &str, attempt: u64) -> String {
        let start = match &self.0 {
            Some(table) => table.list().mark.clone(),
            None => {
                let pid = std::process::id();
                let process = i32::try_from(pid).ok().and_then(proc::read);
                format!("{pid}-{}", process.map_or(0, |process| process.start_time))
            }
        };
        format!("{start}/{pod_uid}/{container}/{attempt}")
    }

    /// Returns the environment variables that identify the processes of the container with this marker.
    pub(crate) fn variables(&self, container_marker: &str) -> impl Iterator<Item = (&'static str, String)> {
        let start = self.0.as_ref().map(|table| (ENV_MARKER, table.list().mark.clone()));
        start.into_iter().chain([(CONTAINER_MARKER, container_marker.to_owned())])
    }

    /// Records a started process, the leader of its process group.
    pub(crate) fn record(&self, pid: Option<i32>) -> ProcessEntry {
        if let (Some(table), Some(pid)) = (&self.0, pid)
            && let Some(process) = proc::read(pid)
        {
            table.update(|list| list.started.insert(pid, process.start_time));
        }
        ProcessEntry { tracker: self.clone(), pid }
    }
}

// === impl ProcessEntry ===

impl Drop for ProcessEntry {
    fn drop(&mut self) {
        if let (Some(table), Some(pid)) = (&self.tracker.0, self.pid) {
            table.update(|list| list.started.remove(&pid));
        }
    }
}

// === impl ProcessTable ===

impl ProcessTable {
    fn list(&self) -> MutexGuard<'_, ProcessList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the list and writes the file under one lock, so the file contains every entry that was returned to a
    /// caller.
    fn update(&self, change: impl FnOnce(&mut ProcessList) -> Option<u64>) {
        let mut list = self.list();
        change(&mut list);
        if let Err(error) = write(&self.file, &list) {
            tracing::warn!(file = %self.file.display(), %error, "failed to update the list of processes");
        }
    }
}

/// Reads the list. An invalid file is treated as missing.
fn read(file: &Path) -> io::Result<Option<ProcessList>> {
    match fs::read(file) {
        Ok(bytes) => {
            let list = serde_json::from_slice(&bytes);
            let log_error = |error: &serde_json::Error| {
                tracing::warn!(file = %file.display(), %error, "invalid list of processes; processes of an earlier start with {ENV_MARKER} in their environment must be killed manually");
            };
            Ok(list.inspect_err(log_error).ok())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the file atomically. The file is not synced, because no process survives a power loss. The name of the new
/// file is fixed, so a process that is killed leaves at most one, which the next write replaces.
fn write(file: &Path, list: &ProcessList) -> io::Result<()> {
    let new_file = file.with_extension("json.new");
    match fs::remove_file(&new_file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Creating the file fails if another process replaces it, for example with a link.
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new_file)?;
    new.write_all(&serde_json::to_vec(list)?)?;
    fs::rename(&new_file, file)
}

/// Kills the processes of an earlier start.
fn kill_orphans(list: &ProcessList) -> OrphanedProcesses {
    kill_all(|| find_orphans(list), MAX_POLLS)
}

/// Kills all processes of the container with this marker, wherever their process group and parent are.
pub(crate) fn kill_container(marker: &str) {
    let has_marker =
        |process: &Process| proc::environment_variable(process.pid, CONTAINER_MARKER).as_deref() == Some(marker);
    let find = || proc::running_processes().into_iter().filter(has_marker).collect();
    let OrphanedProcesses { remaining, .. } = kill_all(find, MAX_CONTAINER_POLLS);
    if remaining > 0 {
        tracing::warn!(container = marker, remaining, "failed to kill processes of a container");
    }
}

/// Kills the found processes repeatedly until none is left, because a process may start another one in the meantime.
fn kill_all(find: impl Fn() -> Vec<Process>, max_polls: u32) -> OrphanedProcesses {
    let mut killed = std::collections::BTreeSet::new();
    let mut empty_polls = 0;
    for _ in 0..max_polls {
        let orphans = find();
        empty_polls = if orphans.is_empty() { empty_polls + 1 } else { 0 };
        if empty_polls == REQUIRED_EMPTY_POLLS {
            return OrphanedProcesses { killed: killed.len(), remaining: 0 };
        }
        for process in orphans {
            killed.insert(process.pid);
            // An error means that the process has already exited.
            let _ = Pid::from_raw(process.pid).map(|id| match process.pid == process.process_group {
                true => rustix::process::kill_process_group(id, Signal::KILL),
                false => rustix::process::kill_process(id, Signal::KILL),
            });
        }
        thread::sleep(POLL_INTERVAL);
    }
    let remaining = find().len();
    OrphanedProcesses { killed: killed.len().saturating_sub(remaining), remaining }
}

fn find_orphans(list: &ProcessList) -> Vec<Process> {
    let mut processes = proc::running_processes();
    processes.retain(|process| u32::try_from(process.pid) != Ok(std::process::id()) && is_orphan(list, process));
    processes
}

/// Whether the process belongs to the process group of a listed process, or has the environment variable of the list.
fn is_orphan(list: &ProcessList, process: &Process) -> bool {
    let is_same_boot = list.boot == proc::boot_id();
    let is_listed = |pid: i32| {
        list.started.get(&pid).is_some_and(|start_time| proc::read(pid).is_some_and(|p| p.start_time == *start_time))
    };
    is_same_boot && is_listed(process.process_group)
        || proc::environment_variable(process.pid, ENV_MARKER).is_some_and(|value| value == list.mark)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct TestDir(tempfile::TempDir);

    impl TestDir {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("processes.json")
        }
    }

    fn wait_until(condition_name: &str, condition: impl Fn() -> bool) {
        let start_time = std::time::Instant::now();
        while !condition() {
            assert!(start_time.elapsed() < Duration::from_secs(300), "timed out waiting for {condition_name}");
            thread::yield_now();
        }
    }

    fn start(script: &str, variables: Option<(&str, String)>) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        command.envs(variables).spawn().unwrap()
    }

    fn id(child: &Child) -> i32 {
        i32::try_from(child.id()).unwrap()
    }

    /// Leaves the entry in the file, as a process that is killed would: `forget` prevents the drop.
    fn record_and_forget(tracker: &ProcessTracker, child: &Child) {
        std::mem::forget(tracker.record(Some(id(child))));
    }

    #[test]
    fn kills_group_of_listed_process() {
        let dir = TestDir::new();
        let (tracker, orphans) = ProcessTracker::open(dir.file(), "one".to_owned()).unwrap();
        assert_eq!(orphans, OrphanedProcesses::default());
        let mut child = start("sleep 1000 & sleep 1000 & wait", None);
        record_and_forget(&tracker, &child);
        // Both children run before the list is opened.
        wait_until("three processes", || {
            proc::running_processes().iter().filter(|process| process.process_group == id(&child)).count() == 3
        });
        // A killed process remains a zombie until its parent (this test) waits for it.
        let (_, orphans) = ProcessTracker::open(dir.file(), "two".to_owned()).unwrap();
        assert_eq!(orphans, OrphanedProcesses { killed: 3, remaining: 0 });
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn ignores_other_process_with_same_pid() {
        let dir = TestDir::new();
        let mut child = start("exec sleep 1000", None);
        let started = BTreeMap::from([(id(&child), 1)]);
        write(&dir.file(), &ProcessList { boot: proc::boot_id(), mark: "x".to_owned(), started }).unwrap();
        let (_, orphans) = ProcessTracker::open(dir.file(), "two".to_owned()).unwrap();
        assert_eq!(orphans, OrphanedProcesses::default());
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn kills_process_with_environment_variable() {
        let dir = TestDir::new();
        let (tracker, _) = ProcessTracker::open(dir.file(), format!("mark-{}", std::process::id())).unwrap();
        // The process is not in the list, as after a crash between starting and recording it.
        let mut child = start("exec sleep 1000", tracker.variables("c").next());
        // Between `fork` and `exec`, the process still has the environment of the test.
        wait_until("the variable", || proc::environment_variable(id(&child), ENV_MARKER).is_some());
        let (_, orphans) = ProcessTracker::open(dir.file(), "two".to_owned()).unwrap();
        assert_eq!(orphans, OrphanedProcesses { killed: 1, remaining: 0 });
        child.wait().unwrap();
    }

    #[test]
    fn write_replaces_what_a_killed_process_left() {
        let dir = TestDir::new();
        fs::write(dir.file().with_extension("json.new"), "{").unwrap();
        let (tracker, _) = ProcessTracker::open(dir.file(), "one".to_owned()).unwrap();
        drop(tracker.record(Some(1)));
        let names: Vec<_> = fs::read_dir(dir.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["processes.json"]);
    }

    #[test]
    fn markers_distinguish_containers_and_starts() {
        let dir = TestDir::new();
        let (tracker, _) = ProcessTracker::open(dir.file(), "one".to_owned()).unwrap();
        assert_eq!(tracker.container_marker("uid", "c", 7), "one/uid/c/7");
        let untracked = ProcessTracker::default().container_marker("uid", "c", 0);
        assert!(untracked.starts_with(&format!("{}-", std::process::id())), "{untracked}");
    }

    #[test]
    fn removes_entry_of_exited_process() {
        let dir = TestDir::new();
        let (tracker, _) = ProcessTracker::open(dir.file(), "one".to_owned()).unwrap();
        let mut child = start("exec sleep 1000", None);
        let entry = tracker.record(Some(id(&child)));
        assert_eq!(read(&dir.file()).unwrap().unwrap().started.len(), 1);
        drop(entry);
        assert_eq!(read(&dir.file()).unwrap().unwrap().started.len(), 0);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
