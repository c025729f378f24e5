//! The sync loop: starts a worker per Pod and forwards changes to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::condition::{self, Condition};
use apimachinery::{PanicBackOff, catch_panic, object, persistent_volume, pod};
use apiserver::{Change, Server};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::container;
use crate::context::{HOST_IP, NodeContext, NodeDirectories};
use crate::device_manager::DeviceManager;
use crate::devices::Devices;
use crate::logs::ContainerLogs;
use crate::network::Network;
use crate::pod_admission;
use crate::pod_ip_allocator::PodIpAllocator;
use crate::pod_lifecycle;
use crate::pod_signals::PodSignals;
use crate::runtime::ContainerRuntime;

/// The state of the sync loop.
struct NodeAgent {
    context: Arc<NodeContext>,
    shutdown: CancellationToken,
    /// Signals of the running workers by Pod UID.
    pods: BTreeMap<String, PodSignals>,
    tasks: JoinSet<String>,
    panics: PanicBackOff<ObjectKey>,
    /// Objects to sync later because their last sync panicked.
    delayed: BTreeSet<ObjectKey>,
}

/// An object that the sync loop acts on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectKey {
    /// Name.
    Node(String),
    /// Namespace and name.
    Pod(String, String),
}

/// Runs the Pods of all nodes until `stop` is cancelled, then terminates all containers and returns.
pub async fn run_node_agent(
    server: Server,
    runtime: Arc<dyn ContainerRuntime>,
    network: Arc<dyn Network>,
    devices: Arc<dyn Devices>,
    directories: NodeDirectories,
    stop: CancellationToken,
) {
    let mut changes = server.subscribe();
    let pods = server.list("pods").iter().map(|pod| object::uid(pod).to_owned()).collect();
    let logs = ContainerLogs::new(directories.logs.clone(), Arc::clone(server.clock()), &pods);
    server.set_pod_logs(Arc::new(logs.clone()));
    let pod_ips = PodIpAllocator::new(server.random());
    let context = Arc::new(NodeContext {
        server,
        runtime,
        network,
        devices: DeviceManager::new(devices),
        logs,
        pod_ips,
        directories,
    });
    let mut agent = NodeAgent {
        context,
        shutdown: CancellationToken::new(),
        pods: BTreeMap::new(),
        tasks: JoinSet::new(),
        panics: PanicBackOff::default(),
        delayed: BTreeSet::new(),
    };
    agent.context.remove_orphaned_pod_dirs();
    agent.restore_devices();
    agent.sync_all();
    loop {
        let retry_delay = agent.time_until_next_retry();
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(retry_delay.unwrap_or_default()), if retry_delay.is_some() => agent.retry_due(),
            Some(ended) = agent.tasks.join_next() => {
                // Panics of a worker are handled by its task.
                match ended {
                    Ok(uid) => {
                        agent.pods.remove(&uid);
                    }
                    Err(error) => tracing::error!(%error, "the task of a Pod failed"),
                }
            }
            change = changes.next() => match change {
                Ok(change) if change.resource == "pods" => match (&change.old, &change.new) {
                    (_, Some(pod)) => agent.sync_pod(pod),
                    (Some(pod), None) => agent.handle_removed_pod(object::uid(pod)),
                    (None, None) => {}
                },
                Ok(change) if change.resource == "nodes" => match (&change.old, &change.new) {
                    (None, Some(node)) => agent.sync_node(node),
                    (Some(old), Some(node)) if is_ready(old) != is_ready(node) => agent.refresh_pods_of_node(object::name(node)),
                    _ => {}
                },
                Ok(Change { resource, old: Some(volume), new: None, .. }) if resource == persistent_volume::VOLUMES => {
                    if let Err(panic) = catch_panic(|| agent.context.remove_volume(&volume)) {
                        tracing::error!(name = object::name(&volume), %panic, "failed to remove a volume");
                    }
                }
                Ok(_) => {}
                Err(_lagged) => agent.sync_all(),
            },
        }
    }
    agent.shutdown.cancel();
    while agent.tasks.join_next().await.is_some() {}
}

// === impl NodeAgent ===

impl NodeAgent {
    /// Syncs all nodes and Pods. Stops the workers of Pods that no longer exist. The other workers update the Pod
    /// status if it differs from the stored one, because an earlier write may have been rejected or rolled back.
    fn sync_all(&mut self) {
        for node in self.context.server.list("nodes") {
            self.sync_node(&node);
        }
        let pods = self.context.server.list("pods");
        for (uid, signals) in &self.pods {
            if !pods.iter().any(|pod| object::uid(pod) == uid) {
                signals.removed.cancel();
            }
            signals.refresh.notify_one();
        }
        for pod in pods {
            self.sync_pod(&pod);
        }
    }

    /// Handles the current state of a node.
    fn sync_node(&mut self, node: &Value) {
        self.guard(ObjectKey::Node(object::name(node).to_owned()), node, |agent| agent.mark_node_ready(node));
    }

    /// Handles the current state of a Pod.
    fn sync_pod(&mut self, pod: &Arc<Value>) {
        let key = ObjectKey::Pod(object::namespace(pod).to_owned(), object::name(pod).to_owned());
        self.guard(key, pod, |agent| agent.handle_pod(pod));
    }

    /// Runs `sync` unless the object is delayed. After a panic, the object is synced later, so that it does not stop the
    /// others.
    fn guard(&mut self, key: ObjectKey, object: &Value, sync: impl FnOnce(&mut Self)) {
        let (uid, now) = (object::uid(object), Instant::now().into_std());
        if self.panics.retry_at(&key, uid, now).is_some() {
            return;
        }
        self.delayed.remove(&key);
        match catch_panic(|| sync(self)) {
            Ok(()) => self.panics.reset(&key),
            Err(panic) => {
                self.panics.record(key.clone(), uid, now);
                self.delayed.insert(key);
                self.context.server.report_panic(object, &panic, "kubelet");
            }
        }
    }

    /// Syncs the delayed objects that are due.
    fn retry_due(&mut self) {
        for key in std::mem::take(&mut self.delayed) {
            let server = &self.context.server;
            let object = match &key {
                ObjectKey::Node(name) => server.get("nodes", "", name),
                ObjectKey::Pod(namespace, name) => server.get("pods", namespace, name),
            };
            let Some(object) = object else {
                self.panics.reset(&key);
                continue;
            };
            self.delayed.insert(key.clone());
            match key {
                ObjectKey::Node(_) => self.sync_node(&object),
                ObjectKey::Pod(..) => self.sync_pod(&object),
            }
        }
    }

    /// Returns the time until the next delayed object is due.
    fn time_until_next_retry(&self) -> Option<Duration> {
        if self.delayed.is_empty() {
            return None;
        }
        let now = Instant::now().into_std();
        Some(self.panics.next_retry(now).map_or(Duration::ZERO, |at| at.saturating_duration_since(now)))
    }

    /// Starts a worker for a bound Pod, or forwards its deletion and changes of the grace period to the worker.
    fn handle_pod(&mut self, pod: &Arc<Value>) {
        if object::text(pod, "/spec/nodeName").is_empty() {
            return;
        }
        let uid = object::uid(pod).to_owned();
        let is_deleting = object::is_deleting(pod);
        if let Some(signals) = self.pods.get(&uid) {
            if is_deleting {
                signals.delete(container::grace_period(pod));
            }
            return;
        }
        if is_deleting {
            // No worker exists that could terminate this Pod. An error means that the Pod no longer exists.
            self.context.devices.release(pod);
            let _ = self.context.server.force_delete("pods", object::namespace(pod), object::name(pod), Some(&uid));
        } else if !pod::is_finished(pod) {
            self.start_worker(uid, Arc::clone(pod));
        }
    }

    /// Restores the devices of Pods that an earlier agent admitted, before this one admits others.
    fn restore_devices(&self) {
        for pod in self.context.server.list("pods").iter().filter(|pod| !pod::is_finished(pod)) {
            self.context.devices.restore(pod);
        }
    }

    /// Spawns the worker of a Pod if the node admits it.
    fn start_worker(&mut self, uid: String, pod: Arc<Value>) {
        if !pod_admission::admit(&self.context, &pod) {
            return;
        }
        let signals = PodSignals::new(self.shutdown.clone());
        self.pods.insert(uid.clone(), signals.clone());
        let context = Arc::clone(&self.context);
        let worker = pod_lifecycle::run(Arc::clone(&context), Arc::clone(&pod), signals);
        self.tasks.spawn(async move {
            worker.await;
            context.devices.release(&pod);
            uid
        });
    }

    /// Notifies the workers of all Pods on a node, which then update the Pod status.
    fn refresh_pods_of_node(&self, node: &str) {
        for pod in self.context.server.list("pods") {
            if object::text(&pod, "/spec/nodeName") == node
                && let Some(signals) = self.pods.get(object::uid(&pod))
            {
                signals.refresh.notify_one();
            }
        }
    }

    /// Stops the worker of a Pod that was removed from the API.
    fn handle_removed_pod(&mut self, uid: &str) {
        if let Some(signals) = self.pods.get(uid) {
            signals.removed.cancel();
        }
    }

    /// Acts as the kubelet of a node that is not ready: sets its condition `Ready` and `status.nodeInfo`.
    fn mark_node_ready(&self, node: &Value) {
        if condition::is_true(node, "Ready") {
            return;
        }
        let now = object::format_time(self.context.server.now());
        let name = object::name(node).to_owned();
        let mut node = node.clone();
        let status = object::members(&mut node).entry("status").or_insert_with(|| json!({}));
        let info = object::members(status).entry("nodeInfo").or_insert_with(|| json!({}));
        for (field, value) in node_info() {
            let entry = object::members(info).entry(field).or_insert_with(|| json!(""));
            if *entry == "" {
                *entry = json!(value);
            }
        }
        let addresses = json!([{"type": "InternalIP", "address": HOST_IP}, {"type": "Hostname", "address": name}]);
        object::members(status).entry("addresses").or_insert(addresses);
        let message = "kubelet is posting ready status";
        condition::set(status, Condition { type_: "Ready", status: true, reason: "KubeletReady", message }, &now);
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
        for condition in conditions.filter(|condition| condition["type"] == "Ready") {
            condition["lastHeartbeatTime"] = json!(now);
        }
        if let Err(status) = self.context.server.update_status("nodes", node) {
            tracing::debug!(%status, "failed to update the status of the node");
        }
    }
}

fn is_ready(node: &Value) -> bool {
    condition::is_true(node, "Ready")
}

/// Returns the node info of the host, as shown by `kubectl get nodes -o wide`.
fn node_info() -> [(&'static str, String); 6] {
    let read_file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let release = read_file("/etc/os-release");
    let pretty_name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    [
        ("kubeletVersion", apiserver::KUBERNETES_VERSION.to_owned()),
        ("kernelVersion", read_file("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("osImage", pretty_name.unwrap_or(std::env::consts::OS).trim_matches('"').to_owned()),
        ("operatingSystem", std::env::consts::OS.to_owned()),
        ("architecture", std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64")),
        ("containerRuntimeVersion", format!("processes://{}", env!("CARGO_PKG_VERSION"))),
    ]
}
