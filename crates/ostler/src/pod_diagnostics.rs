//! Reads events, container logs and Kueue's Workloads of Pods with problems: the last warning event of a Pod that is starting,
//! the log line that explains the crash of a container, and the quota that a Pod needs. They are read only for these Pods, since
//! a cluster has many events and logs.

use std::collections::BTreeMap;

use cluster::{Kind, find_condition, metadata_field};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt};
use operator::WorkloadReason;
use serde_json::Value;

use crate::cluster_objects::{ListScope, list_served};

/// Diagnostic messages by Pod name.
pub(crate) type PodDiagnostics = BTreeMap<String, String>;

/// An event of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEvent {
    pub reason: String,
    pub message: String,
}

/// Start of a diagnostic that Kueue states.
pub(crate) const KUEUE_PREFIX: &str = "Kueue: ";
/// Maximum number of Pods to read. A service may have hundreds of Pods with the same problem.
const MAX_PODS: usize = 8;
/// Number of log lines to search for the one that explains the crash.
const LOG_LINES: i64 = 200;
/// Versions of Kueue's Workload, the preferred one first.
const WORKLOADS: [Kind; 2] = [
    Kind::namespaced("kueue.x-k8s.io", "v1beta2", "Workload", "workloads"),
    Kind::namespaced("kueue.x-k8s.io", "v1beta1", "Workload", "workloads"),
];

/// Collects diagnostics of the `pods` of a namespace that have problems. Errors are ignored.
pub(crate) async fn collect(client: &Client, namespace: &str, pods: &[&Value]) -> PodDiagnostics {
    let mut diagnostics = PodDiagnostics::new();
    let with_problems =
        pods.iter().filter_map(|pod| Some((*pod, operator::pod_problem_among(pod, pods.iter().copied())?.reason)));
    for (pod, reason) in with_problems.take(MAX_PODS) {
        let name = metadata_field(pod, "name");
        let diagnostic = match reason {
            WorkloadReason::Starting => last_warning_event(client, namespace, pod).await,
            WorkloadReason::CrashLoop => crash_log_line(client, namespace, pod).await,
            WorkloadReason::WaitingForQuota => quota_message(client, namespace, pod).await,
            _ => None,
        };
        diagnostics.extend(diagnostic.map(|diagnostic| (name.to_owned(), diagnostic)));
    }
    diagnostics
}

/// Returns the events of a Pod; none if they cannot be read.
pub(crate) async fn events(client: &Client, namespace: &str, pod: &Value) -> Vec<PodEvent> {
    let field_selector = format!("involvedObject.uid={}", metadata_field(pod, "uid"));
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let list = events.list(&ListParams::default().fields(&field_selector)).await;
    let event = |event: Event| PodEvent {
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
    };
    list.map(|list| list.items.into_iter().map(event).collect()).unwrap_or_default()
}

/// Returns the last warning event of the Pod: `FailedMount: …`.
async fn last_warning_event(client: &Client, namespace: &str, pod: &Value) -> Option<String> {
    let field_selector = format!("involvedObject.uid={},type=Warning", metadata_field(pod, "uid"));
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let list = events.list(&ListParams::default().fields(&field_selector)).await.ok()?;
    let time = |event: &Event| {
        let last_time = event.last_timestamp.as_ref().map(|time| time.0);
        last_time
            .or_else(|| event.event_time.as_ref().map(|time| time.0))
            .or(event.creation_timestamp().map(|time| time.0))
    };
    let last_event = list.items.into_iter().max_by_key(time)?;
    Some(format!(
        "{}: {}",
        last_event.reason.unwrap_or_default(),
        operator::error_line(&last_event.message.unwrap_or_default())?
    ))
}

/// Returns the log line of the container that failed which explains the failure.
async fn crash_log_line(client: &Client, namespace: &str, pod: &Value) -> Option<String> {
    let container = operator::crashed_container(pod)?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = |previous| LogParams {
        container: Some(container.to_owned()),
        previous,
        tail_lines: Some(LOG_LINES),
        ..LogParams::default()
    };
    let name = metadata_field(pod, "name");
    let has_failed = pod["status"]["phase"] == "Failed";
    let log = pods.logs(name, &params(!has_failed)).await.ok()?;
    Some(format!("log line: `{}`", operator::error_line(&log)?))
}

/// Returns why Kueue has not reserved quota for the Pod: `Kueue: … insufficient unused quota for nvidia.com/gpu …`.
async fn quota_message(client: &Client, namespace: &str, pod: &Value) -> Option<String> {
    for kind in WORKLOADS {
        if let Some(workloads) = list_served(client, kind, ListScope::Namespace(namespace)).await.ok()? {
            return unreserved_quota(&workloads, pod);
        }
    }
    None
}

/// Returns the message of the Workload that waits for the quota of the Pod.
fn unreserved_quota(workloads: &[Value], pod: &Value) -> Option<String> {
    let is_owner = |owner: &Value| owner["uid"].is_string() && owner["uid"] == pod["metadata"]["uid"];
    let is_of_pod = |workload: &&Value| {
        workload["metadata"]["ownerReferences"].as_array().is_some_and(|all| all.iter().any(is_owner))
    };
    let workload = workloads.iter().find(is_of_pod)?;
    let reserved = find_condition(&workload["status"]["conditions"], "QuotaReserved")?;
    let message = reserved["message"].as_str().filter(|_| reserved["status"] == "False")?;
    Some(format!("{KUEUE_PREFIX}{message}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn workload(pod_uid: &str, status: &str, message: &str) -> Value {
        let condition = json!({"type": "QuotaReserved", "status": status, "message": message});
        json!({"metadata": {"ownerReferences": [{"kind": "LeaderWorkerSet", "uid": "s"}, {"kind": "Pod", "uid": pod_uid}]},
            "status": {"conditions": [condition]}})
    }

    #[rstest]
    #[case::waiting(workload("p", "False", "insufficient unused quota"), Some("Kueue: insufficient unused quota"))]
    #[case::admitted(workload("p", "True", "Quota reserved"), None)]
    #[case::other_pod(workload("q", "False", "insufficient unused quota"), None)]
    #[case::new(json!({"metadata": {"ownerReferences": [{"uid": "p"}]}}), None)]
    fn workload_names_the_missing_quota(#[case] workload: Value, #[case] expect: Option<&str>) {
        let pod = json!({"metadata": {"uid": "p"}});
        assert_eq!(unreserved_quota(&[json!({}), workload], &pod).as_deref(), expect);
    }
}
