//! What the controller does next for one node.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::call::Call;
use crate::delete_purpose::DeletePurpose;
use crate::nominal::NominalProvider;
use crate::pod_ref::PodRef;
use crate::problem::Problem;

/// Result of [`step`](crate::step).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Next {
    /// The action, of which there is at most one: a second one would be decided from an outdated state.
    pub action: Option<Action>,
    /// When to call `step` again if nothing changes.
    pub again: Option<Timestamp>,
    /// Status annotations that differ from what is to be reported.
    pub statuses: Vec<StatusUpdate>,
}

/// One action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A write to the API server, after which the next action of the node is decided.
    Write(Write),
    /// An HTTP call that is started; its answer is an observation.
    Call(Call),
}

/// A write to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Creates the provider of a requester, already bound to it; [`provider_pod`](crate::provider_pod) returns the Pod.
    Create {
        /// The requester.
        requester: PodRef,
        /// The provider that it needs.
        nominal: Arc<NominalProvider>,
    },
    /// Changes a Pod by a JSON merge patch, with its UID and resource version as preconditions.
    Patch {
        /// The Pod.
        pod: PodRef,
        /// Why.
        purpose: PatchPurpose,
        /// The patch.
        patch: Value,
    },
    /// Deletes a Pod, with its UID as precondition, and for providers also the resource version.
    Delete {
        /// The Pod.
        pod: PodRef,
        /// Why.
        purpose: DeletePurpose,
        /// Grace period; that of the Pod if absent.
        grace_seconds: Option<u32>,
    },
}

/// Why a Pod is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchPurpose {
    /// Adds the finalizer to the requester and records its accelerators, before a provider is created or bound.
    Claim,
    /// Records the accelerators of a requester that has a problem, so that `explain` can name them.
    Record,
    /// Sets label `dual` of a requester.
    Link,
    /// Binds a provider: annotation and finalizer.
    Bind,
    /// Sets the pool labels of a provider whose engine is awake and verified.
    Publish,
    /// Removes the pool labels.
    Withdraw,
    /// Unbinds a provider: annotation and finalizer.
    Unbind,
    /// Removes the finalizer of a requester whose engine is asleep or gone.
    Finish,
    /// Restores the finalizer of a bound provider after an edit by another client.
    Restore,
    /// Binds a launcher, which then starts the engine.
    Launch,
    /// Removes the record of an engine that a launcher does not have any longer, with the binding if it is the bound one.
    RemoveInstance,
}

/// Entries of the status annotation of a requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusUpdate {
    /// The requester.
    pub requester: PodRef,
    /// Its problems; empty if it has none.
    pub problems: Vec<Problem>,
    /// Messages that the annotation contained before.
    pub reported: Vec<String>,
}

// === impl PatchPurpose ===

impl PatchPurpose {
    /// Returns the purpose as a word of logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PatchPurpose::Claim => "claim",
            PatchPurpose::Record => "record",
            PatchPurpose::Link => "link",
            PatchPurpose::Bind => "bind",
            PatchPurpose::Publish => "publish",
            PatchPurpose::Withdraw => "withdraw",
            PatchPurpose::Unbind => "unbind",
            PatchPurpose::Finish => "finish",
            PatchPurpose::Restore => "restore",
            PatchPurpose::Launch => "launch",
            PatchPurpose::RemoveInstance => "remove instance",
        }
    }
}

// === impl StatusUpdate ===

impl StatusUpdate {
    /// Returns the problems that the annotation does not report yet.
    pub(crate) fn new_problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| !self.reported.contains(&problem.to_string()))
    }

    /// Returns the merge patch that sets the annotation.
    #[must_use]
    pub fn patch(&self) -> Value {
        json!({"metadata": {"annotations": {api::dual_pods::STATUS: status_annotation(&self.problems)}}})
    }
}

/// Returns the value of the status annotation.
#[must_use]
pub(crate) fn status_annotation(problems: &[Problem]) -> String {
    let errors: Vec<String> = problems.iter().map(Problem::to_string).collect();
    json!({"Errors": if errors.is_empty() { Value::Null } else { json!(errors) }}).to_string()
}
