//! Carries out what the coordinator decides, and answers its calls.

use std::collections::BTreeMap;

use actuation::{
    Action, Call, CallError, CallErrorKind, Decision, PodRef, Request, Target, Write, WriteError, WriteResults,
    provider_pod,
};
use api::dual_pods;
use apimachinery::{Status, apply_merge_patch, object};
use serde_json::Value;

use super::{World, key, shorten};
use crate::models::{EngineActivity, EngineModel};

impl World {
    pub(crate) fn execute(&mut self, decision: &Decision) {
        let mut written = BTreeMap::new();
        for status in &decision.statuses {
            let messages: Vec<String> = status.problems.iter().map(ToString::to_string).collect();
            let requester = &status.requester;
            self.record(format!("STATUS {} {messages:?}", requester.name));
            written.insert(
                &requester.uid,
                self.patch_pod(requester, &requester.resource_version, &status.patch()).unwrap(),
            );
        }
        let result = match &decision.action {
            Some(Action::Call(call)) => {
                self.answer(call);
                if decision.statuses.is_empty() {
                    return;
                }
                Ok(())
            }
            Some(Action::Write(write)) => self.write(write, &written),
            None => Ok(()),
        };
        self.sync();
        let results = WriteResults { rejected_statuses: Vec::new(), action: result };
        self.coordinator.done(decision, results, self.time());
    }

    fn answer(&mut self, call: &Call) {
        if self.must_wait(call) {
            self.waiting.push(call.clone());
            return;
        }
        let (method, path) = call.request.method_and_path();
        let uid = match &call.target {
            Target::Requester(uid) | Target::Launcher(uid) => uid,
            Target::Engine(id) => &id.pod,
        };
        let pod = self.pods().into_iter().find(|pod| object::uid(pod) == uid);
        let name = pod.map(|pod| object::name(&pod).to_owned()).unwrap_or_default();
        let path = self.with_model(uid, &call.request).unwrap_or_else(|| path.into_owned());
        // Repeated as long as the engine runs.
        if call.request != Request::AwaitHealth {
            self.record(format!("{method} {name}{path}"));
        }
        if let Request::Drain { settle } = &call.request {
            self.advance(*settle);
        }
        let launcher = self.launchers.get_mut(uid);
        let result = match (&call.target, &call.request) {
            (Target::Launcher(_), _) => Ok(launcher.unwrap().list()),
            (Target::Engine(_), Request::CreateInstance { .. }) if self.launchers_reject => {
                Err(CallError { kind: CallErrorKind::Rejected, message: "no such GPU".to_owned() })
            }
            (Target::Engine(id), Request::CreateInstance { id: instance, config }) => {
                self.engines.insert(key(id), EngineModel::new());
                launcher.unwrap().create(instance, config)
            }
            (Target::Engine(id), Request::DeleteInstance { id: instance, .. }) => {
                self.engines.remove(&key(id));
                launcher.unwrap().delete(instance)
            }
            (Target::Engine(id), request) => self.engines.get_mut(&key(id)).unwrap().answer(request),
            (Target::Requester(_), request) => self.requesters.get_mut(&name).unwrap().answer(request),
        };
        self.coordinator.answer(call, &result, self.time());
    }

    /// Returns the path of a request about an instance with its model instead of its id.
    fn with_model(&self, uid: &str, request: &Request) -> Option<String> {
        let model = match request {
            Request::CreateInstance { config, .. } => config["command"][2].as_str()?.to_owned(),
            Request::DeleteInstance { id, .. } => self.launchers.get(uid)?.instances.get(id)?.model(),
            _ => return None,
        };
        Some(format!("/instances/{model}"))
    }

    /// Whether a call waits for a change of its target.
    fn must_wait(&self, call: &Call) -> bool {
        match (&call.target, &call.request) {
            (Target::Requester(uid), _) => {
                let pod = self.pods().into_iter().find(|pod| object::uid(pod) == uid);
                let requester = pod.and_then(|pod| self.requesters.get(object::name(&pod)));
                requester.is_some_and(|requester| requester.hangs)
            }
            (Target::Launcher(uid), Request::Instances { after: Some(revision) }) => {
                self.launchers.get(uid).is_some_and(|launcher| launcher.revision == *revision)
            }
            (Target::Engine(id), Request::AwaitHealth) => {
                self.engines.get(&key(id)).is_some_and(|engine| engine.activity == EngineActivity::Loading)
            }
            _ => false,
        }
    }

    /// Answers a call whose target has changed; returns false if there is none.
    pub(super) fn answer_waiting(&mut self) -> bool {
        let Some(index) = self.waiting.iter().position(|call| !self.must_wait(call)) else { return false };
        let call = self.waiting.remove(index);
        let exists = match &call.target {
            Target::Engine(id) => self.engines.contains_key(&key(id)),
            Target::Launcher(uid) | Target::Requester(uid) => self.pods().iter().any(|pod| object::uid(pod) == uid),
        };
        if exists {
            self.answer(&call);
        }
        true
    }

    /// Lets an instance start, or a launcher observe that one ended; returns false if nothing changes.
    pub(super) fn advance_instances(&mut self) -> bool {
        for (uid, launcher) in &mut self.launchers {
            for (id, instance) in &mut launcher.instances {
                let Some(engine) = self.engines.get_mut(&format!("{uid}/{id}")) else { continue };
                if engine.activity == EngineActivity::Loading && self.engines_start {
                    engine.activity = EngineActivity::Awake;
                    return true;
                }
                if engine.activity == EngineActivity::Dead && instance.is_running {
                    instance.is_running = false;
                    launcher.revision += 1;
                    return true;
                }
            }
        }
        false
    }

    /// Carries out a write. `written` are the resource versions after the status annotations were written, by UID.
    pub(super) fn write(&mut self, write: &Write, written: &BTreeMap<&String, String>) -> Result<(), WriteError> {
        let result = match write {
            Write::Create { requester, nominal } => {
                let pod = provider_pod(requester, nominal);
                self.record(format!("CREATE {}", object::name(&pod)));
                self.server.create("pods", pod).map(|_| ())
            }
            Write::Patch { pod, purpose, patch, .. } => {
                self.record(format!("PATCH {} {}", pod.name, purpose.as_str()));
                self.patch_pod(pod, written.get(&pod.uid).unwrap_or(&pod.resource_version), patch).map(|_| ())
            }
            Write::Delete { pod, purpose, .. } => {
                let purpose = format!("{purpose:?}");
                let purpose = purpose.split('(').next().unwrap();
                self.record(format!("DELETE {} {purpose}", pod.name));
                // A provider may have been bound since.
                match self.pod(&pod.name).filter(|live| dual_pods::is_provider(live)) {
                    Some(live) if object::resource_version(&live) != pod.resource_version => {
                        Err(Status::conflict("pods", &pod.name, "changed"))
                    }
                    _ => self.server.delete("pods", &pod.namespace, &pod.name, Some(&pod.uid)),
                }
            }
        };
        result.map_err(|status| match status.code {
            404 => WriteError::NotFound,
            409 if status.reason == "AlreadyExists" => WriteError::AlreadyExists,
            409 => WriteError::Conflict,
            _ => WriteError::Rejected(status.message),
        })
    }

    /// Applies a merge patch to one version of a Pod, and returns the resource version after it.
    fn patch_pod(&self, pod: &PodRef, version: &str, patch: &Value) -> Result<String, Status> {
        let live = self.pod(&pod.name).ok_or_else(|| Status::not_found("pods", &pod.name))?;
        if object::uid(&live) != pod.uid || version != object::resource_version(&live) {
            return Err(Status::conflict("pods", &pod.name, "changed"));
        }
        let patched = apply_merge_patch(&live, patch);
        self.server.update("pods", patched).map(|pod| object::resource_version(&pod).to_owned())
    }

    fn record(&mut self, entry: String) {
        self.journal.push(shorten(&entry));
    }
}
