//! The kubelet and the scheduler.

use api::dual_pods;
use apimachinery::object;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{NAMESPACE, World};
use crate::models::{EngineActivity, EngineModel, LauncherModel};

impl World {
    // The kubelet and the scheduler.

    /// Carries out one step of a Pod's life; returns false if there is none.
    pub(crate) fn tick(&mut self) -> bool {
        self.answer_waiting() || self.advance_instances() || self.pods().iter().any(|pod| self.advance_pod(pod))
    }

    fn advance_pod(&mut self, pod: &Value) -> bool {
        let (name, uid) = (object::name(pod), object::uid(pod));
        let is_provider = dual_pods::is_provider(pod);
        let state = &pod["status"]["containerStatuses"][0]["state"];
        if object::is_deleting(pod) {
            return self.end_pod(pod, is_provider);
        }
        if object::text(pod, "/spec/nodeName").is_empty() {
            let node = pod["metadata"]["annotations"][dual_pods::NODE_NAME].as_str().unwrap();
            let can_schedule =
                self.server.get("nodes", "", node).is_some_and(|node| node["spec"]["unschedulable"] != true);
            return can_schedule && self.server.bind(NAMESPACE, name, node).is_ok();
        }
        let is_launcher = pod["metadata"]["annotations"].get(dual_pods::INSTANCES).is_some();
        if state.is_null() {
            self.set_status(pod, "Running", &json!({"running": {}}), is_launcher);
            if is_launcher {
                self.launchers.insert(uid.to_owned(), LauncherModel::default());
            } else if is_provider {
                let owner = name.split("-dual-").next().unwrap();
                let engine = self.templates.get(owner).cloned().unwrap_or_else(EngineModel::new);
                self.engines.insert(uid.to_owned(), engine);
            }
            return true;
        }
        if !is_provider {
            let is_ready = self.requesters.get(name).is_some_and(|requester| requester.is_ready);
            let changed = pod["status"]["containerStatuses"][0]["ready"] != is_ready;
            if changed {
                self.set_status(pod, "Running", &json!({"running": {}}), is_ready);
            }
            return changed;
        }
        if is_launcher {
            return false;
        }
        let activity = self.engines[uid].activity;
        match activity {
            EngineActivity::Loading if self.engines_start => {
                self.engines.get_mut(uid).unwrap().activity = EngineActivity::Awake;
                self.set_status(pod, "Running", &json!({"running": {}}), true);
                true
            }
            EngineActivity::Dead if state["terminated"].is_null() => {
                self.set_status(pod, "Failed", &json!({"terminated": {"exitCode": 1}}), false);
                true
            }
            _ => false,
        }
    }

    /// Ends the containers of a Pod that is being deleted, then removes it.
    fn end_pod(&mut self, pod: &Value, is_provider: bool) -> bool {
        let (name, uid) = (object::name(pod), object::uid(pod));
        let deadline: Timestamp = object::text(pod, "/metadata/deletionTimestamp").parse().unwrap();
        let requester = self.requesters.get(name);
        let holds = !is_provider && requester.is_some_and(|requester| !requester.is_released) && self.wall < deadline;
        if holds {
            return false;
        }
        let engines = self.engines.iter_mut().filter(|(key, _)| key.split('/').next() == Some(uid));
        engines.for_each(|(_, engine)| engine.activity = EngineActivity::Dead);
        if pod["status"]["containerStatuses"][0]["state"]["terminated"].is_null() {
            self.set_status(pod, "Failed", &json!({"terminated": {"exitCode": 0}}), false);
            return true;
        }
        let has_finalizers = !object::finalizers(pod).is_empty();
        !has_finalizers && self.server.force_delete("pods", NAMESPACE, name, Some(uid)).is_ok()
    }

    /// Sets the Ready condition of a provider.
    pub(crate) fn set_ready(&self, provider: &str, is_ready: bool) {
        let pod = self.pod(provider).unwrap();
        self.set_status(&pod, "Running", &json!({"running": {}}), is_ready);
    }

    /// Restarts the container of a requester.
    pub(crate) fn restart_requester(&mut self, name: &str) {
        let mut pod = self.pod(name).unwrap().as_ref().clone();
        let container = &mut pod["status"]["containerStatuses"][0];
        container["containerID"] = json!("c://restarted");
        container["ready"] = json!(false);
        self.server.update_status("pods", pod).unwrap();
        self.requesters.get_mut(name).unwrap().is_ready = false;
    }

    fn set_status(&self, pod: &Value, phase: &str, state: &Value, is_ready: bool) {
        let mut pod = self.pod(object::name(pod)).unwrap().as_ref().clone();
        let id = match object::text(&pod, "/status/containerStatuses/0/containerID") {
            "" => format!("c://{}", object::uid(&pod)),
            id => id.to_owned(),
        };
        let container = json!({"name": "inference-server", "containerID": id, "state": state,
            "ready": is_ready, "restartCount": 0, "image": "x", "imageID": "x"});
        let ready = if is_ready { "True" } else { "False" };
        pod["status"] = json!({"phase": phase, "podIP": "10.0.0.1", "containerStatuses": [container],
            "conditions": [{"type": "Ready", "status": ready}]});
        self.server.update_status("pods", pod).unwrap();
    }

    /// Marks a provider as rejected by the scheduler.
    pub(crate) fn reject(&self, provider: &str, message: &str) {
        let mut pod = self.pod(provider).unwrap().as_ref().clone();
        pod["status"]["conditions"] =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]);
        self.server.update_status("pods", pod).unwrap();
    }
}
