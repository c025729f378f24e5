//! The results of scheduling.

use std::sync::Arc;

use apimachinery::CaughtPanic;
use serde_json::Value;

/// The scheduling decision for one pending Pod.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) pod: Arc<Value>,
    pub(super) outcome: Outcome,
}

/// The result of a scheduling cycle.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    pub(super) decisions: Vec<Decision>,
    pub(super) failures: Vec<SchedulingFailure>,
}

/// A panic, which affects one Pod or the pending Pods of a gang.
#[derive(Debug)]
pub(super) struct SchedulingFailure {
    pub(super) pods: Vec<Arc<Value>>,
    pub(super) panic: CaughtPanic,
}

/// The result of scheduling one Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Assign the Pod to the node.
    Bind { node: String },
    /// Report in the condition `PodScheduled` why the Pod cannot be assigned now.
    Wait {
        reason: &'static str,
        message: String,
        /// Whether the Pod retains its `status.nominatedNodeName`.
        retains_nomination: bool,
    },
    /// Delete the victims on the node; the Pod waits until they have terminated.
    Preempt { node: String, victims: Vec<Arc<Value>>, message: String },
}
