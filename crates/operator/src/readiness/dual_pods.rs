//! Problems of requesters of dual pods: they are ready once the engine in their provider is.

use api::dual_pods::{REQUESTER, is_requester, status_errors};
use cluster::metadata_field;
use serde_json::Value;

use super::pod::pod_problem;
use super::problem::WorkloadProblem;
use crate::condition_reason::WorkloadReason;

/// Returns the most urgent problem of a Pod, or `None` if it is ready or terminating. For a requester that waits for its engine, this
/// is the problem of its provider, which is one of `pods`, or what the controller of dual pods reports.
#[must_use]
pub fn pod_problem_among<'a>(pod: &Value, pods: impl IntoIterator<Item = &'a Value>) -> Option<WorkloadProblem> {
    let problem = pod_problem(pod)?;
    if !is_requester(pod) || problem.reason != WorkloadReason::NotReadyYet {
        return Some(problem);
    }
    let provider = pods.into_iter().find(|other| is_bound_to(other, pod));
    let errors = status_errors(pod);
    match provider.and_then(pod_problem) {
        Some(of_provider) if errors.is_empty() || !is_starting(&of_provider) => Some(of_provider),
        _ if !errors.is_empty() => {
            Some(WorkloadProblem::new(WorkloadReason::ActuationBlocked, problem.object, errors.join("; ")))
        }
        _ => {
            let message = match provider {
                Some(provider) => {
                    format!("waiting for the engine in Pod {} to wake up", metadata_field(provider, "name"))
                }
                None => "waiting for the controller of dual pods to start or wake its engine".to_owned(),
            };
            Some(WorkloadProblem::new(WorkloadReason::WaitingForActuation, problem.object, message))
        }
    }
}

fn is_starting(problem: &WorkloadProblem) -> bool {
    matches!(problem.reason, WorkloadReason::Starting | WorkloadReason::NotReadyYet)
}

/// Returns whether `pod` is the provider of `requester`. The binding is the UID of the requester and its name.
fn is_bound_to(pod: &Value, requester: &Value) -> bool {
    let uid = metadata_field(requester, "uid");
    let binding = pod["metadata"]["annotations"][REQUESTER].as_str().and_then(|text| text.split(' ').next());
    !uid.is_empty() && binding == Some(uid)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn requester(errors: &Value) -> Value {
        let annotations = json!({"dual-pods.llm-d.ai/server-patch": "{}",
            "dual-pods.llm-d.ai/status": json!({"Errors": errors}).to_string()});
        json!({"metadata": {"name": "r", "uid": "u", "annotations": annotations}, "status": running(false)})
    }

    fn provider(binding: &str, status: &Value) -> Value {
        json!({"metadata": {"name": "p", "annotations": {"dual-pods.llm-d.ai/requester": binding}}, "status": status})
    }

    fn running(ready: bool) -> Value {
        let ready_condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
        json!({"phase": "Running", "conditions": [ready_condition],
            "containerStatuses": [{"name": "inference-server", "ready": ready, "state": {"running": {}}}]})
    }

    fn failed_pull() -> Value {
        json!({"phase": "Pending", "containerStatuses": [{"name": "inference-server", "image": "v", "ready": false,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]})
    }

    #[rstest]
    #[case::no_provider(json!(null), None, "r", "WaitingForActuation", "waiting for the controller of dual pods")]
    #[case::provider_of_other(json!(null), Some(provider("v r", &failed_pull())), "r", "WaitingForActuation", "waiting for the controller")]
    #[case::blocked(json!(["a", "b"]), None, "r", "ActuationBlocked", "a; b")]
    #[case::loading(json!(null), Some(provider("u r", &running(false))), "p", "NotReadyYet", "container inference-server is running")]
    #[case::loading_with_errors(json!(["a"]), Some(provider("u r", &running(false))), "r", "ActuationBlocked", "a")]
    #[case::broken(json!(["a"]), Some(provider("u r", &failed_pull())), "p", "ImagePullFailed", "failed to pull image v")]
    #[case::waking(json!(null), Some(provider("u r", &running(true))), "r", "WaitingForActuation", "waiting for the engine in Pod p to wake up")]
    fn requester_has_the_problem_of_its_provider(
        #[case] errors: Value,
        #[case] provider: Option<Value>,
        #[case] pod: &str,
        #[case] reason: &str,
        #[case] message: &str,
    ) {
        let problem = pod_problem_among(&requester(&errors), &provider).unwrap();
        assert_eq!((problem.object.as_str(), problem.reason.as_str()), (format!("Pod {pod}").as_str(), reason));
        assert!(problem.message.starts_with(message), "{}", problem.message);
    }
}
