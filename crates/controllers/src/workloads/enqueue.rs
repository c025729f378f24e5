//! Maps a change to the objects that have to be reconciled.

use std::sync::Arc;

use apimachinery::{disruption_budget, object, persistent_volume};
use apiserver::Change;
use serde_json::Value;

use super::controller::ControllerManager;
use super::kind::{WORKLOAD_KINDS, WorkloadKey, WorkloadKind};
use super::{endpoints, horizontal_pod_autoscaler, leader_worker_set, replica_set, volume_claim};

impl ControllerManager {
    /// Enqueues all objects of all kinds.
    pub(super) fn enqueue_all(&mut self) {
        for kind in WORKLOAD_KINDS {
            for object in self.server.list(kind.resource()) {
                self.queue.insert(WorkloadKey::new(kind, &object));
            }
        }
    }

    /// Enqueues the objects that a change affects.
    pub(super) fn handle_change(&mut self, change: &Change) {
        let versions: Vec<&Arc<Value>> = change.old.iter().chain(&change.new).collect();
        if let Some(kind) = WORKLOAD_KINDS.into_iter().find(|kind| kind.resource() == change.resource) {
            self.queue.insert(WorkloadKey { kind, namespace: change.namespace.clone(), name: change.name.clone() });
        }
        self.enqueue_autoscalers(change);
        for object in versions {
            match change.resource.as_str() {
                "pods" => self.enqueue_for_pod(object, change.new.is_none()),
                replica_set::RESOURCE => self.enqueue_owner(object, WorkloadKind::Deployment, "Deployment"),
                endpoints::RESOURCE => {
                    if let Some(name) = endpoints::service_of(object) {
                        let namespace = change.namespace.clone();
                        self.queue.insert(WorkloadKey {
                            kind: WorkloadKind::Service,
                            namespace,
                            name: name.to_owned(),
                        });
                    }
                }
                "services" => self.enqueue_owner(object, WorkloadKind::LeaderWorkerSet, "LeaderWorkerSet"),
                persistent_volume::CLAIMS => self.enqueue_volumes_of_claim(object),
                persistent_volume::VOLUMES => self.enqueue_claims_of_volume(object),
                persistent_volume::CLASSES => self.queue.extend(self.unbound_claims()),
                _ => {}
            }
        }
    }

    /// Enqueues the owner, claims, Services and budgets of a Pod.
    fn enqueue_for_pod(&mut self, pod: &Value, is_deleted: bool) {
        self.enqueue_owner(pod, WorkloadKind::ReplicaSet, "ReplicaSet");
        self.enqueue_owner(pod, WorkloadKind::StatefulSet, "StatefulSet");
        self.enqueue_owner(pod, WorkloadKind::Job, "Job");
        let namespace = object::namespace(pod);
        for claim in volume_claim::claim_names(pod) {
            self.queue.insert(WorkloadKey {
                kind: WorkloadKind::PersistentVolumeClaim,
                namespace: namespace.to_owned(),
                name: claim.to_owned(),
            });
        }
        let labels = object::labels(pod);
        if let Some(name) = labels.get(leader_worker_set::NAME) {
            let key = WorkloadKey {
                kind: WorkloadKind::LeaderWorkerSet,
                namespace: namespace.to_owned(),
                name: name.clone(),
            };
            self.queue.insert(key);
        }
        for service in self.server.list_namespace("services", namespace) {
            let selector = object::string_map(service.pointer("/spec/selector"));
            let selects = !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value));
            if selects {
                self.queue.insert(WorkloadKey::new(WorkloadKind::Service, &service));
            }
        }
        let budgets = self.server.list(disruption_budget::RESOURCE);
        let covering = budgets.iter().filter(|budget| disruption_budget::covers(budget, pod));
        self.queue.extend(covering.map(|budget| WorkloadKey::new(WorkloadKind::PodDisruptionBudget, budget)));
        // Under the strategy `Recreate`, a Deployment waits until its last old Pod has been removed.
        if let Some(owner) = object::controller_of(pod).filter(|_| is_deleted)
            && let Some(set) = self.server.get(replica_set::RESOURCE, namespace, object::text(owner, "/name"))
        {
            self.enqueue_owner(&set, WorkloadKind::Deployment, "Deployment");
        }
    }

    /// Enqueues the controller of `object` if it is of this kind. For an orphan, enqueues all objects of the kind in
    /// its namespace, because any of them may adopt it.
    fn enqueue_owner(&mut self, object: &Value, kind: WorkloadKind, kind_name: &str) {
        let namespace = object::namespace(object);
        match object::controller_of(object) {
            Some(owner) if object::text(owner, "/kind") == kind_name => {
                let name = object::text(owner, "/name").to_owned();
                self.queue.insert(WorkloadKey { kind, namespace: namespace.to_owned(), name });
            }
            Some(_) => {}
            None => {
                let candidates = self.server.list_namespace(kind.resource(), namespace);
                self.queue.extend(candidates.iter().map(|owner| WorkloadKey::new(kind, owner)));
            }
        }
    }

    /// Enqueues the autoscalers whose scale target has changed.
    fn enqueue_autoscalers(&mut self, change: &Change) {
        let is_target = |autoscaler: &&Arc<Value>| {
            horizontal_pod_autoscaler::target_resource(autoscaler) == Some(change.resource.as_str())
                && object::text(autoscaler, "/spec/scaleTargetRef/name") == change.name
        };
        let autoscalers = self.server.list_namespace(horizontal_pod_autoscaler::RESOURCE, &change.namespace);
        self.queue.extend(
            autoscalers
                .iter()
                .filter(is_target)
                .map(|autoscaler| WorkloadKey::new(WorkloadKind::HorizontalPodAutoscaler, autoscaler)),
        );
    }

    /// Enqueues the volume that a claim is bound to, and the volumes that refer to the claim in `claimRef`.
    fn enqueue_volumes_of_claim(&mut self, claim: &Value) {
        let volume_name = object::text(claim, "/spec/volumeName");
        let belongs_to_claim = |volume: &&Arc<Value>| {
            let reference = volume.pointer("/spec/claimRef").unwrap_or(&Value::Null);
            object::name(volume) == volume_name
                || object::text(reference, "/name") == object::name(claim)
                    && object::text(reference, "/namespace") == object::namespace(claim)
        };
        let volumes = self.server.list(persistent_volume::VOLUMES);
        self.queue.extend(
            volumes
                .iter()
                .filter(belongs_to_claim)
                .map(|volume| WorkloadKey::new(WorkloadKind::PersistentVolume, volume)),
        );
    }

    /// Enqueues the claim of a volume and all unbound claims.
    fn enqueue_claims_of_volume(&mut self, volume: &Value) {
        if let Some(reference) = volume.pointer("/spec/claimRef").filter(|reference| !reference.is_null()) {
            let text = |field| object::text(reference, field).to_owned();
            self.queue.insert(WorkloadKey {
                kind: WorkloadKind::PersistentVolumeClaim,
                namespace: text("/namespace"),
                name: text("/name"),
            });
        }
        self.queue.extend(self.unbound_claims());
    }

    /// Returns the keys of the claims that are not bound.
    fn unbound_claims(&self) -> Vec<WorkloadKey> {
        let claims = self.server.list(persistent_volume::CLAIMS);
        let unbound = claims.iter().filter(|claim| object::text(claim, "/status/phase") != "Bound");
        unbound.map(|claim| WorkloadKey::new(WorkloadKind::PersistentVolumeClaim, claim)).collect()
    }
}
