//! Carries out the writes of decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{GuardedWriter, NamespacedName, ObjectVersion};

use super::event_queue::EventQueue;
use crate::action::{Action, StatusUpdate, Write};
use crate::coordinator::{Decision, POD, WriteError, WriteResults};
use crate::delete_purpose::DeletePurpose;
use crate::event::{PodEvent, problem_events};
use crate::metrics::Metrics;
use crate::pod_ref::PodRef;
use crate::write::provider_pod;

/// Writer, Events and metrics of decisions.
#[derive(Clone)]
pub(super) struct Executor {
    /// Writes Pods.
    pub(super) writer: GuardedWriter,
    /// Events about completed writes.
    pub(super) events: EventQueue,
    /// Counts problems.
    pub(super) metrics: Arc<Metrics>,
}

/// Writes the status annotations of a decision, then its action. A rejected status annotation does not prevent the action; if one
/// fails for another reason, the action is not carried out. `event` is published once the action is complete.
pub(super) async fn execute(executor: &Executor, decision: &Decision, event: Option<PodEvent>) -> WriteResults {
    let writer = &executor.writer;
    let mut rejected_statuses = Vec::new();
    // Resource versions of the requesters whose status annotation was written, by UID: the action is decided on the versions before.
    let mut written = BTreeMap::new();
    for status in &decision.statuses {
        let requester = &status.requester;
        match writer.merge(POD, &version(requester), &status.patch()).await.map_err(|error| write_error(&error)) {
            Ok(resource_version) => {
                executor.report(status);
                written.insert(requester.uid.as_str(), resource_version);
            }
            // The requester is gone, which the watch reports later.
            Err(WriteError::NotFound) => rejected_statuses.push(requester.uid.clone()),
            Err(WriteError::Rejected(message)) => {
                tracing::warn!(pod = requester.name, message, "the API server rejects the status annotation");
                rejected_statuses.push(requester.uid.clone());
            }
            Err(error) => return WriteResults { rejected_statuses, action: Err(error) },
        }
    }
    let action = match &decision.action {
        Some(Action::Write(write)) => carry_out(writer, write, &written).await,
        _ => Ok(()),
    };
    if let (Ok(()), Some(event)) = (&action, event) {
        executor.events.push(event);
    }
    WriteResults { rejected_statuses, action }
}

// === impl Executor ===

impl Executor {
    /// Publishes and counts the new problems of a requester.
    fn report(&self, status: &StatusUpdate) {
        status.new_problems().for_each(|problem| self.metrics.count_problem(problem.code().as_str()));
        problem_events(status).for_each(|event| self.events.push(event));
    }
}

async fn carry_out(writer: &GuardedWriter, write: &Write, written: &BTreeMap<&str, String>) -> Result<(), WriteError> {
    log(write);
    let result = match write {
        Write::Create { requester, nominal } => writer.create(POD, &provider_pod(requester, nominal)).await,
        Write::Patch { pod, patch, .. } => {
            let mut version = version(pod);
            version.resource_version = written.get(pod.uid.as_str()).cloned().or(version.resource_version);
            writer.merge(POD, &version, patch).await.map(drop)
        }
        Write::Delete { pod, purpose, grace_seconds } => {
            writer.delete(POD, &deleted_version(pod, purpose), *grace_seconds).await
        }
    };
    result.map_err(|error| write_error(&error))
}

/// Returns the version that is deleted. A provider may have been bound since; changes of a requester do not matter.
fn deleted_version(pod: &PodRef, purpose: &DeletePurpose) -> ObjectVersion {
    let is_requester =
        matches!(purpose, DeletePurpose::ProviderLost | DeletePurpose::EngineDied | DeletePurpose::NodeCordoned);
    let version = version(pod);
    ObjectVersion { resource_version: version.resource_version.filter(|_| !is_requester), ..version }
}

fn version(pod: &PodRef) -> ObjectVersion {
    ObjectVersion {
        key: NamespacedName::new(&pod.namespace, &pod.name),
        uid: pod.uid.clone(),
        resource_version: Some(pod.resource_version.clone()),
    }
}

fn write_error(error: &cluster::Error) -> WriteError {
    match error.rejection() {
        _ if error.is_already_existing() => WriteError::AlreadyExists,
        _ if error.is_not_found() => WriteError::NotFound,
        _ if error.is_conflict() => WriteError::Conflict,
        Some(message) => WriteError::Rejected(message.to_owned()),
        None => WriteError::Failed(error.to_string()),
    }
}

/// Logs a write with the messages and keys of the deployed controller, where it has them.
fn log(write: &Write) {
    match write {
        Write::Create { requester, .. } => {
            tracing::info!(requesterName = requester.name, "Created server-providing pod");
        }
        Write::Patch { pod, purpose, .. } => {
            tracing::info!(pod = pod.name, namespace = pod.namespace, purpose = purpose.as_str(), "patching a Pod");
        }
        Write::Delete { pod, purpose, .. } => {
            tracing::info!(pod = pod.name, namespace = pod.namespace, purpose = ?purpose, "deleting a Pod");
        }
    }
}
