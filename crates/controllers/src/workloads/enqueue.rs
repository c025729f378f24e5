//! Maps a change to the objects that have to be reconciled.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::{disruption_budget, object, persistent_volume};
use apiserver::{Change, Server};
use serde_json::Value;

use super::kind::{WORKLOAD_KINDS, WorkloadKey, WorkloadKind};
use super::{endpoints, horizontal_pod_autoscaler, leader_worker_set, replica_set, volume_claim};

/// Returns the keys of all objects of all kinds.
pub(super) fn all(server: &Server) -> BTreeSet<WorkloadKey> {
    let keys_of = |kind: WorkloadKind| keys(kind, &server.list(kind.resource()));
    WORKLOAD_KINDS.into_iter().flat_map(keys_of).collect()
}

/// Returns the keys of the objects that a change affects.
pub(super) fn affected(server: &Server, change: &Change) -> BTreeSet<WorkloadKey> {
    let mut affected = BTreeSet::new();
    if let Some(kind) = WORKLOAD_KINDS.into_iter().find(|kind| kind.resource() == change.resource) {
        affected.insert(WorkloadKey { kind, namespace: change.namespace.clone(), name: change.name.clone() });
    }
    affected.extend(autoscalers(server, change));
    for object in change.old.iter().chain(&change.new) {
        match change.resource.as_str() {
            "pods" => affected.extend(affected_by_pod(server, object, change.new.is_none())),
            replica_set::RESOURCE => affected.extend(owner(server, object, WorkloadKind::Deployment, "Deployment")),
            endpoints::RESOURCE => affected.extend(endpoints::service_of(object).map(|name| WorkloadKey {
                kind: WorkloadKind::Service,
                namespace: change.namespace.clone(),
                name: name.to_owned(),
            })),
            "services" => affected.extend(owner(server, object, WorkloadKind::LeaderWorkerSet, "LeaderWorkerSet")),
            persistent_volume::CLAIMS => affected.extend(volumes_of_claim(server, object)),
            persistent_volume::VOLUMES => affected.extend(claims_of_volume(server, object)),
            persistent_volume::CLASSES => affected.extend(unbound_claims(server)),
            _ => {}
        }
    }
    affected
}

/// Returns the keys of the owner, claims, Services and budgets of a Pod.
fn affected_by_pod(server: &Server, pod: &Value, is_deleted: bool) -> BTreeSet<WorkloadKey> {
    let mut affected = BTreeSet::new();
    affected.extend(owner(server, pod, WorkloadKind::ReplicaSet, "ReplicaSet"));
    affected.extend(owner(server, pod, WorkloadKind::StatefulSet, "StatefulSet"));
    affected.extend(owner(server, pod, WorkloadKind::Job, "Job"));
    let namespace = object::namespace(pod);
    affected.extend(volume_claim::claim_names(pod).map(|claim| WorkloadKey {
        kind: WorkloadKind::PersistentVolumeClaim,
        namespace: namespace.to_owned(),
        name: claim.to_owned(),
    }));
    let labels = object::labels(pod);
    affected.extend(labels.get(leader_worker_set::NAME).map(|name| WorkloadKey {
        kind: WorkloadKind::LeaderWorkerSet,
        namespace: namespace.to_owned(),
        name: name.clone(),
    }));
    let selects_pod = |service: &&Arc<Value>| {
        let selector = object::string_map(service.pointer("/spec/selector"));
        !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let services = server.list_namespace("services", namespace);
    affected.extend(keys(WorkloadKind::Service, services.iter().filter(selects_pod)));
    let budgets = server.list(disruption_budget::RESOURCE);
    let covering = budgets.iter().filter(|budget| disruption_budget::covers(budget, pod));
    affected.extend(keys(WorkloadKind::PodDisruptionBudget, covering));
    // Under the strategy `Recreate`, a Deployment waits until its last old Pod has been removed.
    if let Some(controller) = object::controller_of(pod).filter(|_| is_deleted)
        && let Some(set) = server.get(replica_set::RESOURCE, namespace, object::text(controller, "/name"))
    {
        affected.extend(owner(server, &set, WorkloadKind::Deployment, "Deployment"));
    }
    affected
}

/// Returns the key of the controller of `object` if it is of this kind. For an orphan, returns the keys of all objects
/// of the kind in its namespace, because any of them may adopt it.
fn owner(server: &Server, object: &Value, kind: WorkloadKind, kind_name: &str) -> Vec<WorkloadKey> {
    let namespace = object::namespace(object);
    match object::controller_of(object) {
        Some(controller) if object::text(controller, "/kind") == kind_name => {
            let name = object::text(controller, "/name").to_owned();
            vec![WorkloadKey { kind, namespace: namespace.to_owned(), name }]
        }
        Some(_) => Vec::new(),
        None => keys(kind, &server.list_namespace(kind.resource(), namespace)),
    }
}

/// Returns the keys of the autoscalers whose scale target has changed.
fn autoscalers(server: &Server, change: &Change) -> Vec<WorkloadKey> {
    let is_target = |autoscaler: &&Arc<Value>| {
        horizontal_pod_autoscaler::target_resource(autoscaler) == Some(change.resource.as_str())
            && object::text(autoscaler, "/spec/scaleTargetRef/name") == change.name
    };
    let autoscalers = server.list_namespace(horizontal_pod_autoscaler::RESOURCE, &change.namespace);
    keys(WorkloadKind::HorizontalPodAutoscaler, autoscalers.iter().filter(is_target))
}

/// Returns the keys of the volume that a claim is bound to, and of the volumes that refer to the claim in `claimRef`.
fn volumes_of_claim(server: &Server, claim: &Value) -> Vec<WorkloadKey> {
    let volume_name = object::text(claim, "/spec/volumeName");
    let belongs_to_claim = |volume: &&Arc<Value>| {
        let reference = volume.pointer("/spec/claimRef").unwrap_or(&Value::Null);
        object::name(volume) == volume_name
            || object::text(reference, "/name") == object::name(claim)
                && object::text(reference, "/namespace") == object::namespace(claim)
    };
    let volumes = server.list(persistent_volume::VOLUMES);
    keys(WorkloadKind::PersistentVolume, volumes.iter().filter(belongs_to_claim))
}

/// Returns the keys of the claim of a volume and of all unbound claims.
fn claims_of_volume(server: &Server, volume: &Value) -> Vec<WorkloadKey> {
    let mut claims = unbound_claims(server);
    if let Some(reference) = volume.pointer("/spec/claimRef").filter(|reference| !reference.is_null()) {
        let text = |field| object::text(reference, field).to_owned();
        claims.push(WorkloadKey {
            kind: WorkloadKind::PersistentVolumeClaim,
            namespace: text("/namespace"),
            name: text("/name"),
        });
    }
    claims
}

/// Returns the keys of the claims that are not bound.
fn unbound_claims(server: &Server) -> Vec<WorkloadKey> {
    let claims = server.list(persistent_volume::CLAIMS);
    let unbound = claims.iter().filter(|claim| object::text(claim, "/status/phase") != "Bound");
    keys(WorkloadKind::PersistentVolumeClaim, unbound)
}

/// Returns the keys of objects of one kind.
fn keys<'a>(kind: WorkloadKind, objects: impl IntoIterator<Item = &'a Arc<Value>>) -> Vec<WorkloadKey> {
    objects.into_iter().map(|object| WorkloadKey::new(kind, object)).collect()
}
