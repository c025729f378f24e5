//! Carries out the writes of decisions.

use cluster::{GuardedWriter, NamespacedName, ObjectVersion};

use crate::action::{Action, DeletePurpose, Write};
use crate::coordinator::{Decision, POD, WriteError};
use crate::pod_ref::PodRef;
use crate::write::provider_pod;

/// Writes the status annotations of a decision, then its action. An action that follows a failed status is not carried out.
pub(super) async fn execute(writer: &GuardedWriter, decision: &Decision) -> Result<(), WriteError> {
    for status in &decision.statuses {
        let version = ObjectVersion { resource_version: None, ..version(&status.requester) };
        match writer.merge(POD, &version, &status.patch()).await.map_err(|error| write_error(&error)) {
            // The requester is gone, which the watch reports.
            Ok(()) | Err(WriteError::NotFound | WriteError::Conflict) => {}
            Err(error) => return Err(WriteError::Failed(format!("{error:?}"))),
        }
    }
    let Some(Action::Write(write)) = &decision.action else { return Ok(()) };
    log(write);
    let result = match write {
        Write::Create { requester, nominal } => writer.create(POD, &provider_pod(requester, nominal)).await,
        Write::Patch { pod, patch, .. } => writer.merge(POD, &current(pod, decision), patch).await,
        Write::Delete { pod, purpose, grace_seconds } => {
            writer.delete(POD, &deleted_version(pod, purpose), *grace_seconds).await
        }
    };
    result.map_err(|error| write_error(&error))
}

/// Returns the version that a patch changes. A status annotation that was written before it does not matter.
fn current(pod: &PodRef, decision: &Decision) -> ObjectVersion {
    let is_annotated = decision.statuses.iter().any(|status| status.requester.uid == pod.uid);
    let version = version(pod);
    ObjectVersion { resource_version: version.resource_version.filter(|_| !is_annotated), ..version }
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
        Some(message) => WriteError::Rejected(format!("failed to create server-providing Pod: {message}")),
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
