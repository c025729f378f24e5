//! Defaults of workloads: Deployments, ReplicaSets, StatefulSets and Jobs.

use serde_json::{Map, Value, json};

use super::{pod, storage};
use apimachinery::object::{self, child_object, set_default};

pub(super) fn deployment_defaults(spec: &mut Map<String, Value>) {
    template_defaults(spec);
    set_default(spec, "replicas", json!(1));
    set_default(spec, "revisionHistoryLimit", json!(10));
    set_default(spec, "progressDeadlineSeconds", json!(600));
    let strategy = child_object(spec, "strategy");
    set_default(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling_update = child_object(strategy, "rollingUpdate");
        set_default(rolling_update, "maxUnavailable", json!("25%"));
        set_default(rolling_update, "maxSurge", json!("25%"));
    }
}

pub(super) fn replica_set_defaults(spec: &mut Map<String, Value>) {
    set_default(spec, "replicas", json!(1));
    template_defaults(spec);
}

pub(super) fn stateful_set_defaults(spec: &mut Map<String, Value>) {
    template_defaults(spec);
    volume_claim_template_defaults(spec);
    set_default(spec, "replicas", json!(1));
    set_default(spec, "revisionHistoryLimit", json!(10));
    set_default(spec, "podManagementPolicy", json!("OrderedReady"));
    let strategy = child_object(spec, "updateStrategy");
    set_default(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling_update = child_object(strategy, "rollingUpdate");
        set_default(rolling_update, "partition", json!(0));
        set_default(rolling_update, "maxUnavailable", json!(1));
    }
    let retention = child_object(spec, "persistentVolumeClaimRetentionPolicy");
    set_default(retention, "whenDeleted", json!("Retain"));
    set_default(retention, "whenScaled", json!("Retain"));
}

pub(super) fn job_defaults(spec: &mut Map<String, Value>) {
    template_defaults(spec);
    set_default(spec, "completions", json!(1));
    set_default(spec, "parallelism", json!(1));
    set_default(spec, "backoffLimit", json!(6));
    set_default(spec, "completionMode", json!("NonIndexed"));
    set_default(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
    set_default(spec, "manualSelector", json!(false));
    set_default(spec, "suspend", json!(false));
}

/// Applies the defaults of the volume claim templates of a StatefulSet.
fn volume_claim_template_defaults(spec: &mut Map<String, Value>) {
    for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        let claim = object::members(claim);
        set_default(claim, "apiVersion", json!("v1"));
        set_default(claim, "kind", json!("PersistentVolumeClaim"));
        storage::volume_claim_defaults(child_object(claim, "spec"));
        set_default(child_object(claim, "status"), "phase", json!("Pending"));
    }
}

fn template_defaults(spec: &mut Map<String, Value>) {
    let template = child_object(spec, "template");
    child_object(template, "metadata");
    pod::pod_spec_defaults(child_object(template, "spec"));
}
