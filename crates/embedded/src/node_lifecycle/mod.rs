//! What a real cluster's controllers do about nodes: taints that follow from conditions, nodes that are lost, Pods that
//! may not stay, and Pods whose node is gone.
//!
//! Each rule is a pure function ([`taints`], [`heartbeat`], [`eviction`]); this file is the shell that knows when to ask
//! them. A Pod is only looked at when it comes to a node or its node changed, so a quiet cluster does nothing.

mod eviction;
mod heartbeat;
mod taints;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Server;
use crate::object;
use crate::ports::Ports;
use crate::watch::Change;
use crate::workloads::condition::{self, Condition};
use eviction::Stay;

const LEASES: &str = "leases.coordination.k8s.io";
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Node(String),
    /// Namespace and name.
    Pod(String, String),
}

struct Controller {
    server: Server,
    ports: Ports,
    due: BTreeSet<Due>,
    wakes: BTreeMap<Due, Timestamp>,
}

/// Runs until `stop`. Sleeps unless something changed or a moment it waits for came.
pub async fn run(server: Server, ports: Ports, stop: CancellationToken) {
    let mut changes = server.subscribe();
    let mut controller = Controller { server, ports, due: BTreeSet::new(), wakes: BTreeMap::new() };
    controller.everything();
    loop {
        controller.work();
        tokio::select! {
            () = stop.cancelled() => return,
            () = wait(controller.until_next_wake()) => controller.ring(),
            change = changes.next() => match change {
                Ok(change) => controller.note(&change),
                Err(_lagged) => controller.everything(),
            },
        }
    }
}

async fn wait(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

// === impl Controller ===

impl Controller {
    fn everything(&mut self) {
        self.due.extend(self.server.list("nodes").iter().map(|node| Due::Node(object::name(node).to_owned())));
        self.due.extend(self.server.list("pods").iter().map(|pod| Due::pod(pod)));
    }

    fn note(&mut self, change: &Change) {
        match change.resource.as_str() {
            "nodes" if concerns(change) => {
                self.due.insert(Due::Node(change.name.clone()));
            }
            LEASES if change.namespace == LEASE_NAMESPACE => {
                self.due.insert(Due::Node(change.name.clone()));
            }
            "pods" => {
                let node = |pod: &Option<Arc<Value>>| {
                    pod.as_ref().map(|pod| object::text(pod, "/spec/nodeName").to_owned()).unwrap_or_default()
                };
                if node(&change.new) != node(&change.old) {
                    self.due.insert(Due::Pod(change.namespace.clone(), change.name.clone()));
                }
            }
            _ => {}
        }
    }

    fn work(&mut self) {
        while let Some(due) = self.due.pop_first() {
            self.wakes.remove(&due);
            match &due {
                Due::Node(name) => self.node(name),
                Due::Pod(namespace, name) => self.pod(namespace, name),
            }
        }
    }

    fn node(&mut self, name: &str) {
        if let Some(node) = self.server.get("nodes", "", name) {
            self.listen(&node);
        }
        if let Some(node) = self.server.get("nodes", "", name) {
            self.taint(&node);
        }
        let pods = self.server.list("pods");
        let here = pods.iter().filter(|pod| object::text(pod, "/spec/nodeName") == name);
        self.due.extend(here.map(|pod| Due::pod(pod)));
    }

    /// Looks at the node's Lease.
    fn listen(&mut self, node: &Value) {
        let name = object::name(node);
        let lease = self.server.get(LEASES, LEASE_NAMESPACE, name);
        let Some(at) = heartbeat::lost_at(lease.as_deref()) else { return };
        let now = self.ports.clock.now();
        if at > now {
            self.wakes.insert(Due::Node(name.to_owned()), at);
            return;
        }
        let Some(status) = heartbeat::lost(node, &object::time(now)) else { return };
        let mut lost = node.clone();
        object::members(&mut lost).insert("status".to_owned(), status);
        let message = format!("Node {name} status is now: NodeNotReady");
        match self.server.update_status("nodes", lost) {
            Ok(stored) => self.server.event(&stored, "Normal", "NodeNotReady", &message, "node-controller"),
            // Whoever wrote in between starts the next look.
            Err(status) => tracing::debug!(name, %status, "a node that is lost was not marked"),
        }
    }

    fn taint(&self, node: &Value) {
        let now = object::time(self.ports.clock.now());
        let Some(taints) = taints::desired(node, &now) else { return };
        let mut tainted = node.clone();
        let spec = object::members(&mut tainted).entry("spec").or_insert_with(|| json!({}));
        match taints.as_array().is_some_and(Vec::is_empty) {
            true => object::members(spec).remove("taints"),
            false => object::members(spec).insert("taints".to_owned(), taints),
        };
        if let Err(status) = self.server.update("nodes", tainted) {
            tracing::debug!(name = object::name(node), %status, "taints were not written");
        }
    }

    fn pod(&mut self, namespace: &str, name: &str) {
        let Some(pod) = self.server.get("pods", namespace, name) else { return };
        let node = object::text(&pod, "/spec/nodeName");
        if node.is_empty() {
            return;
        }
        let Some(node) = self.server.get("nodes", "", node) else { return self.collect(&pod) };
        if object::is_deleting(&pod) {
            return;
        }
        match eviction::stay(&pod, &node, self.ports.clock.now()) {
            Stay::Allowed => {}
            Stay::Until(at) => {
                self.wakes.insert(Due::pod(&pod), at);
            }
            Stay::Over => self.evict(&pod),
        }
    }

    fn evict(&self, pod: &Value) {
        let (namespace, name) = (object::namespace(pod), object::name(pod));
        let message = format!("Marking for deletion Pod {namespace}/{name}");
        self.server.event(pod, "Normal", "TaintManagerEviction", &message, "taint-eviction-controller");
        self.disrupt(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", None);
        if let Err(status) = self.server.delete("pods", namespace, name, Some(object::uid(pod))) {
            tracing::debug!(namespace, name, %status, "a Pod that may not stay was not deleted");
        }
    }

    /// A Pod of a node that is gone goes at once: nobody is there to end it politely.
    fn collect(&self, pod: &Value) {
        let (namespace, name) = (object::namespace(pod), object::name(pod));
        let over = matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
        if !over {
            self.disrupt(pod, "DeletionByPodGC", "PodGC: node no longer exists", Some("Failed"));
        }
        if let Err(status) = self.server.remove("pods", namespace, name, Some(object::uid(pod))) {
            tracing::debug!(namespace, name, %status, "a Pod without a node stays");
        }
    }

    /// Says in the Pod's status that it was not its own fault.
    fn disrupt(&self, pod: &Value, reason: &str, message: &str, phase: Option<&str>) {
        let mut pod = pod.clone();
        let status = object::members(&mut pod).entry("status").or_insert_with(|| json!({}));
        let target = Condition { kind: "DisruptionTarget", status: true, reason, message };
        condition::set(status, target, &object::time(self.ports.clock.now()));
        if let Some(phase) = phase {
            status["phase"] = json!(phase);
        }
        // The deletion that follows does not depend on it.
        let _ = self.server.update_status("pods", pod);
    }

    fn until_next_wake(&self) -> Option<Duration> {
        let at = self.wakes.values().min()?;
        Some(at.duration_since(self.ports.clock.now()).try_into().unwrap_or_default())
    }

    fn ring(&mut self) {
        let now = self.ports.clock.now();
        let rung = self.wakes.iter().filter(|(_, at)| **at <= now).map(|(due, _)| due.clone());
        self.due.extend(rung.collect::<Vec<_>>());
    }
}

/// Heartbeats and images of a node concern nobody here.
fn concerns(change: &Change) -> bool {
    let facts = |node: &Option<Arc<Value>>| {
        let node = node.as_ref()?;
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let states: Vec<String> = conditions
            .map(|condition| format!("{}={}", object::text(condition, "/type"), object::text(condition, "/status")))
            .collect();
        Some((node.pointer("/spec/taints").cloned(), node.pointer("/spec/unschedulable").cloned(), states))
    };
    change.old.is_none() || facts(&change.old) != facts(&change.new)
}

// === impl Due ===

impl Due {
    fn pod(pod: &Value) -> Self {
        Self::Pod(object::namespace(pod).to_owned(), object::name(pod).to_owned())
    }
}
