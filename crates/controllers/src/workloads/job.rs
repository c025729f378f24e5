//! Job: Pods that run to completion (`pkg/controller/job/job_controller.go`).
//!
//! A Pod carries a finalizer until it is counted: first the UID of the finished Pod is recorded in
//! `status.uncountedTerminatedPods`, then the finalizer is removed, then the count is incremented. Every Pod is counted
//! exactly once, even if the controller stops between these steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::condition::{self, Condition};
use apimachinery::{object, pod, time};
use apiserver::ports::Random;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::action::{Action, Plan};
use super::{ownership, pod_template};

/// Storage name of Jobs.
pub(crate) const RESOURCE: &str = "jobs.batch";

const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Back-off in seconds after the first failure. Each further failure doubles it, up to [`MAX_BACKOFF`].
const INITIAL_BACKOFF: i64 = 10;
const MAX_BACKOFF: i64 = 360;

/// The Pods of a Job by state.
struct JobPods {
    active: Vec<Arc<Value>>,
    /// Finished Pods that still carry the finalizer.
    finished: Vec<Arc<Value>>,
    succeeded: i64,
    failed: i64,
    /// UIDs of finished Pods that have not been counted yet: first the succeeded, then the failed Pods.
    uncounted: [Vec<String>; 2],
    /// Completion indexes that have succeeded.
    completed_indexes: BTreeSet<i64>,
}

/// The outcome of a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FinishReason {
    /// As many Pods as `completions` requires have succeeded.
    Complete,
    /// More Pods have failed than `backoffLimit` permits.
    BackoffLimitExceeded,
    /// The Job was active for `activeDeadlineSeconds`.
    DeadlineExceeded,
}

/// Reconciles a Job with its Pods.
pub(crate) fn plan(job: &Value, pods: &[Arc<Value>], random: &dyn Random, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if object::is_deleting(job) {
        return plan;
    }
    let owned: Vec<Arc<Value>> = pods.iter().filter(|pod| ownership::controls(job, pod)).cloned().collect();
    let job_pods = JobPods::new(job, &owned);
    let finish = recorded_finish_reason(job).or_else(|| check_finished(job, &job_pods, now, &mut plan));
    let status = status(job, &job_pods, finish, now);
    plan.update_status(RESOURCE, job, status);
    for pod in &job_pods.finished {
        let is_uncounted = job_pods.uncounted.iter().any(|uids| uids.iter().any(|uid| uid == object::uid(pod)));
        if is_uncounted {
            plan.push(Action::Update { resource: "pods", object: without_tracking_finalizer(pod) });
        }
    }
    match finish {
        Some(_) => {
            delete_pods(&mut plan, &job_pods.active);
            delete_after_ttl(&mut plan, job, now);
        }
        None => scale(&mut plan, job, &job_pods, random, now),
    }
    plan
}

/// Returns the outcome according to the conditions of the Job.
fn recorded_finish_reason(job: &Value) -> Option<FinishReason> {
    let reason = |type_: &str| {
        condition::find(job.get("status")?, type_).map(|condition| object::text(condition, "/reason").to_owned())
    };
    if condition::is_true(job, "Complete") {
        return Some(FinishReason::Complete);
    }
    let failed = condition::is_true(job, "Failed").then(|| reason("Failed")).flatten()?;
    Some(if failed == "DeadlineExceeded" { FinishReason::DeadlineExceeded } else { FinishReason::BackoffLimitExceeded })
}

/// Checks the back-off limit, the deadline and the completions of a running Job.
fn check_finished(job: &Value, job_pods: &JobPods, now: Timestamp, plan: &mut Plan) -> Option<FinishReason> {
    let number = |field: &str| job["spec"][field].as_i64();
    let failures = job_pods.failed.saturating_add(count(&job_pods.uncounted[1]));
    if failures > number("backoffLimit").unwrap_or(6) {
        plan.normal_event(job, "BackoffLimitExceeded", "Job has reached the specified backoff limit".to_owned());
        return Some(FinishReason::BackoffLimitExceeded);
    }
    let started = object::text(job, "/status/startTime").parse::<Timestamp>().unwrap_or(now);
    if let Some(deadline) = number("activeDeadlineSeconds") {
        let deadline_at = time::add_seconds(started, deadline);
        if deadline_at <= now {
            plan.normal_event(job, "DeadlineExceeded", "Job was active longer than specified deadline".to_owned());
            return Some(FinishReason::DeadlineExceeded);
        }
        plan.requeue_at(deadline_at);
    }
    let successes = job_pods.succeeded.saturating_add(count(&job_pods.uncounted[0]));
    let is_complete = match number("completions") {
        Some(completions) => successes >= completions,
        // Without `completions`, the Job is complete when one Pod has succeeded and no Pod is active.
        None => successes > 0 && job_pods.active.is_empty(),
    };
    is_complete.then(|| {
        plan.normal_event(job, "Completed", "Job completed".to_owned());
        FinishReason::Complete
    })
}

/// Creates and deletes Pods to reach the parallelism.
fn scale(plan: &mut Plan, job: &Value, job_pods: &JobPods, random: &dyn Random, now: Timestamp) {
    let number = |field: &str| job["spec"][field].as_i64();
    let active = i64::try_from(job_pods.active.len()).unwrap_or(i64::MAX);
    let parallelism = if job["spec"]["suspend"] == true { 0 } else { number("parallelism").unwrap_or(1) };
    let successes = job_pods.succeeded.saturating_add(count(&job_pods.uncounted[0]));
    let desired = match number("completions") {
        Some(completions) => parallelism.min(completions.saturating_sub(successes)),
        None if successes > 0 => active.min(parallelism),
        None => parallelism,
    };
    let retained = usize::try_from(desired.max(0)).unwrap_or_default();
    delete_pods(plan, job_pods.active.get(retained..).unwrap_or_default());
    if active >= desired {
        return;
    }
    if let Some(retry_at) = backoff_until(job_pods).filter(|retry_at| *retry_at > now) {
        return plan.requeue_at(retry_at);
    }
    let used_indexes: BTreeSet<i64> = job_pods
        .active
        .iter()
        .filter_map(|pod| completion_index(pod))
        .chain(job_pods.completed_indexes.iter().copied())
        .collect();
    let free_indexes = (0..).filter(|completion_index| !used_indexes.contains(completion_index));
    for (_, free_index) in (active..desired).zip(free_indexes) {
        if plan.is_burst_complete() {
            return;
        }
        create(plan, job, free_index, random);
    }
}

/// Deletes Pods, at most as many as a burst has.
fn delete_pods(plan: &mut Plan, pods: &[Arc<Value>]) {
    for pod in pods {
        if plan.is_burst_complete() {
            return;
        }
        plan.push(Action::Delete { resource: "pods", object: Arc::clone(pod) });
    }
}

/// Returns when the next Pod may be created after failures.
fn backoff_until(job_pods: &JobPods) -> Option<Timestamp> {
    let failures = job_pods.failed.saturating_add(count(&job_pods.uncounted[1]));
    let last_failure = job_pods
        .finished
        .iter()
        .filter(|pod| object::text(pod, "/status/phase") == "Failed")
        .filter_map(|pod| finished_at(pod))
        .max()?;
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(if failures > 0 { u32::MAX } else { 0 });
    let backoff = INITIAL_BACKOFF.saturating_mul(2_i64.saturating_pow(doublings)).min(MAX_BACKOFF);
    Some(time::add_seconds(last_failure, backoff))
}

/// Returns when the last container of the Pod terminated.
fn finished_at(pod: &Value) -> Option<Timestamp> {
    let statuses = pod.pointer("/status/containerStatuses")?.as_array()?;
    statuses.iter().filter_map(|status| object::text(status, "/state/terminated/finishedAt").parse().ok()).max()
}

/// Creates a Pod with a completion index.
fn create(plan: &mut Plan, job: &Value, completion_index: i64, random: &dyn Random) {
    let (namespace, name) = (object::namespace(job), object::name(job));
    let is_indexed = job["spec"]["completionMode"] == "Indexed";
    let base = if is_indexed { format!("{name}-{completion_index}") } else { name.to_owned() };
    let base = base.get(..57).unwrap_or(&base).to_owned();
    let pod_name = format!("{base}-{}", random.suffix(5));
    let mut pod =
        pod_template::new_pod(&job["spec"]["template"], namespace, &pod_name, ownership::controller_reference(job));
    pod["metadata"]["generateName"] = json!(format!("{base}-"));
    pod["metadata"]["finalizers"] = json!([TRACKING_FINALIZER]);
    if is_indexed {
        pod["metadata"]["annotations"][COMPLETION_INDEX] = json!(completion_index.to_string());
        pod["metadata"]["labels"][COMPLETION_INDEX] = json!(completion_index.to_string());
        pod["spec"]["hostname"] = json!(base);
        for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
            let env = object::members(container).entry("env").or_insert_with(|| json!([]));
            if let Some(env) = env.as_array_mut() {
                env.push(json!({"name": "JOB_COMPLETION_INDEX", "value": completion_index.to_string()}));
            }
        }
    }
    plan.push(Action::Create { resource: "pods", object: pod });
    plan.normal_event(job, "SuccessfulCreate", format!("Created pod: {pod_name}"));
}

/// Deletes a finished Job after `ttlSecondsAfterFinished`.
fn delete_after_ttl(plan: &mut Plan, job: &Value, now: Timestamp) {
    let Some(seconds) = job["spec"]["ttlSecondsAfterFinished"].as_i64() else { return };
    let condition_types = ["Complete", "Failed"];
    let finished_at = condition_types.iter().find_map(|type_| {
        let condition = condition::find(job.get("status")?, type_)?;
        object::text(condition, "/lastTransitionTime").parse::<Timestamp>().ok()
    });
    let Some(expires_at) = finished_at.map(|finished_at| time::add_seconds(finished_at, seconds)) else {
        return;
    };
    if expires_at <= now {
        plan.push(Action::Delete { resource: RESOURCE, object: Arc::new(job.clone()) });
    } else {
        plan.requeue_at(expires_at);
    }
}

/// Returns the status of the Job.
fn status(job: &Value, job_pods: &JobPods, finish: Option<FinishReason>, now: Timestamp) -> Value {
    let now = object::format_time(now);
    let mut status = job.get("status").cloned().unwrap_or_else(|| json!({}));
    let ready = job_pods.active.iter().filter(|pod| pod::is_ready(pod)).count();
    let members = object::members(&mut status);
    if job["spec"]["suspend"] != true {
        members.entry("startTime").or_insert_with(|| json!(now));
    }
    let active = if finish.is_some() { 0 } else { i64::try_from(job_pods.active.len()).unwrap_or(i64::MAX) };
    for (field, count) in [("active", active), ("succeeded", job_pods.succeeded), ("failed", job_pods.failed)] {
        if count > 0 {
            members.insert(field.to_owned(), json!(count));
        } else {
            members.remove(field);
        }
    }
    members.insert("ready".to_owned(), json!(ready));
    members.insert("terminating".to_owned(), json!(0));
    let [succeeded, failed] = &job_pods.uncounted;
    let mut uncounted = json!({});
    for (field, uids) in [("succeeded", succeeded), ("failed", failed)] {
        if !uids.is_empty() {
            uncounted[field] = json!(uids);
        }
    }
    members.insert("uncountedTerminatedPods".to_owned(), uncounted);
    // The conditions `Complete` and `Failed` are set only after all Pods have been counted.
    let Some(finish) = finish.filter(|_| succeeded.is_empty() && failed.is_empty()) else { return status };
    let (condition_types, reason, message) = match finish {
        FinishReason::Complete => {
            members.entry("completionTime").or_insert_with(|| json!(now));
            (["SuccessCriteriaMet", "Complete"], "CompletionsReached", "Reached expected number of succeeded pods")
        }
        FinishReason::BackoffLimitExceeded => {
            (["FailureTarget", "Failed"], "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        }
        FinishReason::DeadlineExceeded => {
            (["FailureTarget", "Failed"], "DeadlineExceeded", "Job was active longer than specified deadline")
        }
    };
    for type_ in condition_types {
        condition::set(&mut status, Condition { type_, status: true, reason, message }, &now);
    }
    status
}

// === impl JobPods ===

impl JobPods {
    fn new(job: &Value, pods: &[Arc<Value>]) -> Self {
        let number = |field: &str| job.pointer(&format!("/status/{field}")).and_then(Value::as_i64).unwrap_or_default();
        let recorded_uids =
            |field: &str| object::strings(job.pointer(&format!("/status/uncountedTerminatedPods/{field}")));
        let mut job_pods = Self {
            active: pods.iter().filter(|pod| pod::is_active(pod)).cloned().collect(),
            finished: pods.iter().filter(|pod| outcome_index(pod).is_some()).cloned().collect(),
            succeeded: number("succeeded"),
            failed: number("failed"),
            uncounted: [Vec::new(), Vec::new()],
            completed_indexes: pods
                .iter()
                .filter(|pod| outcome_index(pod) == Some(0))
                .filter_map(|pod| completion_index(pod))
                .collect(),
        };
        for (index, field) in ["succeeded", "failed"].into_iter().enumerate() {
            for uid in recorded_uids(field) {
                let is_tracked =
                    job_pods.finished.iter().any(|pod| object::uid(pod) == uid && has_tracking_finalizer(pod));
                match (is_tracked, index) {
                    (true, _) => job_pods.uncounted[index].push(uid.to_owned()),
                    (false, 0) => job_pods.succeeded = job_pods.succeeded.saturating_add(1),
                    (false, _) => job_pods.failed = job_pods.failed.saturating_add(1),
                }
            }
            for pod in
                job_pods.finished.iter().filter(|pod| has_tracking_finalizer(pod) && outcome_index(pod) == Some(index))
            {
                let uid = object::uid(pod);
                if !job_pods.uncounted[index].iter().any(|known| known == uid) {
                    job_pods.uncounted[index].push(uid.to_owned());
                }
            }
        }
        job_pods
    }
}

/// Returns 0 for a succeeded Pod, 1 for a failed Pod, and `None` for an unfinished Pod. An unfinished Pod that is being
/// deleted with a grace period of 0 s counts as failed.
fn outcome_index(pod: &Value) -> Option<usize> {
    match object::text(pod, "/status/phase") {
        "Succeeded" => Some(0),
        "Failed" => Some(1),
        _ if object::is_deleting(pod) && pod.pointer("/metadata/deletionGracePeriodSeconds") == Some(&json!(0)) => {
            Some(1)
        }
        _ => None,
    }
}

fn has_tracking_finalizer(pod: &Value) -> bool {
    object::finalizers(pod).contains(&TRACKING_FINALIZER)
}

/// Returns the Pod without the tracking finalizer.
fn without_tracking_finalizer(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let remaining: Vec<String> =
        object::finalizers(&pod).into_iter().filter(|name| *name != TRACKING_FINALIZER).map(str::to_owned).collect();
    object::set_metadata_field(&mut pod, "finalizers", (!remaining.is_empty()).then(|| json!(remaining)));
    pod
}

/// Returns the completion index of a Pod.
fn completion_index(pod: &Value) -> Option<i64> {
    pod.pointer("/metadata/annotations")?.get(COMPLETION_INDEX)?.as_str()?.parse().ok()
}

fn count(uids: &[String]) -> i64 {
    i64::try_from(uids.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::action::BURST_REPLICAS;
    use super::*;
    use apiserver::ports::SystemRandom;

    fn job(completions: i64, status: Value) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": "n", "uid": "1"},
            "spec": {"completions": completions, "parallelism": 2, "backoffLimit": 1,
                     "template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": status,
        })
    }

    fn pod(uid: &str, phase: &str, is_tracked: bool) -> Arc<Value> {
        let finalizers = if is_tracked { json!([TRACKING_FINALIZER]) } else { json!([]) };
        Arc::new(json!({
            "metadata": {"name": uid, "namespace": "n", "uid": uid, "finalizers": finalizers,
                         "ownerReferences": [ownership::controller_reference(&job(1, json!({})))]},
            "spec": {}, "status": {"phase": phase},
        }))
    }

    fn sync(job: &Value, pods: &[Arc<Value>]) -> (Option<Value>, usize, usize) {
        let plan = plan(job, pods, &SystemRandom, Timestamp::UNIX_EPOCH);
        let status = plan.actions.iter().find_map(|action| match action {
            Action::UpdateStatus { object, .. } => Some(object["status"].clone()),
            _ => None,
        });
        let count = |predicate: fn(&Action) -> bool| plan.actions.iter().filter(|action| predicate(action)).count();
        let created = count(|action| matches!(action, Action::Create { .. }));
        (status, created, count(|action| matches!(action, Action::Update { .. })))
    }

    #[test]
    fn counts_every_pod_once_and_completes() {
        let (status, created, _) = sync(&job(1, json!({})), &[]);
        assert_eq!(created, 1, "at most `completions` Pods");
        let succeeded = [pod("a", "Succeeded", true)];
        let (status, created, untracked) = sync(&job(1, status.unwrap()), &succeeded);
        let status = status.unwrap();
        assert_eq!(status["uncountedTerminatedPods"], json!({"succeeded": ["a"]}));
        assert_eq!((created, untracked), (0, 1));
        let (final_status, ..) = sync(&job(1, status), &[pod("a", "Succeeded", false)]);
        let final_status = final_status.unwrap();
        assert_eq!(final_status["succeeded"], 1);
        assert!(condition::is_true(&json!({"status": final_status}), "Complete"), "{final_status}");
        let (status, created, untracked) = sync(&job(1, final_status), &[pod("a", "Succeeded", false)]);
        assert_eq!((status, created, untracked), (None, 0, 0), "a finished job is not modified");
    }

    #[test]
    fn creates_and_deletes_one_burst_of_pods() {
        let mut large = job(2_000_000_000, json!({}));
        large["spec"]["parallelism"] = json!(2_000_000_000);
        let deleted = |plan: &Plan| plan.actions.iter().filter(|a| matches!(a, Action::Delete { .. })).count();
        let (_, created, _) = sync(&large, &[]);
        assert_eq!(created, BURST_REPLICAS);

        let pods: Vec<_> = (0..=BURST_REPLICAS).map(|n| pod(&format!("p{n}"), "Running", true)).collect();
        large["spec"]["suspend"] = json!(true);
        let suspended = plan(&large, &pods, &SystemRandom, Timestamp::UNIX_EPOCH);
        assert_eq!(deleted(&suspended), BURST_REPLICAS);
        let failed = job(1, json!({"failed": 2}));
        let finished = plan(&failed, &pods, &SystemRandom, Timestamp::UNIX_EPOCH);
        assert_eq!(deleted(&finished), BURST_REPLICAS);
    }

    #[test]
    fn fails_beyond_backoff_limit() {
        let pods = [pod("a", "Failed", false), pod("b", "Failed", false)];
        let (status, created, _) = sync(&job(3, json!({"failed": 2})), &pods);
        assert_eq!(created, 0);
        let status = status.unwrap();
        assert!(condition::is_true(&json!({"status": status}), "Failed"), "{status}");
    }
}
