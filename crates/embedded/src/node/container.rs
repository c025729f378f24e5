//! One container over its runs: configure, run, probe, wait, again.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::environment::{self, EnvironmentError};
use super::hooks::Hooks;
use super::image::{self, Pulls};
use super::probes::{Finding, Probes, Target};
use super::restart::{BackOff, Policy};
use super::shared::Shared;
use super::sources::{self, InNamespace};
use super::status::{End, Ended, Phase};
use super::termination::Termination;
use super::volumes::paths;
use super::volumes::{self, VolumeError};
use crate::object;
use crate::ports::{Container, Exit, Mount, Purpose};
use crate::workloads::ownership;

/// What a container tells its Pod.
#[derive(Debug)]
pub(crate) enum News {
    Waiting {
        reason: &'static str,
        message: String,
    },
    Running,
    Found(Finding),
    Ended(Ended),
    /// It will not run again.
    Done,
}

/// Everything one container needs to run; `index` is its place among the Pod's containers.
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<Shared>,
    /// With its address in status.
    pub(crate) pod: Arc<Value>,
    pub(crate) spec: Value,
    pub(crate) index: usize,
    pub(crate) policy: Policy,
    pub(crate) purpose: Purpose,
    pub(crate) address: IpAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) news: mpsc::UnboundedSender<(usize, News)>,
}

/// What a try to pull takes that fails.
const PULLING: Duration = Duration::from_secs(1);

/// What a killed process leaves.
const KILLED: i32 = 137;

impl Supervisor {
    /// Runs the container until it is done or stopped.
    pub(crate) async fn supervise(self) {
        let mut back_off = BackOff::default();
        while let (true, Some(container)) = (self.pulled().await, self.configure().await) {
            let begun = Instant::now();
            let started = self.now();
            let log = container.log.clone();
            self.tell(News::Running);
            let exit = self.once(container).await;
            log.close();
            let message = Some(self.termination().message(exit.code, &log)).filter(|message| !message.is_empty());
            let message = message.unwrap_or(exit.message);
            let ended = Ended { code: exit.code, message, how: End::Seen, started, finished: self.now() };
            self.tell(News::Ended(ended));
            if self.stop.is_cancelled() || !self.policy.restarts(exit.code) {
                break;
            }
            let wait = back_off.after(begun.elapsed());
            if !wait.is_zero() && !self.wait(wait).await {
                break;
            }
        }
        self.tell(News::Done);
    }

    /// One run with its hooks and probes.
    async fn once(&self, container: Container) -> Exit {
        let stop = CancellationToken::new();
        let ports = &self.shared.ports;
        let target = Target {
            network: Arc::clone(&ports.network),
            runner: Arc::clone(&ports.runner),
            container: container.clone(),
        };
        let mut run = ports.runner.run(container, stop.clone());
        let (probes, hooks) = (Probes::of(&self.spec), Hooks::of(&self.spec));
        let failed = tokio::select! {
            exit = &mut run => return exit,
            () = self.stop.cancelled() => false,
            () = self.watch(&probes, &hooks, &target) => true,
        };
        let end = async {
            let asked = async {
                if let Err(why) = hooks.stopping(&target).await {
                    self.event("Warning", "FailedPreStopHook", &format!("PreStopHook failed: {why}"));
                }
            };
            tokio::select! {
                exit = &mut run => return exit,
                () = asked => stop.cancel(),
            }
            run.await
        };
        match failed {
            // Whoever stopped this counts the grace.
            false => end.await,
            true => {
                let killed = Exit { code: KILLED, message: String::new() };
                timeout(grace(&self.pod), end).await.unwrap_or(killed)
            }
        }
    }

    /// Watches over a run until it has to end, and tells why.
    async fn watch(&self, probes: &Probes, hooks: &Hooks, target: &Target) {
        let name = object::text(&self.spec, "/name");
        if let Err(why) = hooks.started(target).await {
            self.event("Warning", "FailedPostStartHook", &format!("PostStartHook failed: {why}"));
            self.event("Normal", "Killing", "FailedPostStartHook");
            return;
        }
        let tell = |finding| self.tell(News::Found(finding));
        let failed = probes.watch(target, &tell).await;
        self.event("Normal", "Killing", &format!("Container {name} failed {failed} probe, will be restarted"));
    }

    /// The back-off; false when stopped meanwhile.
    async fn wait(&self, wait: Duration) -> bool {
        let (name, pod) = (object::text(&self.spec, "/name"), object::name(&self.pod));
        let full = format!("{pod}_{}({})", object::namespace(&self.pod), object::uid(&self.pod));
        let message = format!("back-off {} restarting failed container={name} pod={full}", human(wait));
        self.tell(News::Waiting { reason: "CrashLoopBackOff", message });
        self.event("Warning", "BackOff", &format!("Back-off restarting failed container {name} in pod {full}"));
        self.pause(wait).await
    }

    /// Whether the image is there; tries again until it is. `false` when stopped.
    async fn pulled(&self) -> bool {
        let (node, image) = (object::text(&self.pod, "/spec/nodeName"), object::text(&self.spec, "/image"));
        if let Some(message) = image::fault(image) {
            self.event("Warning", "InspectFailed", &message);
            self.event("Warning", "Failed", "Error: InvalidImageName");
            self.tell(News::Waiting { reason: "InvalidImageName", message });
            self.stop.cancelled().await;
            return false;
        }
        let mut pulls = Pulls::default();
        while let Err(cause) = self.shared.ports.runner.pull(node, image) {
            self.event("Normal", "Pulling", &format!("Pulling image \"{image}\""));
            self.event("Warning", "Failed", &format!("Failed to pull image \"{image}\": {cause}"));
            self.event("Warning", "Failed", "Error: ErrImagePull");
            self.tell(News::Waiting { reason: "ErrImagePull", message: cause.clone() });
            // Long enough to be seen.
            if !self.pause(PULLING).await {
                return false;
            }
            self.event("Normal", "BackOff", &format!("Back-off pulling image \"{image}\""));
            self.event("Warning", "Failed", "Error: ImagePullBackOff");
            let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {cause}");
            self.tell(News::Waiting { reason: "ImagePullBackOff", message });
            if !self.pause(pulls.failed()).await {
                return false;
            }
        }
        !self.stop.is_cancelled()
    }

    /// `false` when stopped meanwhile.
    async fn pause(&self, length: Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(length) => true,
        }
    }

    /// The container with its environment; waits while something it refers to is missing. `None` when stopped.
    async fn configure(&self) -> Option<Container> {
        let mut changes = self.shared.server.subscribe();
        loop {
            if self.stop.is_cancelled() {
                return None;
            }
            match self.container() {
                Ok(container) => return Some(container),
                Err(EnvironmentError::Missing(message)) => {
                    self.event("Warning", "Failed", &format!("Error: {message}"));
                    self.tell(News::Waiting { reason: "CreateContainerConfigError", message });
                }
                Err(error @ EnvironmentError::Unresolved(_)) => {
                    self.tell(News::Waiting { reason: "ContainerCreating", message: error.to_string() });
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => return None,
                () = sources::changed(&mut changes, &self.pod) => {}
            }
        }
    }

    fn container(&self) -> Result<Container, EnvironmentError> {
        let (namespace, pod) = (object::namespace(&self.pod), object::name(&self.pod));
        let sources = InNamespace::of(&self.shared.server, &self.pod);
        let env = environment::resolve(&self.spec, &self.pod, &sources)?;
        let variables = env.iter().cloned().collect();
        let words = |field: &str| {
            let list = object::strings(self.spec.get(field));
            list.into_iter().map(|word| environment::expand(word, &variables)).collect()
        };
        let name = object::text(&self.spec, "/name");
        let folder = self.shared.folder(&self.pod, [&self.spec]);
        let missing = |error: VolumeError| EnvironmentError::Missing(error.to_string());
        let with_claims =
            folder.as_ref().map(|_| volumes::resolved(&self.pod, &sources)).transpose().map_err(missing)?;
        let mounts = folder.as_deref().zip(with_claims.as_deref());
        let mounts = mounts.map(|(folder, pod)| volumes::mounts(&self.spec, pod, folder, &variables));
        let mounts = mounts.transpose().map_err(missing)?;
        let container = Container {
            node: object::text(&self.pod, "/spec/nodeName").to_owned(),
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            pod_uid: object::uid(&self.pod).to_owned(),
            name: name.to_owned(),
            image: object::text(&self.spec, "/image").to_owned(),
            purpose: self.purpose,
            command: words("command"),
            args: words("args"),
            address: self.address,
            ports: tcp_ports(&self.spec),
            working_dir: self.spec.get("workingDir").and_then(Value::as_str).map(str::to_owned),
            labels: ownership::labels(&self.pod),
            resources: self.spec.get("resources").cloned().unwrap_or_default(),
            log: self.shared.logs.start(namespace, pod, name),
            folder: folder.map(|folder| folder.join("containers").join(name)),
            mounts: mounts.unwrap_or_default(),
            env,
        };
        self.tell_mounts(&container);
        // It lies deepest, so it is the first that is looked for.
        let last_words = self.termination().begin().map_err(EnvironmentError::Missing)?;
        let mounts = last_words.into_iter().chain(container.mounts).collect();
        Ok(Container { mounts, ..container })
    }

    fn termination(&self) -> Termination {
        Termination::of(&self.spec, self.shared.folder(&self.pod, [&self.spec]).as_deref())
    }

    /// Says where mounts are, and of which the program cannot know.
    fn tell_mounts(&self, container: &Container) {
        let words = || {
            let values = container.env.iter().map(|(_, value)| value);
            let all = container.command.iter().chain(&container.args).chain(values).chain(&container.working_dir);
            all.map(String::as_str)
        };
        let elsewhere = container.mounts.iter().filter(|mount| std::path::Path::new(&mount.path) != mount.lies);
        let (named, hidden): (Vec<&Mount>, Vec<&Mount>) =
            elsewhere.partition(|mount| paths::is_reachable(mount, words()));
        for mount in named {
            let message = format!(
                "{} of container {} is {} on this machine; its command, arguments and variables say so",
                mount.path,
                container.name,
                mount.lies.display()
            );
            self.event("Normal", "MountRewritten", &message);
        }
        // A scratch folder that this machine has, such as /dev/shm, is as good as the volume.
        let served = |mount: &&Mount| self.is_scratch(mount) && std::path::Path::new(&mount.path).is_dir();
        for mount in hidden.into_iter().filter(|mount| !served(mount)) {
            let message = format!(
                "container {} does not see its mount {}: no command, argument or variable names that path, and there is no mount namespace; it is {} on this machine",
                container.name,
                mount.path,
                mount.lies.display()
            );
            self.event("Warning", "MountHidden", &message);
        }
    }

    fn is_scratch(&self, mount: &Mount) -> bool {
        mount.lies.iter().any(|part| part == "kubernetes.io~empty-dir")
    }

    fn event(&self, kind: &str, reason: &str, message: &str) {
        self.shared.server.event(&self.pod, kind, reason, message, "kubelet");
    }

    fn tell(&self, news: News) {
        // The Pod's task outlives its containers' tasks.
        let _ = self.news.send((self.index, news));
    }

    fn now(&self) -> String {
        object::time(self.shared.ports.clock.now())
    }
}

/// `terminationGracePeriodSeconds`, or what the delete asked for.
pub(crate) fn grace(pod: &Value) -> Duration {
    let seconds = pod
        .pointer("/metadata/deletionGracePeriodSeconds")
        .or_else(|| pod.pointer("/spec/terminationGracePeriodSeconds"))
        .and_then(Value::as_u64);
    Duration::from_secs(seconds.unwrap_or(30))
}

/// `10s`, `1m20s`, `5m0s`, as Go prints durations.
fn human(duration: Duration) -> String {
    match (duration.as_secs() / 60, duration.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

impl News {
    /// The phase that this news puts a container in, if any.
    pub(crate) fn phase(&self, now: &str) -> Option<Phase> {
        match self {
            Self::Waiting { reason, message } => {
                Some(Phase::Waiting { reason: (*reason).to_owned(), message: message.clone() })
            }
            Self::Running => Some(Phase::Running { since: now.to_owned() }),
            Self::Ended(ended) => Some(Phase::Ended(ended.clone())),
            Self::Found(_) | Self::Done => None,
        }
    }
}

/// Those without a protocol are TCP.
fn tcp_ports(container: &Value) -> Vec<u16> {
    let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
    let tcp = ports.filter(|port| matches!(object::text(port, "/protocol"), "" | "TCP"));
    tcp.filter_map(|port| u16::try_from(port.get("containerPort")?.as_u64()?).ok()).collect()
}
