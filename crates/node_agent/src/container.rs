//! Runs one container: pull, configure, run with hooks and probes, and restart with back-off.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use apimachinery::{CaughtPanic, catch_future_panic, object, time};
use futures::FutureExt as _;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::context::NodeContext;
use crate::environment::{self, EnvironmentError};
use crate::hooks::Hooks;
use crate::image::{self, ImagePullBackOff};
use crate::probes::{ProbeEvent, ProbeTarget, Probes};
use crate::restart::{CrashLoopBackOff, RestartPolicy};
use crate::runtime::{ContainerConfig, ContainerExit, ContainerPurpose, Mount};
use crate::sources::{self, NamespaceSources};
use crate::status::{ContainerState, SIGKILL_EXIT_CODE, TerminatedState, TerminationObservation};
use crate::status_recovery::UNKNOWN_EXIT_CODE;
use crate::termination_message::TerminationMessage;
use crate::volumes::paths;
use crate::volumes::{self, VolumeError};

/// An event that a container reports to the worker of its Pod.
#[derive(Debug)]
pub(crate) enum ContainerEvent {
    /// The container is in state `waiting`.
    Waiting { reason: &'static str, message: String },
    /// The container has started.
    Running,
    /// A probe has changed whether the container is started or ready, or has failed.
    Probe(ProbeEvent),
    /// One run of the container has ended; another one may follow.
    Terminated(TerminatedState),
    /// The container has finished and will not be restarted.
    Done,
}

/// The task that runs one container; `index` is its position among the containers of the Pod.
pub(crate) struct ContainerSupervisor {
    pub(crate) context: Arc<NodeContext>,
    /// The Pod, with its address in `status`.
    pub(crate) pod: Arc<Value>,
    pub(crate) spec: Value,
    pub(crate) index: usize,
    pub(crate) restart_policy: RestartPolicy,
    pub(crate) purpose: ContainerPurpose,
    pub(crate) pod_ip: IpAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) event_sender: mpsc::Sender<(usize, ContainerEvent)>,
}

/// One completed run of a container.
struct CompletedRun {
    terminated: TerminatedState,
    duration: Duration,
}

/// Simulated duration of a failed pull attempt.
const PULL_ATTEMPT: Duration = Duration::from_secs(1);

// === impl ContainerEvent ===

impl ContainerEvent {
    /// Returns the container state that results from this event, if it changes.
    pub(crate) fn state(&self, now: &str) -> Option<ContainerState> {
        match self {
            Self::Waiting { reason, message } => {
                Some(ContainerState::Waiting { reason: (*reason).to_owned(), message: message.clone() })
            }
            Self::Running => Some(ContainerState::Running { started_at: now.to_owned() }),
            Self::Terminated(terminated) => Some(ContainerState::Terminated(terminated.clone())),
            Self::Probe(_) | Self::Done => None,
        }
    }
}

// === impl ContainerSupervisor ===

impl ContainerSupervisor {
    /// Runs and restarts the container until it has finished or is stopped. A panic ends only this run.
    pub(crate) async fn run(self) {
        let mut back_off = CrashLoopBackOff::default();
        loop {
            let run = match catch_future_panic(self.start_and_run()).await {
                Ok(Some(run)) => run,
                Ok(None) => break,
                Err(panic) => self.failed_run(&panic),
            };
            let exit_code = run.terminated.exit_code;
            self.report(ContainerEvent::Terminated(run.terminated)).await;
            if self.stop.is_cancelled() || !self.restart_policy.should_restart(exit_code) {
                break;
            }
            let delay = back_off.next_delay(run.duration);
            if !delay.is_zero() && !self.back_off(delay).await {
                break;
            }
        }
        self.report(ContainerEvent::Done).await;
    }

    /// Pulls the image, waits for the configuration and runs the container once. `None` when stopped before it runs.
    async fn start_and_run(&self) -> Option<CompletedRun> {
        if !self.pull_image().await {
            return None;
        }
        let container = self.wait_for_config().await?;
        let (started_at, started_time) = (Instant::now(), self.now());
        let log = container.log.clone();
        let closes_log = log.close_on_drop();
        self.report(ContainerEvent::Running).await;
        let exit = self.run_once(container).await;
        drop(closes_log);
        // The runtime explains why the container did not start, which the log of an engine that never ran cannot.
        let message = match exit.message.is_empty() {
            true => self.termination_message().read(exit.code, &log),
            false => exit.message,
        };
        let terminated = TerminatedState {
            exit_code: exit.code,
            message,
            observation: TerminationObservation::Observed,
            started_at: started_time,
            finished_at: self.now(),
        };
        Some(CompletedRun { terminated, duration: started_at.elapsed() })
    }

    /// Returns the run that a panic ended: unwinding has killed the container without observing how it terminated.
    fn failed_run(&self, panic: &CaughtPanic) -> CompletedRun {
        let (name, pod) = (object::text(&self.spec, "/name"), object::name(&self.pod));
        tracing::error!(namespace = object::namespace(&self.pod), pod, container = name, %panic, "failed to run a container");
        let terminated = TerminatedState {
            exit_code: UNKNOWN_EXIT_CODE,
            message: format!("internal error of the node agent: {panic}"),
            observation: TerminationObservation::Unobserved,
            started_at: self.now(),
            finished_at: self.now(),
        };
        CompletedRun { terminated, duration: Duration::ZERO }
    }

    /// Runs the container once, with its hooks and probes.
    async fn run_once(&self, container: ContainerConfig) -> ContainerExit {
        let stop = CancellationToken::new();
        let target = ProbeTarget {
            network: Arc::clone(&self.context.network),
            runtime: Arc::clone(&self.context.runtime),
            container: container.clone(),
        };
        let mut run = self.context.runtime.run(container, stop.clone());
        let (probes, hooks) = (Probes::new(&self.spec), Hooks::new(&self.spec));
        let is_unhealthy = tokio::select! {
            exit = &mut run => return exit,
            () = self.stop.cancelled() => false,
            () = self.supervise(&probes, &hooks, &target) => true,
        };
        let terminate = async {
            let pre_stop = async {
                if let Err(error) = hooks.run_pre_stop(&target).await {
                    self.event("Warning", "FailedPreStopHook", &format!("PreStopHook failed: {error}"));
                }
            };
            tokio::select! {
                exit = &mut run => return exit,
                () = pre_stop => stop.cancel(),
            }
            run.await
        };
        match is_unhealthy {
            // When the Pod terminates, the caller enforces the grace period.
            false => terminate.await,
            true => {
                let sigkill_exit = ContainerExit { code: SIGKILL_EXIT_CODE, message: String::new() };
                timeout(grace_period(&self.pod), terminate).await.unwrap_or(sigkill_exit)
            }
        }
    }

    /// Runs the `postStart` hook and the probes. If one of them requires killing the container, records an Event and
    /// returns.
    async fn supervise(&self, probes: &Probes, hooks: &Hooks, target: &ProbeTarget) {
        let name = object::text(&self.spec, "/name");
        if let Err(error) = hooks.run_post_start(target).await {
            self.event("Warning", "FailedPostStartHook", &format!("PostStartHook failed: {error}"));
            self.event("Normal", "Killing", "FailedPostStartHook");
            return;
        }
        let report = |event: ProbeEvent| self.report(ContainerEvent::Probe(event)).boxed();
        let failed_probe = probes.run(target, &report).await;
        self.event("Normal", "Killing", &format!("Container {name} failed {failed_probe} probe, will be restarted"));
    }

    /// Waits for the restart back-off; returns `false` when stopped.
    async fn back_off(&self, delay: Duration) -> bool {
        let (name, pod) = (object::text(&self.spec, "/name"), object::name(&self.pod));
        let pod_reference = format!("{pod}_{}({})", object::namespace(&self.pod), object::uid(&self.pod));
        let message = format!("back-off {} restarting failed container={name} pod={pod_reference}", go_duration(delay));
        self.report(ContainerEvent::Waiting { reason: "CrashLoopBackOff", message }).await;
        self.event(
            "Warning",
            "BackOff",
            &format!("Back-off restarting failed container {name} in pod {pod_reference}"),
        );
        self.sleep(delay).await
    }

    /// Pulls the image and retries with back-off until it succeeds. Returns `false` if the container is stopped first.
    async fn pull_image(&self) -> bool {
        let (node, image) = (object::text(&self.pod, "/spec/nodeName"), object::text(&self.spec, "/image"));
        if let Some(message) = image::invalid_name_message(image) {
            self.event("Warning", "InspectFailed", &message);
            self.event("Warning", "Failed", "Error: InvalidImageName");
            self.report(ContainerEvent::Waiting { reason: "InvalidImageName", message }).await;
            self.stop.cancelled().await;
            return false;
        }
        let mut back_off = ImagePullBackOff::default();
        while let Err(cause) = self.context.runtime.pull_image(node, image) {
            self.event("Normal", "Pulling", &format!("Pulling image \"{image}\""));
            self.event("Warning", "Failed", &format!("Failed to pull image \"{image}\": {cause}"));
            self.event("Warning", "Failed", "Error: ErrImagePull");
            self.report(ContainerEvent::Waiting { reason: "ErrImagePull", message: cause.clone() }).await;
            // Keeps `ErrImagePull` visible before `ImagePullBackOff` replaces it.
            if !self.sleep(PULL_ATTEMPT).await {
                return false;
            }
            self.event("Normal", "BackOff", &format!("Back-off pulling image \"{image}\""));
            self.event("Warning", "Failed", "Error: ImagePullBackOff");
            let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {cause}");
            self.report(ContainerEvent::Waiting { reason: "ImagePullBackOff", message }).await;
            if !self.sleep(back_off.next_delay()).await {
                return false;
            }
        }
        !self.stop.is_cancelled()
    }

    /// Sleeps; returns `false` when stopped.
    async fn sleep(&self, duration: Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(duration) => true,
        }
    }

    /// Returns the container configuration. Waits until all objects that the container refers to exist. `None` when
    /// stopped.
    async fn wait_for_config(&self) -> Option<ContainerConfig> {
        let mut changes = self.context.server.subscribe();
        loop {
            if self.stop.is_cancelled() {
                return None;
            }
            match self.container_config() {
                Ok(container) => return Some(container),
                Err(EnvironmentError::NotFound(message)) => {
                    self.event("Warning", "Failed", &format!("Error: {message}"));
                    self.report(ContainerEvent::Waiting { reason: "CreateContainerConfigError", message }).await;
                }
                Err(error @ EnvironmentError::Unresolved(_)) => {
                    self.report(ContainerEvent::Waiting { reason: "ContainerCreating", message: error.to_string() })
                        .await;
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => return None,
                () = sources::wait_for_change(&mut changes, &self.pod) => {}
            }
        }
    }

    /// Resolves the environment variables, volumes and mounts of the container.
    fn container_config(&self) -> Result<ContainerConfig, EnvironmentError> {
        let (namespace, pod) = (object::namespace(&self.pod), object::name(&self.pod));
        let sources = NamespaceSources::new(&self.context.server, &self.pod);
        let env = environment::resolve(&self.spec, &self.pod, &sources)?;
        let variables = env.iter().cloned().collect();
        let expand_list = |field: &str| {
            let items = object::strings(self.spec.get(field));
            items.into_iter().map(|item| apimachinery::expand_variables(item, &variables)).collect()
        };
        let name = object::text(&self.spec, "/name");
        let pod_dir = self.context.pod_dir(&self.pod, [&self.spec]);
        let not_found = |error: VolumeError| EnvironmentError::NotFound(error.to_string());
        let resolved_pod =
            pod_dir.as_ref().map(|_| volumes::resolve_claims(&self.pod, &sources)).transpose().map_err(not_found)?;
        let mounts = pod_dir.as_deref().zip(resolved_pod.as_deref());
        let mounts = mounts.map(|(pod_dir, pod)| volumes::mounts(&self.spec, pod, pod_dir, &variables));
        let mounts = mounts.transpose().map_err(not_found)?;
        let container = ContainerConfig {
            node: object::text(&self.pod, "/spec/nodeName").to_owned(),
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            pod_uid: object::uid(&self.pod).to_owned(),
            name: name.to_owned(),
            attempt: next_attempt(),
            image: object::text(&self.spec, "/image").to_owned(),
            purpose: self.purpose,
            command: expand_list("command"),
            args: expand_list("args"),
            pod_ip: self.pod_ip,
            ports: tcp_ports(&self.spec),
            working_dir: self.spec.get("workingDir").and_then(Value::as_str).map(str::to_owned),
            labels: object::labels(&self.pod),
            devices: self.context.devices.container_devices(&self.pod, name),
            log: self.context.logs.start_container(namespace, pod, name),
            default_working_dir: pod_dir.map(|pod_dir| pod_dir.join("containers").join(name)),
            mounts: mounts.unwrap_or_default(),
            env,
        };
        self.record_mount_events(&container);
        // This mount is the first in the list, so that it takes precedence over a mount of a parent directory.
        let termination_mount = self.termination_message().create_file().map_err(EnvironmentError::NotFound)?;
        let mounts = termination_mount.into_iter().chain(container.mounts).collect();
        Ok(ContainerConfig { mounts, ..container })
    }

    fn termination_message(&self) -> TerminationMessage {
        TerminationMessage::new(&self.spec, self.context.pod_dir(&self.pod, [&self.spec]).as_deref())
    }

    /// Records an Event for each mount whose path was rewritten and for each mount that the container cannot access.
    fn record_mount_events(&self, container: &ContainerConfig) {
        let texts = || {
            let values = container.env.iter().map(|(_, value)| value);
            let strings = container.command.iter().chain(&container.args).chain(values).chain(&container.working_dir);
            strings.map(String::as_str)
        };
        let rewritten_mounts =
            container.mounts.iter().filter(|mount| std::path::Path::new(&mount.container_path) != mount.host_path);
        let (reachable, unreachable): (Vec<&Mount>, Vec<&Mount>) =
            rewritten_mounts.partition(|mount| paths::is_reachable(mount, texts()));
        for mount in reachable {
            let message = format!(
                "Mount path {} of container {} is {} on the host; command, arguments and environment variables were rewritten",
                mount.container_path,
                container.name,
                mount.host_path.display()
            );
            self.event("Normal", "MountRewritten", &message);
        }
        // No warning for an `emptyDir` whose mount path is a directory on the host, such as /dev/shm: the container
        // uses that directory instead.
        let exists_on_host =
            |mount: &&Mount| self.is_empty_dir(mount) && std::path::Path::new(&mount.container_path).is_dir();
        for mount in unreachable.into_iter().filter(|mount| !exists_on_host(mount)) {
            let message = format!(
                "Container {} cannot access its mount {}: there is no mount namespace, and no command, argument or environment variable contains the path; the volume is {} on the host",
                container.name,
                mount.container_path,
                mount.host_path.display()
            );
            self.event("Warning", "MountHidden", &message);
        }
    }

    fn is_empty_dir(&self, mount: &Mount) -> bool {
        mount.host_path.iter().any(|component| component == "kubernetes.io~empty-dir")
    }

    /// Records an Event for the Pod with `kubelet` as the source component.
    fn event(&self, type_: &str, reason: &str, message: &str) {
        self.context.server.record_event(&self.pod, type_, reason, message, "kubelet");
    }

    /// Reports an event to the worker of the Pod; waits while the worker has many events to handle.
    async fn report(&self, event: ContainerEvent) {
        // Sending succeeds, because the Pod worker outlives its container tasks.
        let _ = self.event_sender.send((self.index, event)).await;
    }

    fn now(&self) -> String {
        object::format_time(self.context.server.now())
    }
}

/// Returns `metadata.deletionGracePeriodSeconds`, or `spec.terminationGracePeriodSeconds` if the Pod is not being
/// deleted.
pub(crate) fn grace_period(pod: &Value) -> Duration {
    let seconds = pod
        .pointer("/metadata/deletionGracePeriodSeconds")
        .or_else(|| pod.pointer("/spec/terminationGracePeriodSeconds"))
        .and_then(Value::as_i64);
    time::duration_from_seconds(seconds.unwrap_or(30))
}

/// Formats a duration as Go does: `10s`, `1m20s`, `5m0s`.
fn go_duration(duration: Duration) -> String {
    match (duration.as_secs() / 60, duration.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// Returns the declared TCP ports; ports without a protocol are TCP.
fn tcp_ports(container: &Value) -> Vec<u16> {
    let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
    let tcp = ports.filter(|port| matches!(object::text(port, "/protocol"), "" | "TCP"));
    tcp.filter_map(|port| u16::try_from(port.get("containerPort")?.as_u64()?).ok()).collect()
}
/// Returns a number that this function has not returned before.
fn next_attempt() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
