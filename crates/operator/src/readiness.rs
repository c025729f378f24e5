//! Is a workload ready, and if not, why not; from its object and its Pods, without a client.
//!
//! Of many troubles the one that a person must act on first is told: an image that cannot be pulled before a crash,
//! a crash before a Pod that finds no node, and plain starting last. Ties go to the first Pod by name.

mod code;
mod container;
mod pod;

use cluster::object::{describe, terminating};
use serde_json::Value;

use crate::reason::Reason;
pub use code::Code;
pub use container::{crashed, crashed_container, last_line};
pub use pod::{pod_ready, pod_trouble};

/// Restarts after which a crashing Pod counts as failed rather than starting.
pub const RESTARTS_TO_FAIL: i64 = 3;

/// What a workload wants and has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the object exists and its controller has seen the present generation.
    pub current: bool,
    /// Replicas wanted.
    pub desired: i64,
    /// Replicas that exist, of whatever revision.
    pub existing: i64,
    /// Replicas of the present revision.
    pub updated: i64,
    /// Replicas that are ready.
    pub ready: i64,
}

/// One reason for not being ready.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trouble {
    /// What kind of trouble.
    pub code: Code,
    /// Another Pod is what it waits for: that one is told first.
    pub by_others: bool,
    /// The Pod or workload it stands on.
    pub object: String,
    /// A sentence, with the scheduler's or the node's own words.
    pub message: String,
    /// It will not pass by itself: a `Failed` phase is justified.
    pub failed: bool,
}

// === impl Progress ===

impl Progress {
    /// Of a Deployment or LeaderWorkerSet; both use the same names.
    #[must_use]
    pub fn of(workload: &Value) -> Progress {
        let status = &workload["status"];
        let observed = status["observedGeneration"].as_i64();
        let count = |name: &str| status[name].as_i64().unwrap_or_default();
        Progress {
            // LeaderWorkerSet before 0.7 does not say which generation it saw.
            current: status.is_object()
                && observed.is_none_or(|observed| observed >= cluster::object::generation(workload)),
            desired: workload["spec"]["replicas"].as_i64().unwrap_or(1),
            existing: count("replicas"),
            updated: count("updatedReplicas"),
            ready: count("readyReplicas"),
        }
    }

    /// Everything wanted is there and ready, and nothing of another revision is. Zero replicas are ready at once.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.current && self.updated >= self.desired && self.ready >= self.desired && self.outdated() == 0
    }

    /// Whether Pods say anything about the present revision: where none of them is of it, what is wrong with them is past.
    fn has_pods(&self) -> bool {
        self.current && (self.updated > 0 || self.existing == 0)
    }

    /// Replicas of an earlier revision. A ready one of them is no sign that the present revision works.
    fn outdated(&self) -> i64 {
        (self.existing - self.updated).max(0)
    }
}

// === impl Trouble ===

impl Trouble {
    /// As the reason of a condition.
    #[must_use]
    pub fn reason(&self) -> Reason {
        Reason::Workload(self.code)
    }
}

/// The most urgent trouble of a workload that is not complete, or `None` if it is.
#[must_use]
pub fn trouble<'a>(workload: &'a Value, pods: impl IntoIterator<Item = &'a Value>) -> Option<Trouble> {
    let progress = Progress::of(workload);
    if terminating(workload) {
        let message = "it is being deleted and will be made again".to_owned();
        return Some(Trouble {
            code: Code::Starting,
            by_others: false,
            object: describe(workload),
            message,
            failed: false,
        });
    }
    if progress.complete() {
        return None;
    }
    let pods = pods.into_iter().filter(|_| progress.has_pods());
    let worst = pods.filter_map(pod_trouble).chain(replica_failure(workload)).min();
    Some(worst.unwrap_or_else(|| waiting(workload, &progress)))
}

/// A Deployment that may not make Pods (quota, admission) says so in a condition.
fn replica_failure(workload: &Value) -> Option<Trouble> {
    let failure = condition(workload, "ReplicaFailure").filter(|failure| failure["status"] == "True")?;
    let message = failure["message"].as_str().unwrap_or("Pods cannot be created").to_owned();
    Some(Trouble { code: Code::PodsNotCreated, by_others: false, object: describe(workload), message, failed: true })
}

fn waiting(workload: &Value, progress: &Progress) -> Trouble {
    let Progress { desired, updated, ready, current, .. } = progress;
    let paused =
        if workload["spec"]["paused"] == true { "; it is paused, `ostler rollout resume` goes on" } else { "" };
    let (code, message) = match progress.outdated() {
        _ if !current && workload["status"]["observedGeneration"].is_i64() => {
            (Code::Starting, "its controller has not taken in the change yet".to_owned())
        }
        _ if !current || ready < desired => (Code::Starting, format!("{ready} of {desired} replicas are ready")),
        0 => (Code::RollingOut, format!("{updated} of {desired} replicas are of the new revision{paused}")),
        outdated => {
            let message = format!(
                "{updated} of {desired} replicas are of the new revision, and {outdated} of an earlier one still run{paused}"
            );
            (Code::RollingOut, message)
        }
    };
    Trouble { code, by_others: false, object: describe(workload), message, failed: false }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    cluster::conditions::find(&object["status"]["conditions"], kind)
}

#[cfg(test)]
mod tests;
