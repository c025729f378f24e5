//! Logs of the current and the previous run of every container: files in the CRI format at
//! `NAMESPACE_POD_UID/CONTAINER/RUN.NUMBER.log`, or a bounded ring buffer in memory when there is no log directory.

mod log_storage;
mod record;
mod sink;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::Status;
use apiserver::ports::{Clock, PodLogOptions, PodLogs, SystemClock};
use bytes::Bytes;
use futures::stream::BoxStream;

use log_storage::{LogStorage, RingBuffer, RotatedFiles};
pub(crate) use record::{LogTag, MAX_RECORD_BYTES};
pub use sink::LogSink;

/// The logs of all Pods of the node agent.
#[derive(Clone)]
pub(crate) struct ContainerLogs {
    /// `None` keeps lines in memory.
    dir: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    pods: Arc<Mutex<BTreeMap<(String, String), PodEntry>>>,
}

/// The logs of one Pod.
struct PodEntry {
    uid: String,
    dir: Option<PathBuf>,
    /// Main containers first: the order in which the error for a missing container name lists them.
    containers: Vec<ContainerEntry>,
}

/// The logs of one container.
struct ContainerEntry {
    name: String,
    runs: u64,
    current: Option<LogSink>,
    previous: Option<LogSink>,
}

impl Default for ContainerLogs {
    fn default() -> Self {
        Self::new(None, Arc::new(SystemClock), &BTreeSet::new())
    }
}

// === impl ContainerLogs ===

impl ContainerLogs {
    /// Opens the log directory. Logs of an earlier process are retained if their Pod, identified by its UID, still
    /// exists.
    pub(crate) fn new(dir: Option<PathBuf>, clock: Arc<dyn Clock>, pods: &BTreeSet<String>) -> Self {
        if let Some(dir) = &dir {
            remove_orphaned_logs(dir, pods);
        }
        Self { dir, clock, pods: Arc::default() }
    }

    /// Adds a Pod before its containers start. If an earlier process of this program ran the Pod, the log of its last
    /// container run remains readable.
    pub(crate) fn add_pod(&self, namespace: &str, pod: &str, uid: &str, containers: &[String]) {
        let dir = self.dir.as_ref().map(|dir| dir.join(format!("{namespace}_{pod}_{uid}")));
        let new_entry = |name: &String| {
            let storage = dir.as_ref().and_then(|dir| RotatedFiles::open_last_run(&dir.join(name)).ok().flatten());
            let runs = storage.as_ref().map_or(0, |files| files.run() + 1);
            let current = storage.map(|files| {
                let sink = LogSink::new(LogStorage::Files(files), Arc::clone(&self.clock));
                sink.close();
                sink
            });
            ContainerEntry { name: name.clone(), runs, current, previous: None }
        };
        let containers = containers.iter().map(new_entry).collect();
        let entry = PodEntry { uid: uid.to_owned(), dir, containers };
        self.pods().insert((namespace.to_owned(), pod.to_owned()), entry);
    }

    /// Starts the log of a new container run. The current log becomes the previous log, and the old previous log is
    /// removed.
    pub(crate) fn start_container(&self, namespace: &str, pod: &str, container: &str) -> LogSink {
        let mut pods = self.pods();
        let Some(pod) = pods.get_mut(&(namespace.to_owned(), pod.to_owned())) else { return LogSink::default() };
        let dir = pod.dir.as_ref().map(|dir| dir.join(container));
        let Some(entry) = pod.containers.iter_mut().find(|c| c.name == container) else { return LogSink::default() };
        let sink = LogSink::new(create_storage(dir.as_deref(), entry.runs), Arc::clone(&self.clock));
        entry.runs += 1;
        if let Some(oldest) = entry.previous.take() {
            oldest.remove();
        }
        entry.previous = entry.current.replace(sink.clone());
        sink
    }

    /// Removes the logs of a Pod.
    pub(crate) fn remove_pod(&self, namespace: &str, pod: &str, uid: &str) {
        let key = (namespace.to_owned(), pod.to_owned());
        let mut pods = self.pods();
        if pods.get(&key).is_some_and(|entry| entry.uid == uid)
            && let Some(dir) = pods.remove(&key).and_then(|entry| entry.dir)
            && dir.exists()
            && let Err(error) = fs::remove_dir_all(&dir)
        {
            tracing::warn!(dir = %dir.display(), %error, "failed to remove the logs of a deleted Pod");
        }
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<(String, String), PodEntry>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodLogs for ContainerLogs {
    fn open(&self, namespace: &str, pod: &str, options: PodLogOptions) -> Result<BoxStream<'static, Bytes>, Status> {
        let pods = self.pods();
        let entry = pods
            .get(&(namespace.to_owned(), pod.to_owned()))
            .ok_or_else(|| Status::bad_request(format!("pod {pod} does not have a host assigned")))?;
        let container = entry.select_container(pod, options.container.as_deref())?;
        let name = &container.name;
        let sink = if options.previous {
            let message = || format!("previous terminated container \"{name}\" in pod \"{pod}\" not found");
            container.previous.as_ref().ok_or_else(|| Status::bad_request(message()))?
        } else {
            let message = || format!("container \"{name}\" in pod \"{pod}\" is waiting to start: ContainerCreating");
            container.current.as_ref().ok_or_else(|| Status::bad_request(message()))?
        };
        Ok(sink.stream(options))
    }
}

// === impl PodEntry ===

impl PodEntry {
    /// Returns the container with this name, or the only one.
    fn select_container(&self, pod: &str, container: Option<&str>) -> Result<&ContainerEntry, Status> {
        let container_entry = match (container, self.containers.as_slice()) {
            (Some(name), all) => all.iter().find(|c| c.name == name),
            (None, [single]) => Some(single),
            (None, all) => {
                let names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
                let message =
                    format!("a container name must be specified for pod {pod}, choose one of: [{}]", names.join(" "));
                return Err(Status::bad_request(message));
            }
        };
        let name = container.unwrap_or_default();
        container_entry.ok_or_else(|| Status::bad_request(format!("container {name} is not valid for pod {pod}")))
    }
}

/// Creates the log storage of a container run: files, or memory if the files cannot be created.
fn create_storage(dir: Option<&Path>, run: u64) -> LogStorage {
    let Some(dir) = dir else { return LogStorage::Memory(RingBuffer::default()) };
    RotatedFiles::create(dir, run).map_or_else(
        |error| {
            tracing::warn!(dir = %dir.display(), %error, "failed to create a log file; keeping the log of the container in memory");
            LogStorage::Memory(RingBuffer::default())
        },
        LogStorage::Files,
    )
}

/// Removes the log directories of Pods that no longer exist. Entries whose names do not have the format of a log
/// directory are retained.
fn remove_orphaned_logs(dir: &Path, pods: &BTreeSet<String>) {
    let is_orphaned = |name: &str| pod_uid(name).is_some_and(|uid| !pods.contains(uid));
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_orphaned(&entry.file_name().to_string_lossy())) {
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(dir = %entry.path().display(), %error, "failed to remove orphaned Pod logs");
        }
    }
}

/// Returns the Pod UID from the name of a log directory.
fn pod_uid(name: &str) -> Option<&str> {
    let mut parts = name.split('_');
    let uid = parts.nth(2)?;
    let is_pod_dir = parts.next().is_none() && uid.len() == 36 && uid.bytes().filter(|byte| *byte == b'-').count() == 4;
    is_pod_dir.then_some(uid)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt;

    use super::*;

    async fn text(mut stream: BoxStream<'static, Bytes>) -> String {
        let mut collected = String::new();
        while let Some(chunk) = stream.next().await {
            collected.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        collected
    }

    async fn check_tail_follow_and_previous(logs: &ContainerLogs) {
        let options = PodLogOptions::default();
        let last_line = PodLogOptions { tail_lines: Some(1), ..PodLogOptions::default() };
        logs.add_pod("n", "p", "1", &["c".to_owned()]);
        assert!(logs.open("n", "p", options.clone()).is_err(), "no container was started");
        let first = logs.start_container("n", "p", "c");
        first.write_line("one");
        first.write_line("two");
        assert_eq!(text(logs.open("n", "p", last_line.clone()).unwrap()).await, "two\n");
        let limited_options = PodLogOptions { limit_bytes: Some(5), ..PodLogOptions::default() };
        assert_eq!(text(logs.open("n", "p", limited_options).unwrap()).await, "one\nt");
        let follow = PodLogOptions { follow: true, container: Some("c".to_owned()), ..last_line };
        let follow_task = tokio::spawn(text(logs.open("n", "p", follow).unwrap()));
        tokio::task::yield_now().await;
        first.write_line("three");
        first.close();
        assert_eq!(follow_task.await.unwrap(), "two\nthree\n");
        logs.start_container("n", "p", "c").write_line("again");
        let previous = PodLogOptions { previous: true, ..options.clone() };
        assert_eq!(text(logs.open("n", "p", previous.clone()).unwrap()).await, "one\ntwo\nthree\n");
        logs.start_container("n", "p", "c");
        assert_eq!(text(logs.open("n", "p", previous).unwrap()).await, "again\n");
        logs.remove_pod("n", "p", "1");
        assert!(logs.open("n", "p", options).is_err());
    }

    async fn check_long_line(logs: &ContainerLogs) {
        logs.add_pod("n", "p", "1", &["c".to_owned()]);
        let line = "é".repeat(100_000);
        let log = logs.start_container("n", "p", "c");
        log.write_line("first");
        log.write_line(&line);
        log.write_line("last");
        let open = |options: PodLogOptions| text(logs.open("n", "p", options).unwrap());
        assert!(open(PodLogOptions::default()).await == format!("first\n{line}\nlast\n"), "the line is complete");
        let tail = PodLogOptions { tail_lines: Some(2), ..PodLogOptions::default() };
        assert!(open(tail).await == format!("{line}\nlast\n"), "the line counts as one");
        let timestamps = open(PodLogOptions { timestamps: true, ..PodLogOptions::default() }).await;
        let lines: Vec<&str> = timestamps.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert!(lines == ["first", &line, "last"], "each line has one timestamp");
        assert_eq!(log.lines(Some(1)), ["last\n"]);
        assert_eq!(log.tail(2, 10), format!("{}\nlast\n", "é".repeat(2)).as_bytes());
    }

    #[tokio::test]
    async fn long_lines_are_complete() {
        check_long_line(&ContainerLogs::default()).await;
        let temp_dir = tempfile::tempdir().unwrap();
        let dir = Some(temp_dir.path().to_owned());
        check_long_line(&ContainerLogs::new(dir, Arc::new(SystemClock), &BTreeSet::new())).await;
    }

    #[tokio::test]
    async fn aborted_container_ends_its_log() {
        let logs = ContainerLogs::default();
        logs.add_pod("n", "p", "1", &["c".to_owned()]);
        let log = logs.start_container("n", "p", "c");
        let follow = PodLogOptions { follow: true, ..PodLogOptions::default() };
        let stream = logs.open("n", "p", follow).unwrap();
        drop(log.close_on_drop());
        assert_eq!(text(stream).await, "");
    }

    #[tokio::test]
    async fn logs_in_memory() {
        check_tail_follow_and_previous(&ContainerLogs::default()).await;
    }

    #[tokio::test]
    async fn logs_in_files() {
        let temp_dir = tempfile::tempdir().unwrap();
        let dir = temp_dir.path().to_owned();
        fs::create_dir_all(dir.join("n_old_11111111-1111-1111-1111-111111111111/c")).unwrap();
        fs::create_dir_all(dir.join("unrelated")).unwrap();
        let logs = ContainerLogs::new(Some(dir.clone()), Arc::new(SystemClock), &BTreeSet::new());
        check_tail_follow_and_previous(&logs).await;
        let entries: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(entries, ["unrelated"], "only logs of deleted Pods are removed");
    }

    /// The file of the log is a pipe without a writer: opening it blocks.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn reading_files_occupies_neither_the_async_worker_nor_the_writer() {
        const TIMEOUT: Duration = Duration::from_secs(600);
        let temp_dir = tempfile::tempdir().unwrap();
        let logs = ContainerLogs::new(Some(temp_dir.path().to_owned()), Arc::new(SystemClock), &BTreeSet::new());
        logs.add_pod("n", "p", "1", &["c".to_owned()]);
        let log = logs.start_container("n", "p", "c");
        log.write_line("first");
        let file = temp_dir.path().join("n_p_1/c/0.0.log");
        fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        let reader = tokio::spawn(text(logs.open("n", "p", PodLogOptions::default()).unwrap()));
        let others = async {
            tokio::spawn(async {}).await.unwrap();
            tokio::task::spawn_blocking(move || log.write_line("second")).await.unwrap();
        };
        let others = tokio::time::timeout(TIMEOUT, others).await;
        // The reader opens the pipe, also if it occupies the worker.
        tokio::task::spawn_blocking(move || fs::write(file, "")).await.unwrap().unwrap();
        others.expect("the worker or the writer is blocked");
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn last_run_is_readable_after_restart() {
        const UID: &str = "11111111-1111-1111-1111-111111111111";
        let temp_dir = tempfile::tempdir().unwrap();
        let dir = temp_dir.path().to_owned();
        let open_logs =
            || ContainerLogs::new(Some(dir.clone()), Arc::new(SystemClock), &BTreeSet::from([UID.to_owned()]));
        let logs = open_logs();
        logs.add_pod("n", "p", UID, &["c".to_owned()]);
        logs.start_container("n", "p", "c").write_line("first");
        logs.start_container("n", "p", "c").write_line("second");
        drop(logs);

        let logs = open_logs();
        logs.add_pod("n", "p", UID, &["c".to_owned()]);
        assert_eq!(text(logs.open("n", "p", PodLogOptions::default()).unwrap()).await, "second\n");
        logs.start_container("n", "p", "c").write_line("third");
        let previous = PodLogOptions { previous: true, ..PodLogOptions::default() };
        assert_eq!(text(logs.open("n", "p", previous).unwrap()).await, "second\n");
        assert_eq!(fs::read_dir(dir.join(format!("n_p_{UID}/c"))).unwrap().count(), 2);
    }
}
