//! Changes that help Pods that wait for the quota of a Kueue queue. A higher quota always helps, so no deletion is proposed.

use std::collections::{BTreeMap, BTreeSet};

use operator::WorkloadReason;
use plan::labels::KUEUE_QUEUE;
use serde_json::Value;

use super::fields::text;
use super::pod_problems::PodProblems;
use super::service_pods::service_of;
use crate::pod_diagnostics::KUEUE_PREFIX;
use crate::report::names::join_names;

/// Returns the remedies for each queue that Pods with problems wait for: more quota, or other services of the namespace that
/// release theirs. `pods` are all Pods of the cluster.
pub(super) fn quota_remedies(problems: &PodProblems<'_>, pods: &[Value]) -> Vec<String> {
    let waiting = problems.with_reason(WorkloadReason::WaitingForQuota);
    let mut queues: BTreeMap<(&str, &str), Option<&str>> = BTreeMap::new();
    for pod in waiting {
        let Some(queue) = queue_of(pod) else { continue };
        let problem = problems.diagnostic(pod).and_then(queue_problem);
        let known = queues.entry(queue).or_default();
        *known = known.or(problem);
    }
    let remedies = |(queue, problem): (_, Option<&str>)| match problem {
        Some(problem) => vec![queue_remedy(queue, problem)],
        None => remedies(queue, pods),
    };
    queues.into_iter().flat_map(remedies).collect()
}

/// Returns what Kueue reports about a queue that admits nothing (`pkg/controller/core/workload_controller.go` of Kueue 0.19).
fn queue_problem(diagnostic: &str) -> Option<&str> {
    let problem = diagnostic.strip_prefix(KUEUE_PREFIX)?;
    ["doesn't exist", "is inactive"].iter().any(|end| problem.ends_with(end)).then_some(problem)
}

fn queue_remedy((namespace, queue): (&str, &str), problem: &str) -> String {
    format!(
        "correct the queue ({problem}), or set the label `{KUEUE_QUEUE}` of the service to another LocalQueue than {queue} of \
         namespace {namespace}"
    )
}

fn remedies((namespace, queue): (&str, &str), pods: &[Value]) -> Vec<String> {
    let is_admitted = |pod: &&Value| queue_of(pod) == Some((namespace, queue)) && !is_gated(pod) && !has_ended(pod);
    let users: BTreeSet<&str> = pods.iter().filter(is_admitted).filter_map(|pod| Some(service_of(pod)?.1)).collect();
    let mut names: Vec<String> = users.into_iter().map(str::to_owned).collect();
    let more_quota = format!(
        "raise `nominalQuota` of the ClusterQueue that `kubectl get localqueues.kueue.x-k8s.io {queue} -n {namespace}` names, or \
         ask its administrator to"
    );
    let release = (!names.is_empty()).then(|| {
        format!("free quota of LocalQueue {queue}: scale down a service that uses it: {}", join_names(&mut names))
    });
    [more_quota].into_iter().chain(release).collect()
}

/// Returns namespace and name of the LocalQueue of the Pod.
fn queue_of(pod: &Value) -> Option<(&str, &str)> {
    let queue = pod["metadata"]["labels"][KUEUE_QUEUE].as_str()?;
    Some((text(pod, "/metadata/namespace"), queue))
}

fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::pod_diagnostics::PodDiagnostics;

    fn pod(service: &str, namespace: &str, queue: &str, gates: &[&str]) -> Value {
        let gates: Vec<Value> = gates.iter().map(|gate| json!({"name": gate})).collect();
        json!({"kind": "Pod", "metadata": {"name": service, "namespace": namespace,
                "labels": {"ome.io/inferenceservice": service, "kueue.x-k8s.io/queue-name": queue}},
            "spec": {"schedulingGates": gates}, "status": {"phase": "Pending"}})
    }

    #[test]
    fn services_that_use_the_quota_are_named() {
        let waiting = pod("search", "team", "inference", &["kueue.x-k8s.io/admission"]);
        let pods = [
            waiting.clone(),
            pod("chat", "team", "inference", &[]),
            pod("other-queue", "team", "training", &[]),
            pod("other-namespace", "public", "inference", &[]),
            pod("waits-too", "team", "inference", &["kueue.x-k8s.io/admission"]),
        ];
        let diagnostics = PodDiagnostics::new();
        let remedies = quota_remedies(&PodProblems::new(&[&waiting], &diagnostics), &pods);
        assert_eq!(
            remedies,
            [
                "raise `nominalQuota` of the ClusterQueue that `kubectl get localqueues.kueue.x-k8s.io inference -n team` \
                 names, or ask its administrator to",
                "free quota of LocalQueue inference: scale down a service that uses it: chat",
            ]
        );
        assert!(quota_remedies(&PodProblems::new(&[&pods[1]], &diagnostics), &pods).is_empty());
    }

    #[rstest]
    #[case::missing("ClusterQueue team doesn't exist")]
    #[case::inactive("LocalQueue inference is inactive")]
    fn queue_that_admits_nothing_is_to_be_corrected(#[case] problem: &str) {
        let waiting = pod("search", "team", "inference", &["kueue.x-k8s.io/admission"]);
        let diagnostics = PodDiagnostics::from([("search".to_owned(), format!("Kueue: {problem}"))]);
        let remedies = quota_remedies(&PodProblems::new(&[&waiting], &diagnostics), std::slice::from_ref(&waiting));
        let expected = format!(
            "correct the queue ({problem}), or set the label `kueue.x-k8s.io/queue-name` of the service to another LocalQueue than \
             inference of namespace team"
        );
        assert_eq!(remedies, [expected]);
    }
}
