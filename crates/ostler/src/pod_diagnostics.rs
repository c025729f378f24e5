//! Reads events and container logs of Pods with problems: the last warning event of a Pod that is starting, and the log line
//! that explains the crash of a container. They are read only for these Pods, since a cluster has many events and logs.

use std::collections::BTreeMap;

use cluster::metadata_field;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt};
use operator::WorkloadReason;
use serde_json::Value;

/// Diagnostic messages by Pod name.
pub(crate) type PodDiagnostics = BTreeMap<String, String>;

/// Maximum number of Pods to read. A service may have hundreds of Pods with the same problem.
const MAX_PODS: usize = 8;
/// Number of log lines to search for the one that explains the crash.
const LOG_LINES: i64 = 200;

/// Collects diagnostics of the `pods` of a namespace that have problems. Errors are ignored.
pub(crate) async fn collect(client: &Client, namespace: &str, pods: &[&Value]) -> PodDiagnostics {
    let mut diagnostics = PodDiagnostics::new();
    let with_problems = pods.iter().filter_map(|pod| Some((*pod, operator::pod_problem(pod)?.reason)));
    for (pod, reason) in with_problems.take(MAX_PODS) {
        let name = metadata_field(pod, "name");
        let diagnostic = match reason {
            WorkloadReason::Starting => last_warning_event(client, namespace, pod).await,
            WorkloadReason::CrashLoop => crash_log_line(client, namespace, pod).await,
            _ => None,
        };
        diagnostics.extend(diagnostic.map(|diagnostic| (name.to_owned(), diagnostic)));
    }
    diagnostics
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
