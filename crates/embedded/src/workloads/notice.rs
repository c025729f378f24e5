//! Which objects a change concerns.

use std::sync::Arc;

use serde_json::Value;

use super::controller::Controller;
use super::kind::{KINDS, Key, Kind};
use super::{autoscaler, disruption, endpoints, leader_worker_set, ownership, replica_set, volume_claim};
use crate::object;
use crate::watch::Change;

impl Controller {
    pub(super) fn everything(&mut self) {
        for kind in KINDS {
            for object in self.server.list(kind.resource()) {
                self.due.insert(Key::of(kind, &object));
            }
        }
    }

    /// Which objects a change concerns.
    pub(super) fn note(&mut self, change: &Change) {
        let versions: Vec<&Arc<Value>> = change.old.iter().chain(&change.new).collect();
        if let Some(kind) = KINDS.into_iter().find(|kind| kind.resource() == change.resource) {
            self.due.insert(Key { kind, namespace: change.namespace.clone(), name: change.name.clone() });
        }
        self.note_autoscalers(change);
        for object in versions {
            match change.resource.as_str() {
                "pods" => self.note_pod(object, change.new.is_none()),
                replica_set::RESOURCE => self.note_owner(object, Kind::Deployment, "Deployment"),
                endpoints::RESOURCE => {
                    if let Some(name) = endpoints::service_of(object) {
                        let namespace = change.namespace.clone();
                        self.due.insert(Key { kind: Kind::Service, namespace, name: name.to_owned() });
                    }
                }
                "services" => self.note_owner(object, Kind::LeaderWorkerSet, "LeaderWorkerSet"),
                volume_claim::CLAIMS => self.note_volumes(object),
                volume_claim::VOLUMES => self.note_claims(object),
                volume_claim::CLASSES => self.due.extend(self.open_claims()),
                _ => {}
            }
        }
    }

    fn note_pod(&mut self, pod: &Value, gone: bool) {
        self.note_owner(pod, Kind::ReplicaSet, "ReplicaSet");
        self.note_owner(pod, Kind::StatefulSet, "StatefulSet");
        self.note_owner(pod, Kind::Job, "Job");
        let namespace = object::namespace(pod);
        for claim in volume_claim::used_by(pod) {
            self.due.insert(Key { kind: Kind::Claim, namespace: namespace.to_owned(), name: claim.to_owned() });
        }
        let labels = ownership::labels(pod);
        if let Some(name) = labels.get(leader_worker_set::NAME) {
            let key = Key { kind: Kind::LeaderWorkerSet, namespace: namespace.to_owned(), name: name.clone() };
            self.due.insert(key);
        }
        for service in self.server.list_in("services", namespace) {
            let selector = ownership::string_map(service.pointer("/spec/selector"));
            let selects = !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value));
            if selects {
                self.due.insert(Key::of(Kind::Service, &service));
            }
        }
        let budgets = self.server.list(disruption::BUDGETS);
        let own = budgets.iter().filter(|budget| disruption::covers(budget, pod));
        self.due.extend(own.map(|budget| Key::of(Kind::DisruptionBudget, budget)));
        // `Recreate` waits for the last Pod of the old generation.
        if let Some(owner) = ownership::controller(pod).filter(|_| gone)
            && let Some(set) = self.server.get(replica_set::RESOURCE, namespace, object::text(owner, "/name"))
        {
            self.note_owner(&set, Kind::Deployment, "Deployment");
        }
    }

    /// The controller of `object` if it is of this kind; an orphan concerns every one in its namespace.
    fn note_owner(&mut self, object: &Value, kind: Kind, name: &str) {
        let namespace = object::namespace(object);
        match ownership::controller(object) {
            Some(owner) if object::text(owner, "/kind") == name => {
                let name = object::text(owner, "/name").to_owned();
                self.due.insert(Key { kind, namespace: namespace.to_owned(), name });
            }
            Some(_) => {}
            None => {
                let near = self.server.list_in(kind.resource(), namespace);
                self.due.extend(near.iter().map(|other| Key::of(kind, other)));
            }
        }
    }

    /// Those whose target has changed.
    fn note_autoscalers(&mut self, change: &Change) {
        let is_target = |scaler: &&Arc<Value>| {
            autoscaler::target_resource(scaler) == Some(change.resource.as_str())
                && object::text(scaler, "/spec/scaleTargetRef/name") == change.name
        };
        let scalers = self.server.list_in(autoscaler::RESOURCE, &change.namespace);
        self.due.extend(scalers.iter().filter(is_target).map(|scaler| Key::of(Kind::Autoscaler, scaler)));
    }

    /// The volumes that a claim has, or that say they are its.
    fn note_volumes(&mut self, claim: &Value) {
        let named = object::text(claim, "/spec/volumeName");
        let own = |volume: &&Arc<Value>| {
            let reference = volume.pointer("/spec/claimRef").unwrap_or(&Value::Null);
            object::name(volume) == named
                || object::text(reference, "/name") == object::name(claim)
                    && object::text(reference, "/namespace") == object::namespace(claim)
        };
        let volumes = self.server.list(volume_claim::VOLUMES);
        self.due.extend(volumes.iter().filter(own).map(|volume| Key::of(Kind::Volume, volume)));
    }

    /// The claim of a volume, and those that have none yet.
    fn note_claims(&mut self, volume: &Value) {
        if let Some(reference) = volume.pointer("/spec/claimRef").filter(|reference| !reference.is_null()) {
            let text = |field| object::text(reference, field).to_owned();
            self.due.insert(Key { kind: Kind::Claim, namespace: text("/namespace"), name: text("/name") });
        }
        self.due.extend(self.open_claims());
    }

    fn open_claims(&self) -> Vec<Key> {
        let claims = self.server.list(volume_claim::CLAIMS);
        let open = claims.iter().filter(|claim| object::text(claim, "/status/phase") != "Bound");
        open.map(|claim| Key::of(Kind::Claim, claim)).collect()
    }
}
