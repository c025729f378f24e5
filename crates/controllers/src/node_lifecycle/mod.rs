//! The node controllers of kube-controller-manager: taints derived from conditions, unreachable nodes, taint-based
//! eviction, and garbage collection of Pods whose node no longer exists.
//!
//! Each rule is a pure function ([`taints`], [`heartbeat`], [`eviction`]); this module is the work queue that calls
//! them. A Pod is evaluated only when it is bound or its node changes, so an idle cluster causes no work.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, reason = "numbers of users enter every computation"))]

mod eviction;
mod heartbeat;
mod taints;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::condition::{self, Condition};
use apimachinery::{PanicBackOff, catch_panic, object, pod};
use apiserver::{Change, Server};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::due_time;
use eviction::TolerationStatus;

const LEASES: &str = "leases.coordination.k8s.io";
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// A key of the work queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum QueueKey {
    /// Name.
    Node(String),
    /// Namespace and name.
    Pod(String, String),
}

/// The work queue of the controller and its dependencies.
struct NodeLifecycleController {
    server: Server,
    /// Keys to evaluate now.
    queue: BTreeSet<QueueKey>,
    /// Keys to evaluate later, with their due times.
    delayed: BTreeMap<QueueKey, Instant>,
    panics: PanicBackOff<QueueKey>,
}

/// Runs the node lifecycle controller until `stop` is cancelled. The loop sleeps until an object changes or a delayed
/// key is due.
pub async fn run_node_lifecycle_controller(server: Server, stop: CancellationToken) {
    let mut changes = server.subscribe();
    let mut controller = NodeLifecycleController::new(server);
    controller.enqueue_all();
    loop {
        controller.process_queue().await;
        let delay = controller.time_until_next_delayed();
        tokio::select! {
            // The order is fixed, so that a run on a virtual clock is reproducible.
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(delay.unwrap_or_default()), if delay.is_some() => controller.enqueue_due(),
            change = changes.next() => match change {
                Ok(change) => controller.enqueue_affected(&change),
                Err(_lagged) => controller.enqueue_all(),
            },
        }
    }
}

// === impl NodeLifecycleController ===

impl NodeLifecycleController {
    fn new(server: Server) -> Self {
        Self { server, queue: BTreeSet::new(), delayed: BTreeMap::new(), panics: PanicBackOff::default() }
    }

    /// Enqueues all nodes and Pods, and the delayed keys, whose objects may be deleted.
    fn enqueue_all(&mut self) {
        self.queue.extend(self.server.list("nodes").iter().map(|node| QueueKey::Node(object::name(node).to_owned())));
        self.queue.extend(self.server.list("pods").iter().map(|pod| QueueKey::pod(pod)));
        self.queue.extend(self.delayed.keys().cloned());
    }

    /// Enqueues the node or Pod that a change affects. If this panics, enqueues the changed object: its evaluation is
    /// delayed after a panic.
    fn enqueue_affected(&mut self, change: &Change) {
        if let Err(panic) = catch_panic(|| self.handle_change(change)) {
            tracing::error!(resource = change.resource, name = change.name, %panic, "failed to handle a change");
            self.queue.extend(match change.resource.as_str() {
                "pods" => Some(QueueKey::Pod(change.namespace.clone(), change.name.clone())),
                "nodes" | LEASES => Some(QueueKey::Node(change.name.clone())),
                _ => None,
            });
        }
    }

    /// Enqueues the node or Pod that a change affects.
    fn handle_change(&mut self, change: &Change) {
        match change.resource.as_str() {
            "nodes" if is_relevant(change) => {
                self.queue.insert(QueueKey::Node(change.name.clone()));
            }
            LEASES if change.namespace == LEASE_NAMESPACE => {
                self.queue.insert(QueueKey::Node(change.name.clone()));
            }
            "pods" => {
                let node = |pod: &Option<Arc<Value>>| {
                    pod.as_ref().map(|pod| object::text(pod, "/spec/nodeName").to_owned()).unwrap_or_default()
                };
                if node(&change.new) != node(&change.old) {
                    self.queue.insert(QueueKey::Pod(change.namespace.clone(), change.name.clone()));
                }
            }
            _ => {}
        }
    }

    /// Evaluates all queued keys. A key that causes a panic is retried later, so that it does not stop the others.
    /// Other tasks of the worker continue between the keys.
    async fn process_queue(&mut self) {
        while let Some(key) = self.queue.pop_first() {
            self.server.before_write().await;
            self.delayed.remove(&key);
            let object = match &key {
                QueueKey::Node(name) => self.server.get("nodes", "", name),
                QueueKey::Pod(namespace, name) => self.server.get("pods", namespace, name),
            };
            let Some(object) = object else {
                self.panics.reset(&key);
                self.sync_removed(&key);
                continue;
            };
            let uid = object::uid(&object);
            if let Some(retry_at) = self.panics.retry_at(&key, uid, due_time::monotonic_now()) {
                self.delayed.insert(key, retry_at.into());
                continue;
            }
            let sync = || match &key {
                QueueKey::Node(name) => self.sync_node(name, &object),
                QueueKey::Pod(..) => self.sync_pod(&object),
            };
            match catch_panic(sync) {
                Ok(()) => self.panics.reset(&key),
                Err(panic) => {
                    let retry_at = self.panics.record(key.clone(), uid, due_time::monotonic_now());
                    self.server.report_panic(&object, &panic, "node-controller");
                    self.delayed.insert(key, retry_at.into());
                }
            }
        }
    }

    /// Checks the heartbeat of a node, updates its taints and enqueues its Pods.
    fn sync_node(&mut self, name: &str, node: &Value) {
        self.check_heartbeat(node);
        if let Some(node) = self.server.get("nodes", "", name) {
            self.update_taints(&node);
        }
        self.enqueue_pods_of_node(name);
    }

    /// Enqueues the Pods of a removed node.
    fn sync_removed(&mut self, key: &QueueKey) {
        if let QueueKey::Node(name) = key {
            self.enqueue_pods_of_node(name);
        }
    }

    fn enqueue_pods_of_node(&mut self, name: &str) {
        let pods = self.server.list("pods");
        let node_pods = pods.iter().filter(|pod| object::text(pod, "/spec/nodeName") == name);
        self.queue.extend(node_pods.map(|pod| QueueKey::pod(pod)));
    }

    /// Checks the Lease of the node and marks the node as unreachable when it has expired.
    fn check_heartbeat(&mut self, node: &Value) {
        let name = object::name(node);
        let lease = self.server.get(LEASES, LEASE_NAMESPACE, name);
        let Some(unreachable_at) = heartbeat::unreachable_at(lease.as_deref()) else { return };
        let now = self.server.now();
        if unreachable_at > now {
            let due_at = due_time::instant_of(unreachable_at, &self.server);
            self.delayed.insert(QueueKey::Node(name.to_owned()), due_at);
            return;
        }
        let Some(status) = heartbeat::unreachable_status(node, &object::format_time(now)) else { return };
        let mut updated = node.clone();
        object::members(&mut updated).insert("status".to_owned(), status);
        let message = format!("Node {name} status is now: NodeNotReady");
        match self.server.update_status("nodes", updated) {
            Ok(stored) => self.server.record_event(&stored, "Normal", "NodeNotReady", &message, "node-controller"),
            // A concurrent write enqueues the node again.
            Err(status) => tracing::debug!(name, %status, "failed to mark an unreachable node"),
        }
    }

    /// Updates the taints that are derived from the conditions of the node.
    fn update_taints(&self, node: &Value) {
        let now = object::format_time(self.server.now());
        let Some(taints) = taints::desired_taints(node, &now) else { return };
        let mut updated = node.clone();
        let spec = object::members(&mut updated).entry("spec").or_insert_with(|| json!({}));
        match taints.as_array().is_some_and(Vec::is_empty) {
            true => object::members(spec).remove("taints"),
            false => object::members(spec).insert("taints".to_owned(), taints),
        };
        if let Err(status) = self.server.update("nodes", updated) {
            tracing::debug!(name = object::name(node), %status, "failed to update the taints of a node");
        }
    }

    /// Evicts a Pod that may not stay on its node, or deletes it when its node no longer exists.
    fn sync_pod(&mut self, pod: &Value) {
        let node = object::text(pod, "/spec/nodeName");
        if node.is_empty() {
            return;
        }
        let Some(node) = self.server.get("nodes", "", node) else { return self.delete_orphaned_pod(pod) };
        if object::is_deleting(pod) {
            return;
        }
        match eviction::check_toleration(pod, &node, self.server.now()) {
            TolerationStatus::Tolerated => {}
            TolerationStatus::TemporarilyTolerated(at) => {
                self.delayed.insert(QueueKey::pod(pod), due_time::instant_of(at, &self.server));
            }
            TolerationStatus::NotTolerated => self.evict(pod),
        }
    }

    /// Deletes a Pod that does not tolerate a taint of its node.
    fn evict(&self, pod: &Value) {
        let (namespace, name) = (object::namespace(pod), object::name(pod));
        let message = format!("Marking for deletion Pod {namespace}/{name}");
        self.server.record_event(pod, "Normal", "TaintManagerEviction", &message, "taint-eviction-controller");
        self.set_disruption_target(
            pod,
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
            None,
        );
        if let Err(status) = self.server.delete("pods", namespace, name, Some(object::uid(pod))) {
            tracing::debug!(namespace, name, %status, "failed to evict a Pod");
        }
    }

    /// Removes a Pod whose node no longer exists, without a grace period, as no kubelet can terminate it.
    fn delete_orphaned_pod(&self, pod: &Value) {
        let (namespace, name) = (object::namespace(pod), object::name(pod));
        if !pod::is_finished(pod) {
            self.set_disruption_target(pod, "DeletionByPodGC", "PodGC: node no longer exists", Some("Failed"));
        }
        if let Err(status) = self.server.force_delete("pods", namespace, name, Some(object::uid(pod))) {
            tracing::debug!(namespace, name, %status, "failed to delete a Pod without a node");
        }
    }

    /// Sets the condition `DisruptionTarget`.
    fn set_disruption_target(&self, pod: &Value, reason: &str, message: &str, phase: Option<&str>) {
        let mut pod = pod.clone();
        let status = object::members(&mut pod).entry("status").or_insert_with(|| json!({}));
        let condition = Condition { type_: "DisruptionTarget", status: true, reason, message };
        condition::set(status, condition, &object::format_time(self.server.now()));
        if let Some(phase) = phase {
            status["phase"] = json!(phase);
        }
        // An error is ignored, because the Pod is deleted with or without the condition.
        let _ = self.server.update_status("pods", pod);
    }

    /// Returns the time until the next delayed key is due.
    fn time_until_next_delayed(&self) -> Option<Duration> {
        let next_at = self.delayed.values().min()?;
        Some(due_time::duration_until(*next_at))
    }

    /// Moves delayed keys that are due into the queue.
    fn enqueue_due(&mut self) {
        let now = Instant::now();
        let due_keys = self.delayed.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone());
        self.queue.extend(due_keys.collect::<Vec<_>>());
    }
}

/// Whether a change of a node affects taints or Pods; heartbeats and images do not.
fn is_relevant(change: &Change) -> bool {
    let relevant_fields = |node: &Option<Arc<Value>>| {
        let node = node.as_ref()?;
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let condition_statuses: Vec<String> = conditions
            .map(|condition| format!("{}={}", object::text(condition, "/type"), object::text(condition, "/status")))
            .collect();
        Some((node.pointer("/spec/taints").cloned(), node.pointer("/spec/unschedulable").cloned(), condition_statuses))
    };
    change.old.is_none() || relevant_fields(&change.old) != relevant_fields(&change.new)
}

// === impl QueueKey ===

impl QueueKey {
    fn pod(pod: &Value) -> Self {
        Self::Pod(object::namespace(pod).to_owned(), object::name(pod).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use apiserver::ports::ServerPorts;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deleted_pods_are_not_delayed_after_missed_changes() {
        let server = Server::new(&ServerPorts::default());
        let taint = json!({"key": "gone", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
        server.create("nodes", json!({"metadata": {"name": "n"}, "spec": {"taints": [taint]}})).unwrap();
        let toleration = json!({"key": "gone", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 999_999_999_999_i64});
        let spec = json!({"nodeName": "n", "tolerations": [toleration], "containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec});
        server.create("pods", pod).unwrap();
        let mut controller = NodeLifecycleController::new(server);
        controller.enqueue_all();
        controller.process_queue().await;
        let key = QueueKey::Pod("default".to_owned(), "p".to_owned());
        assert!(controller.delayed.contains_key(&key), "the end of the toleration");
        controller.server.force_delete("pods", "default", "p", None).unwrap();
        controller.enqueue_all();
        controller.process_queue().await;
        assert!(controller.delayed.is_empty(), "{:?}", controller.delayed);
    }
}
