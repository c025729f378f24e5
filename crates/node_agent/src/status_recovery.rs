//! Restores container statuses after a restart of the agent, which did not observe how the containers terminated. Pure.
//!
//! As in a kubelet after its host has rebooted: containers that were running are reported as terminated with exit code
//! 255 and reason `Unknown`, containers are restarted according to the restart policy and their restarts are counted,
//! init containers run again first, and the Pod keeps its UID.

use apimachinery::object;
use serde_json::Value;

use crate::restart::RestartPolicy;
use crate::status::{ContainerRole, ContainerState, ContainerStatus, TerminatedState, TerminationObservation};

/// Exit code of a container whose termination was not observed; containerd reports the same.
pub(crate) const UNKNOWN_EXIT_CODE: i32 = 255;

/// Restores the containers from the status of their Pod; a container without a status keeps its entry in `initial`.
pub(crate) fn recover_statuses(initial: Vec<ContainerStatus>, pod: &Value, now: &str) -> Vec<ContainerStatus> {
    let mut containers: Vec<ContainerStatus> =
        initial.into_iter().map(|container| container.recover(pod, now)).collect();
    let main_containers = || containers.iter().filter(|container| container.role == ContainerRole::Main);
    if main_containers().count() > 0 && main_containers().all(|container| container.done) {
        containers.iter_mut().for_each(|container| container.done = true);
    }
    containers
}

/// Whether the Pod has run before.
pub(crate) fn has_run(pod: &Value) -> bool {
    pod.pointer("/status/containerStatuses").is_some()
}

/// Returns the status of a container by name.
fn container_status<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let status_fields = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let mut statuses = status_fields.into_iter().filter_map(|list| pod.pointer(list)?.as_array()).flatten();
    statuses.find(|status| object::text(status, "/name") == name)
}

/// Returns the most recent termination in a container status: from `state`, or else from `lastState`.
fn last_termination(status: &Value, now: &str) -> Option<TerminatedState> {
    let state = &status["state"];
    if let Some(running) = state.get("running") {
        let started = object::text(running, "/startedAt").to_owned();
        return Some(TerminatedState {
            exit_code: UNKNOWN_EXIT_CODE,
            message: String::new(),
            observation: TerminationObservation::Unobserved,
            started_at: started,
            finished_at: now.to_owned(),
        });
    }
    let terminated_state = state.get("terminated").or_else(|| status.pointer("/lastState/terminated"))?;
    let text = |field| object::text(terminated_state, field).to_owned();
    Some(TerminatedState {
        exit_code: terminated_state["exitCode"]
            .as_i64()
            .and_then(|code| i32::try_from(code).ok())
            .unwrap_or(UNKNOWN_EXIT_CODE),
        message: text("/message"),
        observation: if object::text(terminated_state, "/reason") == "Unknown" {
            TerminationObservation::Unobserved
        } else {
            TerminationObservation::Observed
        },
        started_at: text("/startedAt"),
        finished_at: text("/finishedAt"),
    })
}

impl ContainerStatus {
    fn recover(self, pod: &Value, now: &str) -> Self {
        let Some(status) = container_status(pod, &self.name) else { return self };
        let Some(terminated) = last_termination(status, now) else { return self };
        let restart_count =
            status["restartCount"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or_default();
        let main_containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
        let spec = main_containers.into_iter().find(|spec| object::text(spec, "/name") == self.name);
        let policy = RestartPolicy::for_container(pod, spec.unwrap_or(&Value::Null));
        // A container that was waiting for its next run continues to wait.
        let should_run_again = self.role != ContainerRole::Main
            || policy.should_restart(terminated.exit_code)
            || status["state"].get("waiting").is_some();
        if should_run_again {
            return Self { last_termination: Some(terminated), restart_count, ..self };
        }
        Self { state: ContainerState::Terminated(terminated), restart_count, done: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn initial(role: ContainerRole, name: &str) -> ContainerStatus {
        ContainerStatus {
            name: name.into(),
            image: "i".into(),
            role,
            state: ContainerState::Waiting { reason: "ContainerCreating".into(), message: String::new() },
            last_termination: None,
            restart_count: 0,
            devices: std::collections::BTreeMap::new(),
            started: false,
            ready: false,
            done: false,
        }
    }

    fn pod(policy: &str, state: &Value, restart_count: u32) -> Value {
        let status = json!([{"name": "main", "restartCount": restart_count, "state": state, "lastState": {}}]);
        json!({"spec": {"restartPolicy": policy}, "status": {"containerStatuses": status}})
    }

    #[rstest]
    #[case::restarts_always("Always", json!({"running": {"startedAt": "s"}}), Some(255), false)]
    #[case::restarts_on_failure("OnFailure", json!({"running": {"startedAt": "s"}}), Some(255), false)]
    #[case::never_restarts("Never", json!({"running": {"startedAt": "s"}}), None, true)]
    #[case::succeeded("OnFailure", json!({"terminated": {"exitCode": 0}}), None, true)]
    #[case::between_runs("Always", json!({"terminated": {"exitCode": 3}}), Some(3), false)]
    #[case::not_started("Always", json!({"waiting": {"reason": "ContainerCreating"}}), None, false)]
    fn restores_last_termination(
        #[case] policy: &str,
        #[case] state: Value,
        #[case] last_termination: Option<i32>,
        #[case] done: bool,
    ) {
        let pod = pod(policy, &state, 4);
        let recovered = recover_statuses(vec![initial(ContainerRole::Main, "main")], &pod, "now").remove(0);
        assert_eq!(
            (recovered.last_termination.as_ref().map(|termination| termination.exit_code), recovered.done),
            (last_termination, done)
        );
        assert_eq!(recovered.restart_count, if last_termination.is_some() || done { 4 } else { 0 });
    }

    #[test]
    fn waiting_container_keeps_last_termination() {
        let mut pod = pod("Always", &json!({"waiting": {"reason": "CrashLoopBackOff"}}), 4);
        pod["status"]["containerStatuses"][0]["lastState"] = json!({"terminated": {"exitCode": 7}});
        let recovered = recover_statuses(vec![initial(ContainerRole::Main, "main")], &pod, "now").remove(0);
        assert_eq!(
            (recovered.last_termination.map(|termination| termination.exit_code), recovered.restart_count),
            (Some(7), 4)
        );
    }

    #[test]
    fn init_containers_run_again_unless_pod_is_finished() {
        let mut pod = pod("Always", &json!({"running": {"startedAt": "s"}}), 0);
        pod["status"]["initContainerStatuses"] =
            json!([{"name": "init", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}, "lastState": {}}]);
        let initial_statuses = || vec![initial(ContainerRole::Init, "init"), initial(ContainerRole::Main, "main")];
        assert!(recover_statuses(initial_statuses(), &pod, "now").iter().all(|container| !container.done));
        pod["spec"]["restartPolicy"] = json!("Never");
        assert!(recover_statuses(initial_statuses(), &pod, "now").iter().all(|container| container.done));
    }
}
