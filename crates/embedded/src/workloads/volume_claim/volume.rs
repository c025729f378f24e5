//! One volume: whose it is, and whether it goes with its claim.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{PROVISIONED_BY, VOLUMES, Wanted, refers_to, with_finalizer};
use crate::object;
use crate::workloads::action::{Action, Plan};

const PROTECTION: &str = "kubernetes.io/pv-protection";

/// What to do about one volume. `claim` has the name that the volume says, if there is one of that name.
pub(crate) fn plan(volume: &Value, claim: Option<&Value>) -> Plan {
    let mut plan = Plan::default();
    let reference = volume.pointer("/spec/claimRef").filter(|reference| !reference.is_null());
    let own = reference.and_then(|reference| claim.filter(|claim| refers_to(reference, claim)));
    if object::is_deleting(volume) {
        let released = with_finalizer(volume, PROTECTION, Wanted::Absent).filter(|_| own.is_none());
        plan.actions.extend(released.map(|object| Action::Update { resource: VOLUMES, object }));
        return plan;
    }
    if let Some(object) = with_finalizer(volume, PROTECTION, Wanted::Present) {
        plan.push(Action::Update { resource: VOLUMES, object });
        return plan;
    }
    // One that was set aside for a claim that is not there yet has no uid.
    let was_bound = reference.is_some_and(|reference| !object::text(reference, "/uid").is_empty());
    let phase = match own {
        Some(claim) if object::text(claim, "/spec/volumeName") == object::name(volume) => "Bound",
        None if was_bound => "Released",
        _ => "Available",
    };
    let mut status = volume.get("status").cloned().unwrap_or_else(|| json!({}));
    status["phase"] = json!(phase);
    plan.status(VOLUMES, volume, status);
    let annotations = volume.pointer("/metadata/annotations");
    let was_made = annotations.is_some_and(|all| all.get(PROVISIONED_BY).is_some());
    let goes = object::text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete";
    if phase == "Released" && was_made && goes {
        plan.push(Action::Delete { resource: VOLUMES, object: Arc::new(volume.clone()) });
    }
    plan
}
