//! The scheduler, which binds pending Pods to nodes or records why they are unschedulable.
//!
//! A scheduling cycle ([`scheduling_cycle`]) lists the objects, calls the pure function [`assign::schedule_pending`]
//! and writes its decisions. It runs only after changes that can make a Pod schedulable. It schedules Pods whose
//! `schedulerName` is `default-scheduler` or `volcano`. The Pods of a Volcano PodGroup are placed together ([`gang`]),
//! and a Pod that fits on no node may preempt Pods of lower priority ([`preemption`]).
//!
//! Each plugin of kube-scheduler has its own file: [`taints`], [`node_affinity`], [`node_ports`], [`resources`],
//! [`volume_binding`], [`pod_topology_spread`] and [`inter_pod_affinity`]. [`filter`] runs their Filter extension
//! points in the order of kube-scheduler, [`score`] runs the Score extension points, and [`fit_error`] formats the
//! messages.

mod affinity_term;
mod assign;
mod budget;
mod filter;
mod fit_error;
mod gang;
mod inter_pod;
mod inter_pod_affinity;
mod node_affinity;
mod node_info;
mod node_ports;
mod pod_topology_spread;
mod preemption;
mod reason;
mod resources;
mod schedule_one;
mod scheduling_cycle;
mod score;
mod snapshot;
mod taints;
mod volume_binding;

pub use reason::UnschedulableReason;
pub use schedule_one::filter_nodes;
pub use scheduling_cycle::run_scheduler;
pub use snapshot::{SchedulingSnapshot, StorageObjects};
pub(crate) use taints::tolerates;

use std::sync::Arc;

use apimachinery::object;
use serde_json::Value;

/// Resource name of Volcano's PodGroups.
const POD_GROUPS: &str = "podgroups.scheduling.volcano.sh";
/// Pod annotation that names the PodGroup of the Pod.
const GROUP_NAME: &str = "scheduling.k8s.io/group-name";

/// The scheduling decision for one pending Pod.
#[derive(Debug)]
struct Decision {
    pod: Arc<Value>,
    outcome: Outcome,
}

/// The result of scheduling one Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Bind {
        node: String,
    },
    Wait {
        reason: &'static str,
        message: String,
        /// Whether the Pod retains its `status.nominatedNodeName`.
        retains_nomination: bool,
    },
    /// Delete the victims on the node; the Pod waits until they have terminated.
    Preempt {
        node: String,
        victims: Vec<Arc<Value>>,
        message: String,
    },
}

/// Whether the phase of the Pod is `Succeeded` or `Failed`.
fn is_finished(pod: &Value) -> bool {
    matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether the Pod has a node and has not finished.
fn is_bound(pod: &Value) -> bool {
    !object::text(pod, "/spec/nodeName").is_empty() && !is_finished(pod)
}

/// Whether this scheduler is responsible for the Pod and the Pod has no node yet.
fn is_pending(pod: &Value) -> bool {
    object::text(pod, "/spec/nodeName").is_empty()
        && !object::is_deleting(pod)
        && !is_finished(pod)
        && matches!(object::text(pod, "/spec/schedulerName"), "" | "default-scheduler" | "volcano")
}

/// Returns the namespace and name of the Volcano PodGroup of a Pod.
fn pod_group_of(pod: &Value) -> Option<(String, String)> {
    if object::text(pod, "/spec/schedulerName") != "volcano" {
        return None;
    }
    let name = pod.pointer("/metadata/annotations")?.get(GROUP_NAME)?.as_str()?;
    Some((object::namespace(pod).to_owned(), name.to_owned()))
}

/// Returns the Pods of a PodGroup that are bound to a node.
fn bound_members(group: &(String, String), pods: &[Arc<Value>]) -> Vec<Arc<Value>> {
    pods.iter().filter(|pod| is_bound(pod) && pod_group_of(pod).as_ref() == Some(group)).cloned().collect()
}

/// Returns `spec.priority`, or 0 if it is absent.
fn priority(pod: &Value) -> i64 {
    pod.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0)
}

#[cfg(test)]
mod gang_tests;
#[cfg(test)]
mod inter_pod_tests;
#[cfg(test)]
mod preemption_tests;
