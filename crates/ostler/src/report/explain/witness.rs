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
/// Of a line of a log.
const LONGEST: usize = 200;
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
            Code::CrashLoop => last_line(client, namespace, pod).await,
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
    Some(format!("{}: {}", last.reason.unwrap_or_default(), line(&last.message.unwrap_or_default())?))
}

/// What the container that ended in failure wrote last.
async fn last_line(client: &Client, namespace: &str, pod: &Value) -> Option<String> {
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
    Some(format!("its log ends with `{}`", line(&log)?))
}

/// The last line that says something, cut to a length that can be read.
fn line(text: &str) -> Option<String> {
    let last = text.lines().rev().map(str::trim).find(|line| line.chars().any(char::is_alphanumeric))?;
    let cut: String = last.chars().take(LONGEST).collect();
    Some(if cut.len() < last.len() { format!("{cut}…") } else { cut })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::the_last("INFO start\nValueError: no such model\n", Some("ValueError: no such model"))]
    #[case::that_says_something("RuntimeError: out of memory\n^^^^^\n\n", Some("RuntimeError: out of memory"))]
    #[case::none("\n  \n", None)]
    fn lines(#[case] log: &str, #[case] expect: Option<&str>) {
        assert_eq!(line(log).as_deref(), expect);
    }

    #[test]
    fn a_long_line_is_cut() {
        assert_eq!(line(&"x".repeat(300)).unwrap().chars().count(), LONGEST + 1);
    }
}
