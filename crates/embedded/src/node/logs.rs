//! What containers wrote: a bounded ring of lines per container, the last run's kept beside the current one's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::status::Status;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::Notify;

use crate::ports::PodLogs;

/// Older lines of a container are dropped beyond this many bytes.
const MAX_BYTES: usize = 1 << 20;

/// A longer line is cut.
const MAX_LINE: usize = 16 << 10;

/// Where a container's lines go. Clones write to the same place.
#[derive(Debug, Clone, Default)]
pub struct LogSink {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    ring: Mutex<Ring>,
    grown: Notify,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<Bytes>,
    bytes: usize,
    /// How many lines were dropped from the front.
    dropped: usize,
    closed: bool,
}

/// The logs of every Pod on the nodes of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logs {
    pods: Arc<Mutex<BTreeMap<(String, String), Pod>>>,
}

#[derive(Debug)]
struct Pod {
    uid: String,
    /// In the order of the Pod, init containers last, so that the first is the default.
    containers: Vec<Container>,
}

#[derive(Debug)]
struct Container {
    name: String,
    current: Option<LogSink>,
    previous: Option<LogSink>,
}

// === impl LogSink ===

impl LogSink {
    /// Adds one line, without its newline.
    pub fn write_line(&self, line: &str) {
        let mut end = line.len().min(MAX_LINE);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let mut text = String::with_capacity(end + 1);
        text.push_str(&line[..end]);
        text.push('\n');
        self.ring().push(Bytes::from(text));
        self.shared.grown.notify_waiters();
    }

    /// The lines so far, the last `tail` of them.
    #[must_use]
    pub fn lines(&self, tail: Option<usize>) -> Vec<Bytes> {
        let ring = self.ring();
        let skip = tail.map_or(0, |tail| ring.lines.len().saturating_sub(tail));
        ring.lines.iter().skip(skip).cloned().collect()
    }

    /// Nothing more will come: whoever follows is done.
    pub(crate) fn close(&self) {
        self.ring().closed = true;
        self.shared.grown.notify_waiters();
    }

    /// The lines so far, and with `follow` those to come until the container ends.
    fn read(&self, follow: bool, tail: Option<usize>) -> BoxStream<'static, Bytes> {
        if !follow {
            return stream::iter(self.lines(tail)).boxed();
        }
        let start = {
            let ring = self.ring();
            ring.dropped + tail.map_or(0, |tail| ring.lines.len().saturating_sub(tail))
        };
        let batches = stream::unfold((self.clone(), start), |(sink, position)| async move {
            let (lines, position) = sink.after(position).await?;
            Some((stream::iter(lines), (sink, position)))
        });
        batches.flatten().boxed()
    }

    /// Waits for lines at or after a position; `None` when there will be none.
    async fn after(&self, position: usize) -> Option<(Vec<Bytes>, usize)> {
        loop {
            let grown = self.shared.grown.notified();
            tokio::pin!(grown);
            grown.as_mut().enable();
            {
                let ring = self.ring();
                let skip = position.saturating_sub(ring.dropped);
                let lines: Vec<Bytes> = ring.lines.iter().skip(skip).cloned().collect();
                if !lines.is_empty() {
                    return Some((lines, ring.dropped + ring.lines.len()));
                }
                if ring.closed {
                    return None;
                }
            }
            grown.await;
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Ring ===

impl Ring {
    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > MAX_BYTES {
            let Some(first) = self.lines.pop_front() else { break };
            self.bytes -= first.len();
            self.dropped += 1;
        }
    }
}

// === impl Logs ===

impl Logs {
    /// A Pod came to a node; nothing runs yet.
    pub(crate) fn add(&self, namespace: &str, pod: &str, uid: &str, containers: &[String]) {
        let fresh = |name: &String| Container { name: name.clone(), current: None, previous: None };
        let entry = Pod { uid: uid.to_owned(), containers: containers.iter().map(fresh).collect() };
        self.pods().insert((namespace.to_owned(), pod.to_owned()), entry);
    }

    /// A container starts (again): the current log becomes the previous one.
    pub(crate) fn start(&self, namespace: &str, pod: &str, container: &str) -> LogSink {
        let sink = LogSink::default();
        let mut pods = self.pods();
        let pod = pods.get_mut(&(namespace.to_owned(), pod.to_owned()));
        if let Some(slot) = pod.and_then(|pod| pod.containers.iter_mut().find(|c| c.name == container)) {
            slot.previous = slot.current.replace(sink.clone());
        }
        sink
    }

    /// The Pod is gone, and its logs with it.
    pub(crate) fn remove(&self, namespace: &str, pod: &str, uid: &str) {
        let key = (namespace.to_owned(), pod.to_owned());
        let mut pods = self.pods();
        if pods.get(&key).is_some_and(|entry| entry.uid == uid) {
            pods.remove(&key);
        }
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<(String, String), Pod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodLogs for Logs {
    fn open(
        &self,
        namespace: &str,
        pod: &str,
        container: Option<&str>,
        follow: bool,
        tail: Option<usize>,
        previous: bool,
    ) -> Result<BoxStream<'static, Bytes>, Status> {
        let pods = self.pods();
        let entry = pods
            .get(&(namespace.to_owned(), pod.to_owned()))
            .ok_or_else(|| Status::bad_request(format!("pod {pod} does not have a host assigned")))?;
        let slot = entry.choose(pod, container)?;
        let name = &slot.name;
        let sink = if previous {
            let message = || format!("previous terminated container \"{name}\" in pod \"{pod}\" not found");
            slot.previous.as_ref().ok_or_else(|| Status::bad_request(message()))?
        } else {
            let message = || format!("container \"{name}\" in pod \"{pod}\" is waiting to start: ContainerCreating");
            slot.current.as_ref().ok_or_else(|| Status::bad_request(message()))?
        };
        Ok(sink.read(follow, tail))
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(mut stream: BoxStream<'static, Bytes>) -> String {
        let mut all = String::new();
        while let Some(chunk) = stream.next().await {
            all.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        all
    }

    #[tokio::test]
    async fn tail_follow_and_previous() {
        let logs = Logs::default();
        logs.add("n", "p", "1", &["c".to_owned()]);
        assert!(logs.open("n", "p", None, false, None, false).is_err(), "nothing started");
        let first = logs.start("n", "p", "c");
        first.write_line("one");
        first.write_line("two");
        assert_eq!(text(logs.open("n", "p", None, false, Some(1), false).unwrap()).await, "two\n");
        let followed = tokio::spawn(text(logs.open("n", "p", Some("c"), true, Some(1), false).unwrap()));
        tokio::task::yield_now().await;
        first.write_line("three");
        first.close();
        assert_eq!(followed.await.unwrap(), "two\nthree\n");
        let second = logs.start("n", "p", "c");
        second.write_line("again");
        assert_eq!(text(logs.open("n", "p", None, false, None, true).unwrap()).await, "one\ntwo\nthree\n");
        logs.remove("n", "p", "1");
        assert!(logs.open("n", "p", None, false, None, false).is_err());
    }

    #[test]
    fn the_ring_is_bounded() {
        let sink = LogSink::default();
        let line = "x".repeat(10_000);
        for _ in 0..500 {
            sink.write_line(&line);
        }
        assert!(sink.ring().bytes <= MAX_BYTES);
    }
}
