//! The scheduler: binds Pods to nodes, or says why it cannot, once per reason.
//!
//! A turn ([`turn`]) asks a pure function of Pods and nodes ([`assign`]); it runs after something changed that could make
//! a difference, and otherwise not at all. `schedulerName` `default-scheduler` and `volcano` are both served here; Pods of a
//! Volcano PodGroup are placed together ([`gang`]); who fits nowhere may take the room of Pods of lower priority
//! ([`preempt`]). One file has the rules of one of kube-scheduler's plugins: [`taints`],
//! [`node_affinity`], [`host_ports`], [`resources`], [`claims`], [`spread`] and [`affinity`]. [`filter`] asks them in their
//! order, [`explain`] says what came of it, and [`score`] chooses among the nodes that are left.

mod affinity;
mod assign;
mod budget;
mod candidate;
mod claims;
mod explain;
mod filter;
mod gang;
mod host_ports;
mod neighbours;
mod node_affinity;
mod place;
mod preempt;
mod reason;
mod resources;
mod score;
mod spread;
mod taints;
mod term;
mod turn;
mod world;

pub use place::fits;
pub use reason::Reason;
pub(crate) use taints::tolerates;
pub use turn::run;
pub use world::{Storage, World};

use std::sync::Arc;

use serde_json::Value;

use crate::object;

const POD_GROUPS: &str = "podgroups.scheduling.volcano.sh";
const GROUP_NAME: &str = "scheduling.k8s.io/group-name";

/// What became of one pending Pod.
#[derive(Debug)]
struct Verdict {
    pod: Arc<Value>,
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Bind {
        node: String,
    },
    Wait {
        reason: &'static str,
        message: String,
        /// The node that was promised to it stays promised.
        keeps_nomination: bool,
    },
    /// It waits for the room that others leave.
    Preempt {
        node: String,
        victims: Vec<Arc<Value>>,
        message: String,
    },
}

fn is_finished(pod: &Value) -> bool {
    matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

fn is_bound(pod: &Value) -> bool {
    !object::text(pod, "/spec/nodeName").is_empty() && !is_finished(pod)
}

fn is_pending(pod: &Value) -> bool {
    object::text(pod, "/spec/nodeName").is_empty()
        && !object::is_deleting(pod)
        && !is_finished(pod)
        && matches!(object::text(pod, "/spec/schedulerName"), "" | "default-scheduler" | "volcano")
}

/// The Volcano PodGroup of a Pod, by namespace and name.
fn group_of(pod: &Value) -> Option<(String, String)> {
    if object::text(pod, "/spec/schedulerName") != "volcano" {
        return None;
    }
    let name = pod.pointer("/metadata/annotations")?.get(GROUP_NAME)?.as_str()?;
    Some((object::namespace(pod).to_owned(), name.to_owned()))
}

/// The Pods of a group that have a node.
fn bound_of(group: &(String, String), pods: &[Arc<Value>]) -> Vec<Arc<Value>> {
    pods.iter().filter(|pod| is_bound(pod) && group_of(pod).as_ref() == Some(group)).cloned().collect()
}

/// `spec.priority`.
fn priority(pod: &Value) -> i64 {
    pod.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0)
}

#[cfg(test)]
mod gang_tests;
#[cfg(test)]
mod neighbour_tests;
#[cfg(test)]
mod preempt_tests;
