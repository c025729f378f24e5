//! Whether a gang is being created; no I/O.
//!
//! The scheduler rejects the first Pods of a gang until the last one exists, and it binds them one after another. Such
//! rejections are part of every creation, and only those that last are a problem.

use cluster::{find_condition, is_terminating};
use jiff::{SignedDuration, Timestamp};
use plan::labels::GROUP_NAME;
use serde_json::Value;

/// How long after the first rejection of a Pod its gang counts as being created.
const MAX_CREATION_TIME: SignedDuration = SignedDuration::from_secs(5);

/// Returns until when the rejection of `pods` is part of the creation of their gang; `None` if none is rejected, or if a
/// rejection has lasted.
pub(crate) fn creation_end<'a>(pods: impl IntoIterator<Item = &'a Value>, now: Timestamp) -> Option<Timestamp> {
    let first_rejection = pods.into_iter().filter_map(rejection_time).min()?;
    let end = first_rejection.checked_add(MAX_CREATION_TIME).ok()?;
    (now < end).then_some(end)
}

/// Returns since when the scheduler rejects a Pod of a gang; `None` if it does not.
fn rejection_time(pod: &Value) -> Option<Timestamp> {
    let is_in_gang = pod["metadata"]["annotations"][GROUP_NAME].is_string();
    let is_pending = !pod["spec"]["nodeName"].is_string() && !is_terminating(pod);
    let scheduled =
        find_condition(&pod["status"]["conditions"], "PodScheduled").filter(|_| is_in_gang && is_pending)?;
    let is_rejected = scheduled["status"] == "False" && scheduled["reason"] != "SchedulingGated";
    scheduled["lastTransitionTime"].as_str().filter(|_| is_rejected)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Returns a Pod of a gang that the scheduler rejects since `second`.
    fn rejected(second: i64) -> Value {
        json!({"metadata": {"annotations": {GROUP_NAME: "g"}}, "spec": {}, "status": {"conditions": [{"type": "PodScheduled",
            "status": "False", "reason": "Unschedulable", "lastTransitionTime": timestamp(second).to_string()}]}})
    }

    fn with(mut pod: Value, pointer: &str, value: Value) -> Value {
        *pod.pointer_mut(pointer).unwrap() = value;
        pod
    }

    fn timestamp(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[rstest]
    #[case::new_rejection(vec![rejected(100)], Some(105))]
    #[case::first_rejection_counts(vec![rejected(103), rejected(98)], Some(103))]
    #[case::one_rejection_has_lasted(vec![rejected(102), rejected(97)], None)]
    #[case::no_pods(vec![], None)]
    #[case::scheduled(vec![with(rejected(102), "/spec", json!({"nodeName": "n"}))], None)]
    #[case::no_gang(vec![with(rejected(102), "/metadata", json!({}))], None)]
    #[case::gated(vec![with(rejected(102), "/status/conditions/0/reason", json!("SchedulingGated"))], None)]
    #[case::unknown_time(vec![with(rejected(102), "/status/conditions/0/lastTransitionTime", Value::Null)], None)]
    #[case::maximum_time(vec![with(rejected(102), "/status/conditions/0/lastTransitionTime", json!("9999-12-30T22:00:00Z"))], None)]
    fn rejections_of_a_new_gang_are_part_of_its_creation(#[case] pods: Vec<Value>, #[case] expected: Option<i64>) {
        assert_eq!(creation_end(&pods, timestamp(102)), expected.map(timestamp));
    }
}
