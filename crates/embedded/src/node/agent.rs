//! Which Pods are ours, and what happens to them from outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::addresses::Addresses;
use super::lifecycle::{self, Signals};
use super::logs::Logs;
use super::shared::{Folders, HOST, Shared};
use crate::Server;
use crate::object;
use crate::ports::Ports;
use crate::watch::Change;
use crate::workloads::condition::{self, Condition};
use crate::workloads::volume_claim;

struct Agent {
    shared: Arc<Shared>,
    shutdown: CancellationToken,
    /// By UID.
    pods: BTreeMap<String, Signals>,
    tasks: JoinSet<String>,
}

/// Runs the Pods of all nodes until `stop`, then ends every container and returns.
pub async fn run(server: Server, ports: Ports, folders: Folders, stop: CancellationToken) {
    let mut changes = server.subscribe();
    let pods = server.list("pods").iter().map(|pod| object::uid(pod).to_owned()).collect();
    let logs = Logs::new(folders.logs.clone(), Arc::clone(&ports.clock), &pods);
    server.set_logs(Arc::new(logs.clone()));
    let addresses = Addresses::new(ports.random.as_ref());
    let shared = Arc::new(Shared { server, ports, logs, addresses, folders });
    let mut agent = Agent { shared, shutdown: CancellationToken::new(), pods: BTreeMap::new(), tasks: JoinSet::new() };
    agent.shared.sweep();
    agent.everything();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = agent.tasks.join_next() => {
                if let Ok(uid) = ended {
                    agent.pods.remove(&uid);
                }
            }
            change = changes.next() => match change {
                Ok(change) if change.resource == "pods" => match (&change.old, &change.new) {
                    (_, Some(pod)) => agent.note(pod),
                    (Some(pod), None) => agent.gone(object::uid(pod)),
                    (None, None) => {}
                },
                Ok(change) if change.resource == "nodes" => match (&change.old, &change.new) {
                    (None, Some(node)) => agent.join(node),
                    (Some(old), Some(node)) if is_ready(old) != is_ready(node) => agent.look(object::name(node)),
                    _ => {}
                },
                Ok(Change { resource, old: Some(volume), new: None, .. }) if resource == volume_claim::VOLUMES => {
                    agent.shared.remove_volume(&volume);
                }
                Ok(_) => {}
                Err(_lagged) => agent.everything(),
            },
        }
    }
    agent.shutdown.cancel();
    while agent.tasks.join_next().await.is_some() {}
}

// === impl Agent ===

impl Agent {
    /// Looks at every node and Pod; Pods that vanished unseen are ended, and the others write their status if it is not
    /// what is stored: a full disk may have refused it, or a failed write undone it.
    fn everything(&mut self) {
        for node in self.shared.server.list("nodes") {
            self.join(&node);
        }
        let pods = self.shared.server.list("pods");
        for (uid, signals) in &self.pods {
            if !pods.iter().any(|pod| object::uid(pod) == uid) {
                signals.gone.cancel();
            }
            signals.look.notify_one();
        }
        for pod in pods {
            self.note(&pod);
        }
    }

    fn note(&mut self, pod: &Arc<Value>) {
        if object::text(pod, "/spec/nodeName").is_empty() {
            return;
        }
        let uid = object::uid(pod).to_owned();
        let deleting = object::is_deleting(pod);
        if let Some(signals) = self.pods.get(&uid) {
            if deleting {
                signals.delete.cancel();
            }
            return;
        }
        if deleting {
            // Nothing of it runs here. A Pod that is gone meanwhile needs no removal.
            let _ = self.shared.server.remove("pods", object::namespace(pod), object::name(pod), Some(&uid));
        } else if !matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed") {
            self.admit(uid, Arc::clone(pod));
        }
    }

    fn admit(&mut self, uid: String, pod: Arc<Value>) {
        let signals = Signals { shutdown: self.shutdown.clone(), ..Signals::default() };
        self.pods.insert(uid.clone(), signals.clone());
        let work = lifecycle::run(Arc::clone(&self.shared), pod, signals);
        self.tasks.spawn(async move {
            work.await;
            uid
        });
    }

    /// The Pods of a node write their status anew.
    fn look(&self, node: &str) {
        for pod in self.shared.server.list("pods") {
            if object::text(&pod, "/spec/nodeName") == node
                && let Some(signals) = self.pods.get(object::uid(&pod))
            {
                signals.look.notify_one();
            }
        }
    }

    fn gone(&mut self, uid: &str) {
        if let Some(signals) = self.pods.get(uid) {
            signals.gone.cancel();
        }
    }

    /// A node whose kubelet has not said so is ready: this agent is its kubelet.
    fn join(&self, node: &Value) {
        if condition::is_true(node, "Ready") {
            return;
        }
        let now = object::time(self.shared.ports.clock.now());
        let name = object::name(node).to_owned();
        let mut node = node.clone();
        let status = object::members(&mut node).entry("status").or_insert_with(|| json!({}));
        let info = object::members(status).entry("nodeInfo").or_insert_with(|| json!({}));
        for (field, value) in node_info() {
            let slot = object::members(info).entry(field).or_insert_with(|| json!(""));
            if *slot == "" {
                *slot = json!(value);
            }
        }
        let addresses = json!([{"type": "InternalIP", "address": HOST}, {"type": "Hostname", "address": name}]);
        object::members(status).entry("addresses").or_insert(addresses);
        let message = "kubelet is posting ready status";
        condition::set(status, Condition { kind: "Ready", status: true, reason: "KubeletReady", message }, &now);
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
        for condition in conditions.filter(|condition| condition["type"] == "Ready") {
            condition["lastHeartbeatTime"] = json!(now);
        }
        if let Err(status) = self.shared.server.update_status("nodes", node) {
            tracing::debug!(%status, "the node's status was not written");
        }
    }
}

fn is_ready(node: &Value) -> bool {
    condition::is_true(node, "Ready")
}

/// What `kubectl get nodes -o wide` shows of this machine.
fn node_info() -> [(&'static str, String); 6] {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let release = read("/etc/os-release");
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    [
        ("kubeletVersion", crate::server::VERSION.to_owned()),
        ("kernelVersion", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("osImage", pretty.unwrap_or(std::env::consts::OS).trim_matches('"').to_owned()),
        ("operatingSystem", std::env::consts::OS.to_owned()),
        ("architecture", std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64")),
        ("containerRuntimeVersion", format!("processes://{}", env!("CARGO_PKG_VERSION"))),
    ]
}
