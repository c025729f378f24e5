//! A Pod's containers when the agent comes back: nobody saw how their runs ended. Pure.
//!
//! As a kubelet does after its machine was started again: a run that went on is over with code 255 for reason `Unknown`,
//! what the restart policy restarts runs again and counts, init containers run again before it, and the Pod keeps its
//! uid.

use serde_json::Value;

use super::restart::Policy;
use super::status::{Container, End, Ended, Phase, Role};
use crate::object;

/// What a run ends with that nobody saw the end of; containerd's answer.
const LOST: i32 = 255;

/// The containers as far as the status of their Pod tells of an earlier time; fresh ones where it tells nothing.
pub(crate) fn containers(fresh: Vec<Container>, pod: &Value, now: &str) -> Vec<Container> {
    let mut all: Vec<Container> = fresh.into_iter().map(|container| container.resumed(pod, now)).collect();
    let mains = || all.iter().filter(|container| container.role == Role::Main);
    if mains().count() > 0 && mains().all(|container| container.done) {
        all.iter_mut().for_each(|container| container.done = true);
    }
    all
}

/// Whether the Pod ran before.
pub(crate) fn ran(pod: &Value) -> bool {
    pod.pointer("/status/containerStatuses").is_some()
}

fn state_of<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let mut all = lists.into_iter().filter_map(|list| pod.pointer(list)?.as_array()).flatten();
    all.find(|status| object::text(status, "/name") == name)
}

/// The end that a status tells of: of the current run, or of the one before.
fn end(status: &Value, now: &str) -> Option<Ended> {
    let state = &status["state"];
    if let Some(running) = state.get("running") {
        let started = object::text(running, "/startedAt").to_owned();
        return Some(Ended { code: LOST, message: String::new(), how: End::Unseen, started, finished: now.to_owned() });
    }
    let told = state.get("terminated").or_else(|| status.pointer("/lastState/terminated"))?;
    let text = |field| object::text(told, field).to_owned();
    Some(Ended {
        code: told["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(LOST),
        message: text("/message"),
        how: if object::text(told, "/reason") == "Unknown" { End::Unseen } else { End::Seen },
        started: text("/startedAt"),
        finished: text("/finishedAt"),
    })
}

impl Container {
    fn resumed(self, pod: &Value, now: &str) -> Self {
        let Some(status) = state_of(pod, &self.name) else { return self };
        let Some(ended) = end(status, now) else { return self };
        let restarts = status["restartCount"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or_default();
        let mains = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
        let spec = mains.into_iter().find(|spec| object::text(spec, "/name") == self.name);
        let policy = Policy::of_container(pod, spec.unwrap_or(&Value::Null));
        // Whoever waited for its next run goes on to it.
        let again = self.role != Role::Main || policy.restarts(ended.code) || status["state"].get("waiting").is_some();
        if again {
            return Self { last: Some(ended), restarts, ..self };
        }
        Self { phase: Phase::Ended(ended), restarts, done: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn fresh(role: Role, name: &str) -> Container {
        Container {
            name: name.into(),
            image: "i".into(),
            role,
            phase: Phase::Waiting { reason: "ContainerCreating".into(), message: String::new() },
            last: None,
            restarts: 0,
            started: false,
            ready: false,
            done: false,
        }
    }

    fn pod(policy: &str, state: &Value, restarts: u32) -> Value {
        let status = json!([{"name": "main", "restartCount": restarts, "state": state, "lastState": {}}]);
        json!({"spec": {"restartPolicy": policy}, "status": {"containerStatuses": status}})
    }

    #[rstest]
    #[case::serving("Always", json!({"running": {"startedAt": "s"}}), Some(255), false)]
    #[case::working("OnFailure", json!({"running": {"startedAt": "s"}}), Some(255), false)]
    #[case::once("Never", json!({"running": {"startedAt": "s"}}), None, true)]
    #[case::finished("OnFailure", json!({"terminated": {"exitCode": 0}}), None, true)]
    #[case::between_runs("Always", json!({"terminated": {"exitCode": 3}}), Some(3), false)]
    #[case::never_ran("Always", json!({"waiting": {"reason": "ContainerCreating"}}), None, false)]
    fn what_runs_again(#[case] policy: &str, #[case] state: Value, #[case] last: Option<i32>, #[case] done: bool) {
        let pod = pod(policy, &state, 4);
        let resumed = containers(vec![fresh(Role::Main, "main")], &pod, "now").remove(0);
        assert_eq!((resumed.last.as_ref().map(|last| last.code), resumed.done), (last, done));
        assert_eq!(resumed.restarts, if last.is_some() || done { 4 } else { 0 });
    }

    #[test]
    fn a_pod_that_waits_for_a_run_keeps_its_last_end() {
        let mut pod = pod("Always", &json!({"waiting": {"reason": "CrashLoopBackOff"}}), 4);
        pod["status"]["containerStatuses"][0]["lastState"] = json!({"terminated": {"exitCode": 7}});
        let resumed = containers(vec![fresh(Role::Main, "main")], &pod, "now").remove(0);
        assert_eq!((resumed.last.map(|last| last.code), resumed.restarts), (Some(7), 4));
    }

    #[test]
    fn init_containers_run_again_unless_all_is_done() {
        let mut pod = pod("Always", &json!({"running": {"startedAt": "s"}}), 0);
        pod["status"]["initContainerStatuses"] =
            json!([{"name": "init", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}, "lastState": {}}]);
        let both = || vec![fresh(Role::Init, "init"), fresh(Role::Main, "main")];
        assert!(containers(both(), &pod, "now").iter().all(|container| !container.done));
        pod["spec"]["restartPolicy"] = json!("Never");
        assert!(containers(both(), &pod, "now").iter().all(|container| container.done));
    }
}
