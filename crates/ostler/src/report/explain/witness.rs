//! What nodes and containers said of Pods that do not get ready: the last warning about a Pod that is being started, the
//! last line of a container that keeps ending. Read only where it is needed, as a cluster keeps many of both.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt};
use operator::readiness::{self, Code};
use serde_json::Value;

use super::text;

/// By name of the Pod, one line each.
pub(crate) type Witnesses = BTreeMap<String, String>;

/// Pods that are asked about; a service may have hundreds that fail alike.
const PODS: usize = 8;
/// Lines in which to look for one that says something.
const LINES: i64 = 10;

/// Asks about the `pods` of one namespace that are in trouble. What cannot be read is left out.
pub(crate) async fn of(client: &Client, namespace: &str, pods: &[&Value]) -> Witnesses {
    let mut witnesses = Witnesses::new();
    let in_trouble = pods.iter().filter_map(|pod| Some((*pod, readiness::pod_trouble(pod)?.code)));
    for (pod, code) in in_trouble.take(PODS) {
        let name = text(pod, "/metadata/name");
        let said = match code {
            Code::Starting => warning(client, namespace, pod).await,
            Code::CrashLoop => end_of_log(client, namespace, pod).await,
            _ => None,
        };
        witnesses.extend(said.map(|said| (name.to_owned(), said)));
    }
    witnesses
}

/// `FailedMount: …`: the last warning about the Pod.
async fn warning(client: &Client, namespace: &str, pod: &Value) -> Option<String> {
    let about = format!("involvedObject.uid={},type=Warning", text(pod, "/metadata/uid"));
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let found = events.list(&ListParams::default().fields(&about)).await.ok()?;
    let when = |event: &Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        last.or_else(|| event.event_time.as_ref().map(|time| time.0)).or(event.creation_timestamp().map(|time| time.0))
    };
    let last = found.items.into_iter().max_by_key(when)?;
    Some(format!("{}: {}", last.reason.unwrap_or_default(), readiness::last_line(&last.message.unwrap_or_default())?))
}

/// What the container that ended in failure wrote last.
async fn end_of_log(client: &Client, namespace: &str, pod: &Value) -> Option<String> {
    let container = readiness::crashed_container(pod)?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = |previous| LogParams {
        container: Some(container.to_owned()),
        previous,
        tail_lines: Some(LINES),
        ..LogParams::default()
    };
    let name = text(pod, "/metadata/name");
    let ended = text(pod, "/status/phase") == "Failed";
    let log = pods.logs(name, &params(!ended)).await.ok()?;
    Some(format!("its log ends with `{}`", readiness::last_line(&log)?))
}
