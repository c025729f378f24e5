//! The results of scheduling.

use std::sync::Arc;

use serde_json::Value;

/// The scheduling decision for one pending Pod.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) pod: Arc<Value>,
    pub(super) outcome: Outcome,
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
