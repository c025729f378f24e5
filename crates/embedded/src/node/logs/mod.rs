//! What containers wrote, the last run's kept beside the current one's: files under a folder, `NAMESPACE_POD_UID/
//! CONTAINER/RUN.NUMBER.log` in the format of container runtimes, or a bounded ring in memory where there is no folder.

mod kept;
mod line;
mod sink;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::status::Status;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::ports::{Clock, LogQuery, PodLogs, SystemClock};
use kept::{Files, Kept, Ring};
pub use sink::LogSink;

/// The logs of every Pod on the nodes of this process.
#[derive(Clone)]
pub(crate) struct Logs {
    /// Without one, lines are kept in memory.
    folder: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    pods: Arc<Mutex<BTreeMap<(String, String), Pod>>>,
}

struct Pod {
    uid: String,
    folder: Option<PathBuf>,
    /// In the order of the Pod, init containers last, so that the first is the default.
    containers: Vec<Container>,
}

struct Container {
    name: String,
    runs: u64,
    current: Option<LogSink>,
    previous: Option<LogSink>,
}

impl Default for Logs {
    fn default() -> Self {
        Self::new(None, Arc::new(SystemClock), &BTreeSet::new())
    }
}

// === impl Logs ===

impl Logs {
    /// Logs that an earlier process left in the folder stay if their Pod, known by its uid, is still there.
    pub(crate) fn new(folder: Option<PathBuf>, clock: Arc<dyn Clock>, pods: &BTreeSet<String>) -> Self {
        if let Some(folder) = &folder {
            clear(folder, pods);
        }
        Self { folder, clock, pods: Arc::default() }
    }

    /// A Pod came to a node; nothing runs yet. What an earlier process kept of its last run can be read.
    pub(crate) fn add(&self, namespace: &str, pod: &str, uid: &str, containers: &[String]) {
        let folder = self.folder.as_ref().map(|folder| folder.join(format!("{namespace}_{pod}_{uid}")));
        let fresh = |name: &String| {
            let kept = folder.as_ref().and_then(|folder| Files::last(&folder.join(name)).ok().flatten());
            let runs = kept.as_ref().map_or(0, |files| files.run() + 1);
            let current = kept.map(|files| {
                let sink = LogSink::new(Kept::Files(files), Arc::clone(&self.clock));
                sink.close();
                sink
            });
            Container { name: name.clone(), runs, current, previous: None }
        };
        let containers = containers.iter().map(fresh).collect();
        let entry = Pod { uid: uid.to_owned(), folder, containers };
        self.pods().insert((namespace.to_owned(), pod.to_owned()), entry);
    }

    /// A container starts (again): the current log becomes the previous one, and the one before goes.
    pub(crate) fn start(&self, namespace: &str, pod: &str, container: &str) -> LogSink {
        let mut pods = self.pods();
        let Some(pod) = pods.get_mut(&(namespace.to_owned(), pod.to_owned())) else { return LogSink::default() };
        let folder = pod.folder.as_ref().map(|folder| folder.join(container));
        let Some(slot) = pod.containers.iter_mut().find(|c| c.name == container) else { return LogSink::default() };
        let sink = LogSink::new(keep(folder.as_deref(), slot.runs), Arc::clone(&self.clock));
        slot.runs += 1;
        if let Some(before) = slot.previous.take() {
            before.remove();
        }
        slot.previous = slot.current.replace(sink.clone());
        sink
    }

    /// The Pod is gone, and its logs with it.
    pub(crate) fn remove(&self, namespace: &str, pod: &str, uid: &str) {
        let key = (namespace.to_owned(), pod.to_owned());
        let mut pods = self.pods();
        if pods.get(&key).is_some_and(|entry| entry.uid == uid)
            && let Some(folder) = pods.remove(&key).and_then(|entry| entry.folder)
            && folder.exists()
            && let Err(error) = fs::remove_dir_all(&folder)
        {
            tracing::warn!(folder = %folder.display(), %error, "the logs of a Pod that is gone stay");
        }
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<(String, String), Pod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodLogs for Logs {
    fn open(&self, namespace: &str, pod: &str, query: LogQuery) -> Result<BoxStream<'static, Bytes>, Status> {
        let pods = self.pods();
        let entry = pods
            .get(&(namespace.to_owned(), pod.to_owned()))
            .ok_or_else(|| Status::bad_request(format!("pod {pod} does not have a host assigned")))?;
        let slot = entry.choose(pod, query.container.as_deref())?;
        let name = &slot.name;
        let sink = if query.previous {
            let message = || format!("previous terminated container \"{name}\" in pod \"{pod}\" not found");
            slot.previous.as_ref().ok_or_else(|| Status::bad_request(message()))?
        } else {
            let message = || format!("container \"{name}\" in pod \"{pod}\" is waiting to start: ContainerCreating");
            slot.current.as_ref().ok_or_else(|| Status::bad_request(message()))?
        };
        Ok(sink.read(query))
    }
}

// === impl Pod ===

impl Pod {
    fn choose(&self, pod: &str, container: Option<&str>) -> Result<&Container, Status> {
        let found = match (container, self.containers.as_slice()) {
            (Some(name), all) => all.iter().find(|c| c.name == name),
            (None, [only]) => Some(only),
            (None, all) => {
                let names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
                let message =
                    format!("a container name must be specified for pod {pod}, choose one of: [{}]", names.join(" "));
                return Err(Status::bad_request(message));
            }
        };
        let name = container.unwrap_or_default();
        found.ok_or_else(|| Status::bad_request(format!("container {name} is not valid for pod {pod}")))
    }
}

fn keep(folder: Option<&Path>, run: u64) -> Kept {
    let Some(folder) = folder else { return Kept::Ring(Ring::default()) };
    Files::create(folder, run).map_or_else(
        |error| {
            tracing::warn!(folder = %folder.display(), %error, "a container's log is kept in memory");
            Kept::Ring(Ring::default())
        },
        Kept::Files,
    )
}

/// Removes the folders of Pods that are gone, known by the shape of their names; whatever else is there stays.
fn clear(folder: &Path, pods: &BTreeSet<String>) {
    let is_gone = |name: &str| uid(name).is_some_and(|uid| !pods.contains(uid));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_gone(&entry.file_name().to_string_lossy())) {
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(folder = %entry.path().display(), %error, "the logs of an earlier Pod stay");
        }
    }
}

/// The uid of the Pod that a folder is of.
fn uid(name: &str) -> Option<&str> {
    let mut parts = name.split('_');
    let uid = parts.nth(2)?;
    let is_of_pod = parts.next().is_none() && uid.len() == 36 && uid.bytes().filter(|byte| *byte == b'-').count() == 4;
    is_of_pod.then_some(uid)
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    async fn text(mut stream: BoxStream<'static, Bytes>) -> String {
        let mut all = String::new();
        while let Some(chunk) = stream.next().await {
            all.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        all
    }

    async fn tail_follow_and_previous(logs: &Logs) {
        let all = LogQuery::default();
        let last = LogQuery { tail: Some(1), ..LogQuery::default() };
        logs.add("n", "p", "1", &["c".to_owned()]);
        assert!(logs.open("n", "p", all.clone()).is_err(), "nothing started");
        let first = logs.start("n", "p", "c");
        first.write_line("one");
        first.write_line("two");
        assert_eq!(text(logs.open("n", "p", last.clone()).unwrap()).await, "two\n");
        let limited = LogQuery { limit_bytes: Some(5), ..LogQuery::default() };
        assert_eq!(text(logs.open("n", "p", limited).unwrap()).await, "one\nt");
        let follow = LogQuery { follow: true, container: Some("c".to_owned()), ..last };
        let followed = tokio::spawn(text(logs.open("n", "p", follow).unwrap()));
        tokio::task::yield_now().await;
        first.write_line("three");
        first.close();
        assert_eq!(followed.await.unwrap(), "two\nthree\n");
        logs.start("n", "p", "c").write_line("again");
        let previous = LogQuery { previous: true, ..all.clone() };
        assert_eq!(text(logs.open("n", "p", previous.clone()).unwrap()).await, "one\ntwo\nthree\n");
        logs.start("n", "p", "c");
        assert_eq!(text(logs.open("n", "p", previous).unwrap()).await, "again\n");
        logs.remove("n", "p", "1");
        assert!(logs.open("n", "p", all).is_err());
    }

    #[tokio::test]
    async fn in_memory() {
        tail_follow_and_previous(&Logs::default()).await;
    }

    #[tokio::test]
    async fn in_files() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().to_owned();
        fs::create_dir_all(folder.join("n_old_11111111-1111-1111-1111-111111111111/c")).unwrap();
        fs::create_dir_all(folder.join("mine")).unwrap();
        let logs = Logs::new(Some(folder.clone()), Arc::new(SystemClock), &BTreeSet::new());
        tail_follow_and_previous(&logs).await;
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["mine"], "logs go with their Pods, and nothing else does");
    }

    #[tokio::test]
    async fn the_last_run_can_be_read_after_a_restart() {
        const UID: &str = "11111111-1111-1111-1111-111111111111";
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().to_owned();
        let open = || Logs::new(Some(folder.clone()), Arc::new(SystemClock), &BTreeSet::from([UID.to_owned()]));
        let logs = open();
        logs.add("n", "p", UID, &["c".to_owned()]);
        logs.start("n", "p", "c").write_line("first");
        logs.start("n", "p", "c").write_line("second");
        drop(logs);

        let logs = open();
        logs.add("n", "p", UID, &["c".to_owned()]);
        assert_eq!(text(logs.open("n", "p", LogQuery::default()).unwrap()).await, "second\n");
        logs.start("n", "p", "c").write_line("third");
        let previous = LogQuery { previous: true, ..LogQuery::default() };
        assert_eq!(text(logs.open("n", "p", previous).unwrap()).await, "second\n");
        assert_eq!(fs::read_dir(folder.join(format!("n_p_{UID}/c"))).unwrap().count(), 2);
    }
}
