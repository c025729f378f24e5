//! The worker of one Pod: mounts its volumes, starts its containers in order and reports their state.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::object;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::container::{ContainerEvent, ContainerSupervisor};
use crate::context::NodeContext;
use crate::probes::ProbeEvent;
use crate::restart::RestartPolicy;
use crate::runtime::ContainerPurpose;
use crate::sources::{self, NamespaceSources};
use crate::specs::{container_specs, main_container_count, waiting_status};
use crate::status::{self, ContainerRole, ContainerState, ContainerStatus, PodPlacement};
use crate::status_recovery;
use crate::volume_updates;
use crate::volumes::{self, VolumeError};

/// The state of the worker of one Pod.
pub(crate) struct PodWorker {
    pub(crate) context: Arc<NodeContext>,
    pub(crate) pod: Arc<Value>,
    pub(crate) placement: PodPlacement,
    /// The specs of `containers`, in the same order.
    specs: Vec<Value>,
    pub(crate) containers: Vec<ContainerStatus>,
    /// Whether containers of the Pod ran before this worker started. `containers` does not contain this information.
    has_run: bool,
    /// The directory of the Pod; `None` unless its containers use the host file system.
    pub(crate) pod_dir: Option<PathBuf>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<()>,
    /// In start order.
    pub(crate) sidecars: Vec<Sidecar>,
    /// The task that updates volumes.
    pub(crate) volume_updater: Option<AbortOnDropHandle<()>>,
    refresh: Arc<Notify>,
    event_sender: mpsc::Sender<(usize, ContainerEvent)>,
    events: mpsc::Receiver<(usize, ContainerEvent)>,
}

/// A running sidecar: an init container with `restartPolicy: Always`.
pub(crate) struct Sidecar {
    pub(crate) stop: CancellationToken,
    pub(crate) task: AbortOnDropHandle<()>,
}

/// Maximum number of events that wait for the worker; each has a message of at most a few KiB. Further ones wait in the
/// tasks of their containers.
const MAX_QUEUED_EVENTS: usize = 64;

/// Interval between checks for missing volume sources that are not API objects, such as `hostPath` directories.
const MOUNT_RETRY_INTERVAL: Duration = Duration::from_secs(10);

// === impl PodWorker ===

impl PodWorker {
    pub(crate) fn new(context: Arc<NodeContext>, pod: Arc<Value>, pod_ip: Ipv4Addr, refresh: Arc<Notify>) -> Self {
        let (event_sender, events) = mpsc::channel(MAX_QUEUED_EVENTS);
        let specs = container_specs(&pod);
        let initial_status = |(role, spec): &(ContainerRole, Value)| {
            waiting_status(*role, spec, specs.len() > main_container_count(&pod))
        };
        let now = object::format_time(context.server.now());
        let mut containers = status_recovery::recover_statuses(specs.iter().map(initial_status).collect(), &pod, &now);
        for container in &mut containers {
            container.devices = context.devices.container_devices(&pod, &container.name);
        }
        let host_ip = context.host_ip(object::text(&pod, "/spec/nodeName"));
        let previous_start_time =
            Some(object::text(&pod, "/status/startTime").to_owned()).filter(|time| !time.is_empty());
        let placement = PodPlacement {
            pod_ip,
            host_ip,
            start_time: previous_start_time.unwrap_or(now),
            node_ready: true,
            deadline_exceeded: false,
        };
        Self {
            pod_dir: context.pod_dir(&pod, specs.iter().map(|(_, spec)| spec)),
            has_run: status_recovery::has_run(&pod),
            context,
            pod,
            placement,
            containers,
            specs: specs.into_iter().map(|(_, spec)| spec).collect(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            sidecars: Vec::new(),
            volume_updater: None,
            refresh,
            event_sender,
            events,
        }
    }

    /// Publishes the Pod IP and the `waiting` containers before any container starts.
    pub(crate) fn publish_initial_status(&mut self) {
        let (namespace, name) = (object::namespace(&self.pod), object::name(&self.pod));
        // Main containers first: the order in which the error for a missing container name lists them.
        let select_containers =
            |main: bool| self.containers.iter().filter(move |c| (c.role == ContainerRole::Main) == main);
        let names: Vec<String> =
            select_containers(true).chain(select_containers(false)).map(|c| c.name.clone()).collect();
        self.context.logs.add_pod(namespace, name, object::uid(&self.pod), &names);
        self.sync_status();
    }

    /// Mounts the volumes, runs the init containers in order, then all other containers, and handles their events.
    pub(crate) async fn run_containers(&mut self) -> std::convert::Infallible {
        if self.containers.iter().all(|container| container.done) {
            return std::future::pending().await;
        }
        if self.has_run {
            self.event("Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
        }
        self.mount_volumes().await;
        for index in 0..self.containers.len() {
            if self.containers[index].done {
                continue;
            }
            let role = self.containers[index].role;
            self.start_container(index);
            while role != ContainerRole::Main && !self.can_start_next(index) {
                self.handle_events().await;
            }
            if role == ContainerRole::Init && self.has_failed(index) {
                self.stop.cancel();
                self.stop_sidecars();
                break;
            }
        }
        loop {
            self.handle_events().await;
            let is_finished = self.containers.iter().filter(|c| c.role == ContainerRole::Main).all(|c| c.done);
            if is_finished {
                self.stop_sidecars(); // sidecars do not keep a Pod running
            }
        }
    }

    /// Waits until all volumes of the Pod are set up.
    async fn mount_volumes(&mut self) {
        let mut changes = self.context.server.subscribe();
        let mut last_message = String::new();
        while let Err(error) = self.set_up_volumes() {
            let message = error.to_string();
            if message != last_message {
                self.event("Warning", "FailedMount", &message);
                last_message = message;
            }
            tokio::select! {
                () = sources::wait_for_change(&mut changes, &self.pod) => {}
                () = tokio::time::sleep(MOUNT_RETRY_INTERVAL), if self.pod_dir.is_some() => {}
            }
        }
        if let Some(pod_dir) = self.pod_dir.clone().filter(|_| volumes::has_updatable_volumes(&self.pod)) {
            let update_task =
                volume_updates::update_volumes(Arc::clone(&self.context), Arc::clone(&self.pod), pod_dir, changes);
            self.volume_updater = Some(AbortOnDropHandle::new(tokio::spawn(update_task)));
        }
    }

    /// Sets up the volumes, or checks that their objects exist.
    fn set_up_volumes(&self) -> Result<(), VolumeError> {
        let sources = NamespaceSources::new(&self.context.server, &self.pod);
        match &self.pod_dir {
            Some(pod_dir) => volumes::set_up(&self.pod, &sources, pod_dir),
            None => volumes::check(&self.pod, &sources),
        }
    }

    fn stop_sidecars(&self) {
        self.sidecars.iter().for_each(|sidecar| sidecar.stop.cancel());
    }

    /// Whether the next container may start.
    fn can_start_next(&self, index: usize) -> bool {
        let container = &self.containers[index];
        container.done || container.role == ContainerRole::Sidecar && container.started
    }

    /// Whether the container terminated with an error.
    fn has_failed(&self, index: usize) -> bool {
        matches!(&self.containers[index].state, ContainerState::Terminated(terminated) if terminated.exit_code != 0)
    }

    /// Spawns the task of a container.
    fn start_container(&mut self, index: usize) {
        let (restart_policy, purpose) = match self.containers[index].role {
            ContainerRole::Main => {
                (RestartPolicy::for_container(&self.pod, &self.specs[index]), ContainerPurpose::Service)
            }
            ContainerRole::Init => {
                (RestartPolicy::for_init_container(&self.pod, &self.specs[index]), ContainerPurpose::Init)
            }
            ContainerRole::Sidecar => (RestartPolicy::Always, ContainerPurpose::Service),
        };
        let is_sidecar = self.containers[index].role == ContainerRole::Sidecar;
        let stop = if is_sidecar { CancellationToken::new() } else { self.stop.clone() };
        let supervisor = ContainerSupervisor {
            context: Arc::clone(&self.context),
            pod: Arc::clone(&self.pod),
            spec: self.specs[index].clone(),
            index,
            restart_policy,
            purpose,
            pod_ip: IpAddr::V4(self.placement.pod_ip),
            stop: stop.clone(),
            event_sender: self.event_sender.clone(),
        };
        if is_sidecar {
            let task = AbortOnDropHandle::new(tokio::spawn(supervisor.run()));
            self.sidecars.push(Sidecar { stop, task });
        } else {
            self.tasks.spawn(supervisor.run());
        }
    }

    /// Waits for an event, handles all available ones, and updates the status once. Cancel-safe.
    async fn handle_events(&mut self) {
        self.context.server.before_write().await;
        tokio::select! {
            // The channel is never closed, because the worker itself owns a sender.
            Some((index, event)) = self.events.recv() => self.handle_event(index, event),
            () = self.refresh.notified() => {}
        }
        self.drain_events();
        self.sync_status();
    }

    /// Waits until all containers except sidecars have ended, and handles their events, for which the containers may wait.
    pub(crate) async fn join_containers(&mut self) {
        loop {
            tokio::select! {
                ended = self.tasks.join_next() => if ended.is_none() { return },
                Some((index, event)) = self.events.recv() => self.handle_event(index, event),
            }
        }
    }

    /// Stops the sidecars in reverse start order and waits until each has ended, like [`Self::join_containers`].
    pub(crate) async fn join_sidecars(&mut self) {
        for position in (0..self.sidecars.len()).rev() {
            self.sidecars[position].stop.cancel();
            while !self.sidecars[position].task.is_finished() {
                tokio::select! {
                    _ = &mut self.sidecars[position].task => {}
                    Some((index, event)) = self.events.recv() => self.handle_event(index, event),
                }
            }
        }
    }

    /// Kills all containers: dropping the future of a container kills it.
    pub(crate) async fn kill_containers(&mut self) {
        self.tasks.shutdown().await;
        for sidecar in self.sidecars.drain(..).filter(|sidecar| !sidecar.task.is_finished()) {
            sidecar.task.abort();
            let _ = sidecar.task.await;
        }
        self.volume_updater = None;
    }

    /// Handles all available events.
    pub(crate) fn drain_events(&mut self) {
        while let Ok((index, event)) = self.events.try_recv() {
            self.handle_event(index, event);
        }
    }

    fn handle_event(&mut self, index: usize, event: ContainerEvent) {
        let now = object::format_time(self.context.server.now());
        let state = event.state(&now);
        let container = &mut self.containers[index];
        let name = container.name.clone();
        match event {
            ContainerEvent::Waiting { .. } | ContainerEvent::Running => {
                if let ContainerState::Terminated(terminated) = &container.state {
                    container.last_termination = Some(terminated.clone());
                }
                if matches!(event, ContainerEvent::Running) {
                    let restarts = u32::from(container.last_termination.is_some());
                    container.restart_count = container.restart_count.saturating_add(restarts);
                    self.event("Normal", "Started", &format!("Started container {name}"));
                }
            }
            ContainerEvent::Probe(ProbeEvent::Started) => container.started = true,
            ContainerEvent::Probe(ProbeEvent::Ready) => container.ready = true,
            ContainerEvent::Probe(ProbeEvent::Unready) => container.ready = false,
            ContainerEvent::Probe(ProbeEvent::Failed { probe, message }) => {
                self.event("Warning", "Unhealthy", &format!("{probe} probe failed: {message}"));
            }
            ContainerEvent::Terminated(_) => {
                container.ready = false;
                container.started = false;
            }
            ContainerEvent::Done => container.done = true,
        }
        if let Some(state) = state {
            self.containers[index].state = state;
        }
    }

    /// Returns the stored Pod, `None` if it no longer exists or another Pod now has its name.
    pub(crate) fn stored_pod(&self) -> Option<Arc<Value>> {
        self.context.stored_pod(&self.pod)
    }

    /// Updates the status if it differs from the stored one. Retries on conflict. Devices are free before the phase
    /// shows the end of the Pod, because the scheduler then assigns them to another one.
    pub(crate) fn sync_status(&mut self) {
        for _ in 0..5 {
            let Some(current) = self.stored_pod() else { return };
            self.placement.node_ready = self.context.is_node_ready(object::text(&current, "/spec/nodeName"));
            let now = object::format_time(self.context.server.now());
            let status = status::pod_status(&current, &self.containers, &self.placement, &now);
            if matches!(object::text(&status, "/phase"), "Succeeded" | "Failed") {
                self.context.devices.release(&self.pod);
            }
            if current.get("status") == Some(&status) {
                self.pod = current;
                return;
            }
            let mut pod = current.as_ref().clone();
            object::members(&mut pod).insert("status".to_owned(), status);
            match self.context.server.update_status("pods", pod) {
                Ok(stored) => {
                    self.pod = stored;
                    return;
                }
                Err(status) if status.code == 409 => {}
                Err(status) => {
                    tracing::debug!(pod = object::name(&self.pod), %status, "failed to update the status of the Pod");
                    return;
                }
            }
        }
    }

    /// Records an event of the kubelet for the Pod.
    pub(crate) fn event(&self, type_: &str, reason: &str, message: &str) {
        self.context.server.record_event(&self.pod, type_, reason, message, "kubelet");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use apiserver::Server;
    use apiserver::ports::ServerPorts;
    use futures::future::{BoxFuture, FutureExt as _};
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;
    use crate::context::NodeDirectories;
    use crate::device_manager::DeviceManager;
    use crate::devices::NoDevices;
    use crate::logs::ContainerLogs;
    use crate::network::TcpNetwork;
    use crate::pod_ip_allocator::PodIpAllocator;
    use crate::runtime::{ContainerConfig, ContainerExit, ContainerRuntime};

    /// Containers of image `exit` exit immediately; others run until they are stopped.
    #[derive(Default)]
    struct TestRuntime {
        runs: AtomicUsize,
    }

    impl ContainerRuntime for TestRuntime {
        fn run(&self, container: ContainerConfig, stop: CancellationToken) -> BoxFuture<'static, ContainerExit> {
            self.runs.fetch_add(1, Ordering::Relaxed);
            async move {
                if container.image != "exit" {
                    stop.cancelled().await;
                }
                ContainerExit { code: 0, message: String::new() }
            }
            .boxed()
        }
    }

    /// Returns the worker of a Pod whose `count` containers restart always.
    fn worker(runtime: &Arc<TestRuntime>, image: &str, count: usize) -> PodWorker {
        let server = Server::new(&ServerPorts::default());
        let containers: Vec<Value> =
            (0..count).map(|index| json!({"name": format!("c{index}"), "image": image})).collect();
        let metadata = json!({"name": "p", "namespace": "default"});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n", "containers": containers}});
        let pod = server.create("pods", pod).unwrap();
        let context = NodeContext {
            runtime: Arc::<TestRuntime>::clone(runtime),
            network: Arc::new(TcpNetwork),
            devices: DeviceManager::new(Arc::new(NoDevices)),
            logs: ContainerLogs::new(None, Arc::clone(server.clock()), &BTreeSet::new()),
            pod_ips: PodIpAllocator::new(server.random()),
            directories: NodeDirectories::default(),
            server,
        };
        let mut worker = PodWorker::new(Arc::new(context), pod, Ipv4Addr::LOCALHOST, Arc::default());
        worker.publish_initial_status();
        worker
    }

    /// A worker that waits for the disk, or for a long grace period, handles no events.
    #[tokio::test(start_paused = true)]
    async fn unhandled_events_are_limited() {
        let runtime = Arc::<TestRuntime>::default();
        let mut worker = worker(&runtime, "exit", 1);
        worker.start_container(0);
        tokio::time::sleep(Duration::from_secs(30 * 86_400)).await;
        assert!(worker.events.len() <= MAX_QUEUED_EVENTS, "{} events", worker.events.len());
        let runs = runtime.runs.load(Ordering::Relaxed);
        worker.drain_events();
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        assert!(runtime.runs.load(Ordering::Relaxed) > runs, "the container continues");
        worker.kill_containers().await;
    }

    /// The containers report more events than the channel holds while the worker waits for their end.
    #[tokio::test(start_paused = true)]
    async fn containers_end_while_their_events_are_handled() {
        let runtime = Arc::<TestRuntime>::default();
        let mut worker = worker(&runtime, "service", 2 * MAX_QUEUED_EVENTS);
        timeout(Duration::from_secs(10), worker.run_containers()).await.unwrap_err();
        assert_eq!(runtime.runs.load(Ordering::Relaxed), 2 * MAX_QUEUED_EVENTS);
        worker.stop.cancel();
        timeout(Duration::from_secs(10), worker.join_containers()).await.expect("the containers wait for the worker");
        worker.drain_events();
        assert!(worker.containers.iter().all(|container| container.done));
    }
}
