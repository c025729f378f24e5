//! Problems of a workload: those of its Pods, of its controller, and of its progress.

use api::dual_pods::is_provider;
use cluster::{
    controller_of, find_condition, generation, has_environment_of, is_terminating, kind_and_name, metadata_field,
};
use serde_json::Value;

use super::dual_pods::pod_problem_among;
use super::problem::WorkloadProblem;
use super::progress::{Progress, named_replica_set, replicas_are};
use crate::condition_reason::WorkloadReason;
use crate::workloads::{pod_template, template_revision};

/// Returns the most urgent problem of a workload, or `None` if its rollout is complete. `pods` are those of the workload and, if
/// they are requesters, their providers.
#[must_use]
pub(crate) fn workload_problem<'a>(
    workload: &'a Value,
    pods: impl IntoIterator<Item = &'a Value>,
) -> Option<WorkloadProblem> {
    let progress = Progress::from_workload(workload);
    if is_terminating(workload) {
        let message = "waiting for its deletion; it will then be recreated";
        return Some(WorkloadProblem::new(WorkloadReason::Starting, kind_and_name(workload), message));
    }
    if progress.is_complete() {
        return None;
    }
    let (providers, pods): (Vec<&Value>, Vec<&Value>) = pods.into_iter().partition(|pod| is_provider(pod));
    let pods: Vec<&Value> = pods.into_iter().filter(|_| progress.has_current_pods()).collect();
    let pods = if progress.outdated() > 0 { without_outdated_pods(workload, pods) } else { pods };
    let problem = |pod| pod_problem_among(pod, providers.iter().copied());
    let most_urgent = pods.into_iter().filter_map(problem).chain(replica_failure(workload)).min();
    Some(most_urgent.unwrap_or_else(|| progress_problem(workload, &progress)))
}

/// Returns the Pods of the current revision of a workload of which Pods of several revisions exist: a broken Pod of an earlier
/// revision is not a problem of the current one.
fn without_outdated_pods<'a>(workload: &Value, mut pods: Vec<&'a Value>) -> Vec<&'a Value> {
    let Some(first) = pods.first().map(|pod| template_revision(pod)) else { return pods };
    if pods.iter().all(|pod| template_revision(pod) == first) {
        // The Pods of the other revision are not observed yet.
        return Vec::new();
    }
    let template = pod_template(workload);
    if pods.iter().any(|pod| runs_template(pod, template)) {
        pods.retain(|pod| runs_template(pod, template));
    }
    // Revisions may differ in fields that the cache does not contain, or that an admission webhook modifies.
    // Timestamps have a resolution of one second.
    let progressing = find_condition(&workload["status"]["conditions"], "Progressing");
    let current = progressing.and_then(named_replica_set);
    let is_current =
        |pod: &Value| current.is_some() && controller_of(pod).and_then(|set| set["name"].as_str()) == current;
    let newest = pods.iter().max_by_key(|pod| (metadata_field(pod, "creationTimestamp"), is_current(pod)));
    let newest = newest.map(|pod| template_revision(pod));
    pods.retain(|pod| Some(template_revision(pod)) == newest);
    pods
}

/// Returns whether the containers of the Pod have the images, commands and environments of the template.
fn runs_template(pod: &Value, template: &Value) -> bool {
    let containers = |object: &Value| object["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let pod_containers = containers(pod);
    let is_same = |container: &Value| {
        let same_name = pod_containers.iter().find(|candidate| candidate["name"] == container["name"]);
        let fields = ["image", "command", "args"];
        let is_equal = |candidate: &Value| {
            fields.iter().all(|field| candidate[*field] == container[*field])
                && has_environment_of(candidate, container)
        };
        same_name.is_some_and(is_equal)
    };
    containers(template).iter().all(is_same)
}

/// Returns the error of a workload controller that cannot create Pods, for example because of a quota.
fn replica_failure(workload: &Value) -> Option<WorkloadProblem> {
    let failure = find_condition(&workload["status"]["conditions"], "ReplicaFailure")?;
    let message = failure["message"].as_str().unwrap_or("Pods cannot be created");
    let problem = WorkloadProblem::failed(WorkloadReason::PodsNotCreated, kind_and_name(workload), message);
    (failure["status"] == "True").then_some(problem)
}

fn progress_problem(workload: &Value, progress: &Progress) -> WorkloadProblem {
    let Progress { desired, updated, ready, observed, .. } = progress;
    let (reason, message) = match progress.outdated() {
        _ if !observed && workload["status"]["observedGeneration"].is_i64() => (
            WorkloadReason::Starting,
            format!("waiting for its controller to observe generation {}", generation(workload)),
        ),
        _ if !observed || ready < desired => {
            (WorkloadReason::Starting, format!("{ready} of {desired} {} ready", replicas_are(*desired)))
        }
        0 => (WorkloadReason::RollingOut, format!("{updated} of {desired} {} updated", replicas_are(*desired))),
        outdated => {
            let message = format!(
                "{updated} of {desired} {} updated; {outdated} old {} pending termination",
                replicas_are(*desired),
                replicas_are(outdated)
            );
            (WorkloadReason::RollingOut, message)
        }
    };
    WorkloadProblem::new(reason, kind_and_name(workload), message)
}
