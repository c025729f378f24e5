//! Job: Pods that end (`pkg/controller/job/job_controller.go`).
//!
//! A finished Pod carries a finalizer until it is counted: first its uid is written into the status as uncounted, then
//! the finalizer goes, then the count rises. Whatever stops in between, every Pod is counted once.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::action::{Action, Plan};
use super::condition::{self, Condition};
use super::{ownership, pod};
use crate::object;
use crate::ports::Random;

pub(crate) const RESOURCE: &str = "jobs.batch";

const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// After the first failure; doubled with each further one up to six minutes.
const BACK_OFF: i64 = 10;
const LONGEST_BACK_OFF: i64 = 360;

/// How its Pods stand.
struct Tally {
    active: Vec<Arc<Value>>,
    /// Finished Pods that still carry the finalizer.
    finished: Vec<Arc<Value>>,
    succeeded: i64,
    failed: i64,
    uncounted: [Vec<String>; 2],
    done: BTreeSet<i64>,
}

/// What follows from a Job and the Pods around it.
pub(crate) fn plan(job: &Value, pods: &[Arc<Value>], random: &dyn Random, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if object::is_deleting(job) {
        return plan;
    }
    let mine: Vec<Arc<Value>> = pods.iter().filter(|pod| ownership::controls(job, pod)).cloned().collect();
    let tally = Tally::of(job, &mine);
    let end = ended(job).or_else(|| verdict(job, &tally, now, &mut plan));
    let status = status(job, &tally, end, now);
    plan.status(RESOURCE, job, status);
    for pod in &tally.finished {
        let known = tally.uncounted.iter().any(|uids| uids.iter().any(|uid| uid == object::uid(pod)));
        if known {
            plan.push(Action::Update { resource: "pods", object: without_tracking(pod) });
        }
    }
    match end {
        Some(_) => {
            for pod in tally.active {
                plan.push(Action::Delete { resource: "pods", object: pod });
            }
            expire(&mut plan, job, now);
        }
        None => scale(&mut plan, job, &tally, random, now),
    }
    plan
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    BackoffLimitExceeded,
    DeadlineExceeded,
}

fn ended(job: &Value) -> Option<End> {
    let reason =
        |kind: &str| condition::find(job.get("status")?, kind).map(|it| object::text(it, "/reason").to_owned());
    if condition::is_true(job, "Complete") {
        return Some(End::Complete);
    }
    let failed = condition::is_true(job, "Failed").then(|| reason("Failed")).flatten()?;
    Some(if failed == "DeadlineExceeded" { End::DeadlineExceeded } else { End::BackoffLimitExceeded })
}

fn verdict(job: &Value, tally: &Tally, now: Timestamp, plan: &mut Plan) -> Option<End> {
    let number = |field: &str| job["spec"][field].as_i64();
    let failures = tally.failed + count(&tally.uncounted[1]);
    if failures > number("backoffLimit").unwrap_or(6) {
        plan.event(job, "BackoffLimitExceeded", "Job has reached the specified backoff limit".to_owned());
        return Some(End::BackoffLimitExceeded);
    }
    let started = object::text(job, "/status/startTime").parse::<Timestamp>().unwrap_or(now);
    if let Some(deadline) = number("activeDeadlineSeconds") {
        let at = started + SignedDuration::from_secs(deadline);
        if at <= now {
            plan.event(job, "DeadlineExceeded", "Job was active longer than specified deadline".to_owned());
            return Some(End::DeadlineExceeded);
        }
        plan.wake_at(at);
    }
    let successes = tally.succeeded + count(&tally.uncounted[0]);
    let enough = match number("completions") {
        Some(completions) => successes >= completions,
        // Without a count, one success means that the work is done.
        None => successes > 0 && tally.active.is_empty(),
    };
    enough.then(|| {
        plan.event(job, "Completed", "Job completed".to_owned());
        End::Complete
    })
}

fn scale(plan: &mut Plan, job: &Value, tally: &Tally, random: &dyn Random, now: Timestamp) {
    let number = |field: &str| job["spec"][field].as_i64();
    let active = i64::try_from(tally.active.len()).unwrap_or(i64::MAX);
    let parallelism = if job["spec"]["suspend"] == true { 0 } else { number("parallelism").unwrap_or(1) };
    let successes = tally.succeeded + count(&tally.uncounted[0]);
    let wanted = match number("completions") {
        Some(completions) => parallelism.min(completions - successes),
        None if successes > 0 => active.min(parallelism),
        None => parallelism,
    };
    for pod in tally.active.iter().skip(usize::try_from(wanted.max(0)).unwrap_or_default()) {
        plan.push(Action::Delete { resource: "pods", object: Arc::clone(pod) });
    }
    if active >= wanted {
        return;
    }
    if let Some(at) = held_back(tally).filter(|at| *at > now) {
        return plan.wake_at(at);
    }
    let mut taken: BTreeSet<i64> =
        tally.active.iter().filter_map(|pod| index(pod)).chain(tally.done.iter().copied()).collect();
    for _ in active..wanted {
        let free = (0..).find(|index| !taken.contains(index)).unwrap_or_default();
        taken.insert(free);
        create(plan, job, free, random);
    }
}

/// When the next Pod may start after failures.
fn held_back(tally: &Tally) -> Option<Timestamp> {
    let failures = tally.failed + count(&tally.uncounted[1]);
    let last = tally
        .finished
        .iter()
        .filter(|pod| object::text(pod, "/status/phase") == "Failed")
        .filter_map(|pod| ended_at(pod))
        .max()?;
    let doubled = u32::try_from(failures - 1).ok().and_then(|n| BACK_OFF.checked_mul(2_i64.checked_pow(n)?));
    Some(last + SignedDuration::from_secs(doubled.unwrap_or(LONGEST_BACK_OFF).min(LONGEST_BACK_OFF)))
}

fn ended_at(pod: &Value) -> Option<Timestamp> {
    let statuses = pod.pointer("/status/containerStatuses")?.as_array()?;
    statuses.iter().filter_map(|it| object::text(it, "/state/terminated/finishedAt").parse().ok()).max()
}

fn create(plan: &mut Plan, job: &Value, index: i64, random: &dyn Random) {
    let (namespace, name) = (object::namespace(job), object::name(job));
    let indexed = job["spec"]["completionMode"] == "Indexed";
    let base = if indexed { format!("{name}-{index}") } else { name.to_owned() };
    let base = base.get(..57).unwrap_or(&base).to_owned();
    let made = format!("{base}-{}", random.suffix(5));
    let mut pod = pod::from_template(&job["spec"]["template"], namespace, &made, ownership::reference(job));
    pod["metadata"]["generateName"] = json!(format!("{base}-"));
    pod["metadata"]["finalizers"] = json!([TRACKING]);
    if indexed {
        pod["metadata"]["annotations"][INDEX] = json!(index.to_string());
        pod["metadata"]["labels"][INDEX] = json!(index.to_string());
        pod["spec"]["hostname"] = json!(base);
        for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
            let env = object::members(container).entry("env").or_insert_with(|| json!([]));
            if let Some(env) = env.as_array_mut() {
                env.push(json!({"name": "JOB_COMPLETION_INDEX", "value": index.to_string()}));
            }
        }
    }
    plan.push(Action::Create { resource: "pods", object: pod });
    plan.event(job, "SuccessfulCreate", format!("Created pod: {made}"));
}

/// A finished Job goes after its time to live.
fn expire(plan: &mut Plan, job: &Value, now: Timestamp) {
    let Some(seconds) = job["spec"]["ttlSecondsAfterFinished"].as_i64() else { return };
    let kinds = ["Complete", "Failed"];
    let since = kinds.iter().find_map(|kind| {
        let it = condition::find(job.get("status")?, kind)?;
        object::text(it, "/lastTransitionTime").parse::<Timestamp>().ok()
    });
    let Some(at) = since.map(|since| since + SignedDuration::from_secs(seconds)) else { return };
    if at <= now {
        plan.push(Action::Delete { resource: RESOURCE, object: Arc::new(job.clone()) });
    } else {
        plan.wake_at(at);
    }
}

fn status(job: &Value, tally: &Tally, end: Option<End>, now: Timestamp) -> Value {
    let now = object::time(now);
    let mut status = job.get("status").cloned().unwrap_or_else(|| json!({}));
    let ready = tally.active.iter().filter(|pod| pod::is_ready(pod)).count();
    let members = object::members(&mut status);
    if job["spec"]["suspend"] != true {
        members.entry("startTime").or_insert_with(|| json!(now));
    }
    let active = if end.is_some() { 0 } else { i64::try_from(tally.active.len()).unwrap_or(i64::MAX) };
    for (field, count) in [("active", active), ("succeeded", tally.succeeded), ("failed", tally.failed)] {
        if count > 0 {
            members.insert(field.to_owned(), json!(count));
        } else {
            members.remove(field);
        }
    }
    members.insert("ready".to_owned(), json!(ready));
    members.insert("terminating".to_owned(), json!(0));
    let [succeeded, failed] = &tally.uncounted;
    let mut uncounted = json!({});
    for (field, uids) in [("succeeded", succeeded), ("failed", failed)] {
        if !uids.is_empty() {
            uncounted[field] = json!(uids);
        }
    }
    members.insert("uncountedTerminatedPods".to_owned(), uncounted);
    // Whoever waits for the end wants the counts, too.
    let Some(end) = end.filter(|_| succeeded.is_empty() && failed.is_empty()) else { return status };
    let (kinds, reason, message) = match end {
        End::Complete => {
            members.entry("completionTime").or_insert_with(|| json!(now));
            (["SuccessCriteriaMet", "Complete"], "CompletionsReached", "Reached expected number of succeeded pods")
        }
        End::BackoffLimitExceeded => {
            (["FailureTarget", "Failed"], "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        }
        End::DeadlineExceeded => {
            (["FailureTarget", "Failed"], "DeadlineExceeded", "Job was active longer than specified deadline")
        }
    };
    for kind in kinds {
        condition::set(&mut status, Condition { kind, status: true, reason, message }, &now);
    }
    status
}

// === impl Tally ===

impl Tally {
    fn of(job: &Value, pods: &[Arc<Value>]) -> Self {
        let number = |field: &str| job.pointer(&format!("/status/{field}")).and_then(Value::as_i64).unwrap_or_default();
        let listed = |field: &str| object::strings(job.pointer(&format!("/status/uncountedTerminatedPods/{field}")));
        let mut tally = Self {
            active: pods.iter().filter(|pod| pod::is_active(pod)).cloned().collect(),
            finished: pods.iter().filter(|pod| outcome(pod).is_some()).cloned().collect(),
            succeeded: number("succeeded"),
            failed: number("failed"),
            uncounted: [Vec::new(), Vec::new()],
            done: pods.iter().filter(|pod| outcome(pod) == Some(0)).filter_map(|pod| index(pod)).collect(),
        };
        for (which, field) in ["succeeded", "failed"].into_iter().enumerate() {
            for uid in listed(field) {
                let tracked = tally.finished.iter().any(|pod| object::uid(pod) == uid && is_tracked(pod));
                match (tracked, which) {
                    (true, _) => tally.uncounted[which].push(uid.to_owned()),
                    (false, 0) => tally.succeeded += 1,
                    (false, _) => tally.failed += 1,
                }
            }
            for pod in tally.finished.iter().filter(|pod| is_tracked(pod) && outcome(pod) == Some(which)) {
                let uid = object::uid(pod);
                if !tally.uncounted[which].iter().any(|known| known == uid) {
                    tally.uncounted[which].push(uid.to_owned());
                }
            }
        }
        tally
    }
}

/// 0 for success, 1 for failure; none while it runs. A Pod that somebody deleted has failed.
fn outcome(pod: &Value) -> Option<usize> {
    match object::text(pod, "/status/phase") {
        "Succeeded" => Some(0),
        "Failed" => Some(1),
        _ if object::is_deleting(pod) && pod.pointer("/metadata/deletionGracePeriodSeconds") == Some(&json!(0)) => {
            Some(1)
        }
        _ => None,
    }
}

fn is_tracked(pod: &Value) -> bool {
    object::finalizers(pod).contains(&TRACKING)
}

fn without_tracking(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let rest: Vec<String> =
        object::finalizers(&pod).into_iter().filter(|name| *name != TRACKING).map(str::to_owned).collect();
    object::set_metadata(&mut pod, "finalizers", (!rest.is_empty()).then(|| json!(rest)));
    pod
}

fn index(pod: &Value) -> Option<i64> {
    pod.pointer("/metadata/annotations")?.get(INDEX)?.as_str()?.parse().ok()
}

fn count(uids: &[String]) -> i64 {
    i64::try_from(uids.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::SystemRandom;

    fn job(completions: i64, status: Value) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": "n", "uid": "1"},
            "spec": {"completions": completions, "parallelism": 2, "backoffLimit": 1,
                     "template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": status,
        })
    }

    fn pod(uid: &str, phase: &str, tracked: bool) -> Arc<Value> {
        let finalizers = if tracked { json!([TRACKING]) } else { json!([]) };
        Arc::new(json!({
            "metadata": {"name": uid, "namespace": "n", "uid": uid, "finalizers": finalizers,
                         "ownerReferences": [ownership::reference(&job(1, json!({})))]},
            "spec": {}, "status": {"phase": phase},
        }))
    }

    fn look(job: &Value, pods: &[Arc<Value>]) -> (Option<Value>, usize, usize) {
        let plan = plan(job, pods, &SystemRandom, Timestamp::UNIX_EPOCH);
        let status = plan.actions.iter().find_map(|action| match action {
            Action::Status { object, .. } => Some(object["status"].clone()),
            _ => None,
        });
        let count = |f: fn(&Action) -> bool| plan.actions.iter().filter(|a| f(a)).count();
        let created = count(|a| matches!(a, Action::Create { .. }));
        (status, created, count(|a| matches!(a, Action::Update { .. })))
    }

    #[test]
    fn every_pod_is_counted_once_and_then_the_job_is_complete() {
        let (status, created, _) = look(&job(1, json!({})), &[]);
        assert_eq!(created, 1, "no more than completions");
        let done = [pod("a", "Succeeded", true)];
        let (status, created, untracked) = look(&job(1, status.unwrap()), &done);
        let status = status.unwrap();
        assert_eq!(status["uncountedTerminatedPods"], json!({"succeeded": ["a"]}));
        assert_eq!((created, untracked), (0, 1));
        let (counted, ..) = look(&job(1, status), &[pod("a", "Succeeded", false)]);
        let counted = counted.unwrap();
        assert_eq!(counted["succeeded"], 1);
        assert!(condition::is_true(&json!({"status": counted}), "Complete"), "{counted}");
        let (again, created, untracked) = look(&job(1, counted), &[pod("a", "Succeeded", false)]);
        assert_eq!((again, created, untracked), (None, 0, 0), "a finished job is left alone");
    }

    #[test]
    fn failures_beyond_the_limit_end_it() {
        let pods = [pod("a", "Failed", false), pod("b", "Failed", false)];
        let (status, created, _) = look(&job(3, json!({"failed": 2})), &pods);
        assert_eq!(created, 0);
        let status = status.unwrap();
        assert!(condition::is_true(&json!({"status": status}), "Failed"), "{status}");
    }
}
