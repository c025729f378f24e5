//! Reconciles one volume: its phase, protection and reclaim policy.

use std::sync::Arc;

use apimachinery::{object, persistent_volume};
use serde_json::{Value, json};

use super::{FinalizerState, refers_to, with_finalizer};
use crate::workloads::action::{Action, Plan};

const PROTECTION_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Reconciles one volume. `claim` is the claim that `claimRef` refers to by name, if it exists.
pub(crate) fn plan(volume: &Value, claim: Option<&Value>) -> Plan {
    let mut plan = Plan::default();
    let reference = volume.pointer("/spec/claimRef").filter(|reference| !reference.is_null());
    let bound_claim = reference.and_then(|reference| claim.filter(|claim| refers_to(reference, claim)));
    if object::is_deleting(volume) {
        let released =
            with_finalizer(volume, PROTECTION_FINALIZER, FinalizerState::Absent).filter(|_| bound_claim.is_none());
        plan.actions.extend(released.map(|object| Action::Update { resource: persistent_volume::VOLUMES, object }));
        return plan;
    }
    if let Some(object) = with_finalizer(volume, PROTECTION_FINALIZER, FinalizerState::Present) {
        plan.push(Action::Update { resource: persistent_volume::VOLUMES, object });
        return plan;
    }
    // A reference to a claim that does not exist yet has no UID.
    let was_bound = reference.is_some_and(|reference| !object::text(reference, "/uid").is_empty());
    let phase = match bound_claim {
        Some(claim) if object::text(claim, "/spec/volumeName") == object::name(volume) => "Bound",
        None if was_bound => "Released",
        _ => "Available",
    };
    let mut status = volume.get("status").cloned().unwrap_or_else(|| json!({}));
    status["phase"] = json!(phase);
    plan.update_status(persistent_volume::VOLUMES, volume, status);
    let annotations = volume.pointer("/metadata/annotations");
    let is_provisioned = annotations.is_some_and(|all| all.get(persistent_volume::PROVISIONED_BY).is_some());
    let is_deleted_with_claim = object::text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete";
    if phase == "Released" && is_provisioned && is_deleted_with_claim {
        plan.push(Action::Delete { resource: persistent_volume::VOLUMES, object: Arc::new(volume.clone()) });
    }
    plan
}
