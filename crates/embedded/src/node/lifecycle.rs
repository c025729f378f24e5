//! One Pod on its node, from the first status to its removal.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::container::{News, Supervisor};
use super::ending::Ending;
use super::mounted;
use super::probes::Finding;
use super::restart::Policy;
use super::resume;
use super::shared::Shared;
use super::sources::{self, InNamespace};
use super::specs::{container_specs, main_count, waiting};
use super::status::{self, Container, Phase, Place, Role};
use super::volumes::{self, VolumeError};
use crate::object;
use crate::ports::Purpose;

/// What can happen to a Pod from outside.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    /// It has a deletion timestamp: stop within its grace.
    pub(crate) delete: CancellationToken,
    /// It is gone from the API: stop at once.
    pub(crate) gone: CancellationToken,
    /// The agent ends: stop, and leave the API alone.
    pub(crate) shutdown: CancellationToken,
    /// Something outside the Pod changed what its status says.
    pub(crate) look: Arc<Notify>,
}

pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) pod: Arc<Value>,
    pub(super) place: Place,
    specs: Vec<Value>,
    pub(super) containers: Vec<Container>,
    /// Whether it ran before this worker: its first status says nothing of that any more.
    ran: bool,
    /// Where its containers see files of this machine.
    pub(super) folder: Option<PathBuf>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: JoinSet<()>,
    /// In the order of their start.
    pub(super) sidecars: Vec<Sidecar>,
    /// Brings volumes up to date.
    pub(super) follower: Option<AbortOnDropHandle<()>>,
    look: Arc<Notify>,
    sender: mpsc::UnboundedSender<(usize, News)>,
    news: mpsc::UnboundedReceiver<(usize, News)>,
}

/// A running init container with `restartPolicy: Always`.
pub(super) struct Sidecar {
    pub(super) stop: CancellationToken,
    pub(super) task: AbortOnDropHandle<()>,
}

/// What is not told by a change of some object, such as a folder of this machine, is looked at again so often.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Runs one Pod until it is gone or the agent ends.
pub(crate) async fn run(shared: Arc<Shared>, pod: Arc<Value>, signals: Signals) {
    let Some(address) = shared.addresses.take() else {
        shared.server.event(&pod, "Warning", "FailedCreatePodSandBox", "no loopback address is free", "kubelet");
        return;
    };
    let mut worker = Worker::new(shared, pod, address, Arc::clone(&signals.look));
    worker.announce();
    let mut ending = worker.live_until(&signals).await;
    if matches!(ending, Ending::Overdue) {
        worker.give_up(&signals).await;
        ending = worker.asked_to_end(&signals).await;
    }
    worker.finish(ending, &signals).await;
    worker.shared.addresses.give_back(address);
}

// === impl Worker ===

impl Worker {
    fn new(shared: Arc<Shared>, pod: Arc<Value>, address: Ipv4Addr, look: Arc<Notify>) -> Self {
        let (sender, news) = mpsc::unbounded_channel();
        let specs = container_specs(&pod);
        let initial = |(role, spec): &(Role, Value)| waiting(*role, spec, specs.len() > main_count(&pod));
        let now = object::time(shared.ports.clock.now());
        let containers = resume::containers(specs.iter().map(initial).collect(), &pod, &now);
        let host = shared.host(object::text(&pod, "/spec/nodeName"));
        let before = Some(object::text(&pod, "/status/startTime").to_owned()).filter(|time| !time.is_empty());
        let place = Place { address, host, since: before.unwrap_or(now), node_ready: true, overdue: false };
        Self {
            folder: shared.folder(&pod, specs.iter().map(|(_, spec)| spec)),
            ran: resume::ran(&pod),
            shared,
            pod,
            place,
            containers,
            specs: specs.into_iter().map(|(_, spec)| spec).collect(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            sidecars: Vec::new(),
            follower: None,
            look,
            sender,
            news,
        }
    }

    /// The address and the waiting containers, before anything runs.
    fn announce(&mut self) {
        let (namespace, name) = (object::namespace(&self.pod), object::name(&self.pod));
        // Main containers first: the first is the one whose logs are meant.
        let of = |main: bool| self.containers.iter().filter(move |c| (c.role == Role::Main) == main);
        let names: Vec<String> = of(true).chain(of(false)).map(|c| c.name.clone()).collect();
        self.shared.logs.add(namespace, name, object::uid(&self.pod), &names);
        self.publish();
    }

    /// Volumes, then init containers one after another, then the others together; then whatever they report.
    pub(super) async fn live(&mut self) -> std::convert::Infallible {
        if self.containers.iter().all(|container| container.done) {
            return std::future::pending().await;
        }
        if self.ran {
            self.event("Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
        }
        self.mount().await;
        for index in 0..self.containers.len() {
            if self.containers[index].done {
                continue;
            }
            let role = self.containers[index].role;
            self.start(index);
            while role != Role::Main && !self.past(index) {
                self.hear().await;
            }
            if role == Role::Init && self.failed(index) {
                self.stop.cancel();
                self.stop_sidecars();
                break;
            }
        }
        loop {
            self.hear().await;
            let finished = self.containers.iter().filter(|c| c.role == Role::Main).all(|c| c.done);
            if finished {
                self.stop_sidecars(); // they do not keep a Pod alive
            }
        }
    }

    /// Waits until everything that the Pod mounts is there.
    async fn mount(&mut self) {
        let mut changes = self.shared.server.subscribe();
        let mut told = String::new();
        while let Err(error) = self.lay_out() {
            let message = error.to_string();
            if message != told {
                self.event("Warning", "FailedMount", &message);
                told = message;
            }
            tokio::select! {
                () = sources::changed(&mut changes, &self.pod) => {}
                () = tokio::time::sleep(LOOK_AGAIN), if self.folder.is_some() => {}
            }
        }
        if let Some(folder) = self.folder.clone().filter(|_| volumes::follow_objects(&self.pod)) {
            let work = mounted::follow(Arc::clone(&self.shared), Arc::clone(&self.pod), folder, changes);
            self.follower = Some(AbortOnDropHandle::new(tokio::spawn(work)));
        }
    }

    fn lay_out(&self) -> Result<(), VolumeError> {
        let sources = InNamespace::of(&self.shared.server, &self.pod);
        match &self.folder {
            Some(folder) => volumes::lay_out(&self.pod, &sources, folder),
            None => volumes::check(&self.pod, &sources),
        }
    }

    fn stop_sidecars(&self) {
        self.sidecars.iter().for_each(|sidecar| sidecar.stop.cancel());
    }

    fn past(&self, index: usize) -> bool {
        let container = &self.containers[index];
        container.done || container.role == Role::Sidecar && container.started
    }

    fn failed(&self, index: usize) -> bool {
        matches!(&self.containers[index].phase, Phase::Ended(ended) if ended.code != 0)
    }

    fn start(&mut self, index: usize) {
        let (policy, purpose) = match self.containers[index].role {
            Role::Main => (Policy::of_container(&self.pod, &self.specs[index]), Purpose::Serve),
            Role::Init => (Policy::of_init(&self.pod, &self.specs[index]), Purpose::Initialise),
            Role::Sidecar => (Policy::Always, Purpose::Serve),
        };
        let sidecar = self.containers[index].role == Role::Sidecar;
        let stop = if sidecar { CancellationToken::new() } else { self.stop.clone() };
        let supervisor = Supervisor {
            shared: Arc::clone(&self.shared),
            pod: Arc::clone(&self.pod),
            spec: self.specs[index].clone(),
            index,
            policy,
            purpose,
            address: IpAddr::V4(self.place.address),
            stop: stop.clone(),
            news: self.sender.clone(),
        };
        if sidecar {
            let task = AbortOnDropHandle::new(tokio::spawn(supervisor.supervise()));
            self.sidecars.push(Sidecar { stop, task });
        } else {
            self.tasks.spawn(supervisor.supervise());
        }
    }

    /// Takes one piece of news and what else is there, then writes the status once. Cancel-safe.
    async fn hear(&mut self) {
        tokio::select! {
            // This worker holds a sender, so the channel never ends.
            Some((index, news)) = self.news.recv() => self.take(index, news),
            () = self.look.notified() => {}
        }
        self.catch_up();
        self.publish();
    }

    pub(super) fn catch_up(&mut self) {
        while let Ok((index, news)) = self.news.try_recv() {
            self.take(index, news);
        }
    }

    fn take(&mut self, index: usize, news: News) {
        let now = object::time(self.shared.ports.clock.now());
        let phase = news.phase(&now);
        let container = &mut self.containers[index];
        let name = container.name.clone();
        match news {
            News::Waiting { .. } | News::Running => {
                if let Phase::Ended(ended) = &container.phase {
                    container.last = Some(ended.clone());
                }
                if matches!(news, News::Running) {
                    container.restarts += u32::from(container.last.is_some());
                    self.event("Normal", "Started", &format!("Started container {name}"));
                }
            }
            News::Found(Finding::Started) => container.started = true,
            News::Found(Finding::Ready) => container.ready = true,
            News::Found(Finding::Unready) => container.ready = false,
            News::Found(Finding::Failed { probe, why }) => {
                self.event("Warning", "Unhealthy", &format!("{probe} probe failed: {why}"));
            }
            News::Ended(_) => {
                container.ready = false;
                container.started = false;
            }
            News::Done => container.done = true,
        }
        if let Some(phase) = phase {
            self.containers[index].phase = phase;
        }
    }

    /// The Pod as it is stored, unless another one has its name now.
    pub(super) fn current(&self) -> Option<Arc<Value>> {
        let pod = self.shared.server.get("pods", object::namespace(&self.pod), object::name(&self.pod))?;
        (object::uid(&pod) == object::uid(&self.pod)).then_some(pod)
    }

    /// Writes the status if it is different. Tried again when somebody else wrote in between.
    pub(super) fn publish(&mut self) {
        for _ in 0..5 {
            let Some(current) = self.current() else { return };
            self.place.node_ready = self.shared.is_node_ready(object::text(&current, "/spec/nodeName"));
            let now = object::time(self.shared.ports.clock.now());
            let status = status::build(&current, &self.containers, &self.place, &now);
            if current.get("status") == Some(&status) {
                self.pod = current;
                return;
            }
            let mut pod = current.as_ref().clone();
            object::members(&mut pod).insert("status".to_owned(), status);
            match self.shared.server.update_status("pods", pod) {
                Ok(stored) => {
                    self.pod = stored;
                    return;
                }
                Err(status) if status.code == 409 => {}
                Err(status) => {
                    tracing::debug!(pod = object::name(&self.pod), %status, "the status was not written");
                    return;
                }
            }
        }
    }

    pub(super) fn event(&self, kind: &str, reason: &str, message: &str) {
        self.shared.server.event(&self.pod, kind, reason, message, "kubelet");
    }
}
