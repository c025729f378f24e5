//! The defaults of what makes Pods of a template: Deployments, ReplicaSets, StatefulSets and Jobs.

use serde_json::{Map, Value, json};

use super::{child, pod, set, storage};
use crate::object;

pub(super) fn deployment(spec: &mut Map<String, Value>) {
    template(spec);
    set(spec, "replicas", json!(1));
    set(spec, "revisionHistoryLimit", json!(10));
    set(spec, "progressDeadlineSeconds", json!(600));
    let strategy = child(spec, "strategy");
    set(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        set(rolling, "maxUnavailable", json!("25%"));
        set(rolling, "maxSurge", json!("25%"));
    }
}

pub(super) fn replica_set(spec: &mut Map<String, Value>) {
    set(spec, "replicas", json!(1));
    template(spec);
}

pub(super) fn stateful_set(spec: &mut Map<String, Value>) {
    template(spec);
    claims(spec);
    set(spec, "replicas", json!(1));
    set(spec, "revisionHistoryLimit", json!(10));
    set(spec, "podManagementPolicy", json!("OrderedReady"));
    let strategy = child(spec, "updateStrategy");
    set(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        set(rolling, "partition", json!(0));
        set(rolling, "maxUnavailable", json!(1));
    }
    let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
    set(retention, "whenDeleted", json!("Retain"));
    set(retention, "whenScaled", json!("Retain"));
}

pub(super) fn job(spec: &mut Map<String, Value>) {
    template(spec);
    set(spec, "completions", json!(1));
    set(spec, "parallelism", json!(1));
    set(spec, "backoffLimit", json!(6));
    set(spec, "completionMode", json!("NonIndexed"));
    set(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
    set(spec, "manualSelector", json!(false));
    set(spec, "suspend", json!(false));
}

/// The claims that a StatefulSet makes are written out as claims.
fn claims(spec: &mut Map<String, Value>) {
    for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        let claim = object::members(claim);
        set(claim, "apiVersion", json!("v1"));
        set(claim, "kind", json!("PersistentVolumeClaim"));
        storage::claim(child(claim, "spec"));
        set(child(claim, "status"), "phase", json!("Pending"));
    }
}

fn template(spec: &mut Map<String, Value>) {
    let template = child(spec, "template");
    child(template, "metadata");
    pod::specification(child(template, "spec"));
}
