//! One container over its runs: configure, run, probe, wait, again.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::agent::Shared;
use super::environment::{self, EnvironmentError, Sources};
use super::probes::{Finding, Probes, Target};
use super::restart::{BackOff, Policy};
use super::status::{Ended, Phase};
use crate::Server;
use crate::object;
use crate::ports::{Container, Exit, Purpose};
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

/// What a killed process leaves.
const KILLED: i32 = 137;

impl Supervisor {
    /// Runs the container until it is done or stopped.
    pub(crate) async fn supervise(self) {
        let mut back_off = BackOff::default();
        while let Some(container) = self.configure().await {
            let begun = Instant::now();
            let started = self.now();
            let log = container.log.clone();
            self.tell(News::Running);
            let exit = self.once(container).await;
            log.close();
            let ended = Ended { code: exit.code, message: exit.message, started, finished: self.now() };
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

    /// One run with its probes.
    async fn once(&self, container: Container) -> Exit {
        let stop = self.stop.child_token();
        let ports = &self.shared.ports;
        let target = Target {
            network: Arc::clone(&ports.network),
            runner: Arc::clone(&ports.runner),
            container: container.clone(),
        };
        let mut run = ports.runner.run(container, stop.clone());
        let probes = Probes::of(&self.spec);
        let tell = |finding| self.tell(News::Found(finding));
        let failed = tokio::select! {
            exit = &mut run => return exit,
            probe = probes.watch(&target, &tell) => probe,
        };
        let name = object::text(&self.spec, "/name");
        self.event("Normal", "Killing", &format!("Container {name} failed {failed} probe, will be restarted"));
        stop.cancel();
        let killed = Exit { code: KILLED, message: String::new() };
        timeout(grace(&self.pod), run).await.unwrap_or(killed)
    }

    /// The back-off; false when stopped meanwhile.
    async fn wait(&self, wait: Duration) -> bool {
        let (name, pod) = (object::text(&self.spec, "/name"), object::name(&self.pod));
        let full = format!("{pod}_{}({})", object::namespace(&self.pod), object::uid(&self.pod));
        let message = format!("back-off {} restarting failed container={name} pod={full}", human(wait));
        self.tell(News::Waiting { reason: "CrashLoopBackOff", message });
        self.event("Warning", "BackOff", &format!("Back-off restarting failed container {name} in pod {full}"));
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(wait) => true,
        }
    }

    /// The container with its environment; waits while something it refers to is missing. `None` when stopped.
    async fn configure(&self) -> Option<Container> {
        let mut changes = self.shared.server.subscribe();
        loop {
            if self.stop.is_cancelled() {
                return None;
            }
            let sources = InNamespace { server: &self.shared.server, namespace: object::namespace(&self.pod) };
            match environment::resolve(&self.spec, &self.pod, &sources) {
                Ok(env) => return Some(self.container(env)),
                Err(EnvironmentError::Missing(message)) => {
                    self.event("Warning", "Failed", &format!("Error: {message}"));
                    self.tell(News::Waiting { reason: "CreateContainerConfigError", message });
                }
                Err(error @ EnvironmentError::Unresolved(_)) => {
                    self.tell(News::Waiting { reason: "ContainerCreating", message: error.to_string() });
                }
            }
            loop {
                let change = tokio::select! {
                    () = self.stop.cancelled() => return None,
                    change = changes.next() => change,
                };
                let relevant = change.is_ok_and(|change| {
                    matches!(change.resource.as_str(), "configmaps" | "secrets" | "pods")
                        && change.namespace == object::namespace(&self.pod)
                        && change.name != object::name(&self.pod)
                });
                if relevant {
                    break;
                }
            }
        }
    }

    fn container(&self, env: Vec<(String, String)>) -> Container {
        let variables = env.iter().cloned().collect();
        let words = |field: &str| {
            let list = object::strings(self.spec.get(field));
            list.into_iter().map(|word| environment::expand(word, &variables)).collect()
        };
        let (namespace, pod) = (object::namespace(&self.pod), object::name(&self.pod));
        let name = object::text(&self.spec, "/name");
        Container {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            pod_uid: object::uid(&self.pod).to_owned(),
            name: name.to_owned(),
            image: object::text(&self.spec, "/image").to_owned(),
            purpose: self.purpose,
            command: words("command"),
            args: words("args"),
            address: self.address,
            working_dir: self.spec.get("workingDir").and_then(Value::as_str).map(str::to_owned),
            labels: ownership::labels(&self.pod),
            resources: self.spec.get("resources").cloned().unwrap_or_default(),
            log: self.shared.logs.start(namespace, pod, name),
            env,
        }
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

struct InNamespace<'a> {
    server: &'a Server,
    namespace: &'a str,
}

impl Sources for InNamespace<'_> {
    fn config_map(&self, name: &str) -> Option<Arc<Value>> {
        self.server.get("configmaps", self.namespace, name)
    }

    fn secret(&self, name: &str) -> Option<Arc<Value>> {
        self.server.get("secrets", self.namespace, name)
    }

    fn pod(&self, name: &str) -> Option<Arc<Value>> {
        self.server.get("pods", self.namespace, name)
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
