//! Claims and volumes as they are looked at again and again, until nothing is left to do.

use std::path::Path;

use rstest::rstest;

use super::*;
use crate::workloads::action::Action;

fn class(name: &str, provisioner: &str, mode: &str) -> Arc<Value> {
    let mut class = standard_class();
    class["metadata"]["name"] = json!(name);
    class["provisioner"] = json!(provisioner);
    class["volumeBindingMode"] = json!(mode);
    Arc::new(class)
}

fn claim(spec: Value) -> Value {
    let mut whole = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}});
    object::members(&mut whole).extend(spec.as_object().cloned().unwrap_or_default());
    json!({"metadata": {"name": "weights", "namespace": "n", "uid": "u"}, "spec": whole, "status": {"phase": "Pending"}})
}

fn volume(name: &str, size: &str, spec: Value) -> Arc<Value> {
    let mut whole =
        json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "storageClassName": "slow"});
    object::members(&mut whole).extend(spec.as_object().cloned().unwrap_or_default());
    Arc::new(json!({"metadata": {"name": name}, "spec": whole, "status": {"phase": "Available"}}))
}

/// Everything that becomes of a claim: `VOLUME (PHASE)`, or the last event.
fn settle(mut claim: Value, mut volumes: Vec<Arc<Value>>, classes: &[Arc<Value>], pods: &[Arc<Value>]) -> String {
    for _ in 0..10 {
        let plan = plan_claim(&claim, &volumes, classes, pods, Some(Path::new("/data")));
        let mut told = String::new();
        let mut changed = false;
        for action in plan.actions {
            match action {
                Action::Update { resource: CLAIMS, object } | Action::Status { resource: CLAIMS, object } => {
                    changed |= claim != object;
                    claim = object;
                }
                Action::Create { object, .. } | Action::Update { object, .. } | Action::Status { object, .. } => {
                    changed = true;
                    volumes.retain(|volume| object::name(volume) != object::name(&object));
                    volumes.push(Arc::new(object));
                }
                Action::Event { reason, message, .. } => told = format!("{reason}: {message}"),
                Action::Delete { .. } => {}
            }
        }
        if !changed {
            let bound =
                format!("{} ({})", object::text(&claim, "/spec/volumeName"), object::text(&claim, "/status/phase"));
            return if told.is_empty() { bound } else { told };
        }
    }
    "no end".to_owned()
}

#[rstest]
#[case::the_default_class_makes_one(json!({}), "pvc-u (Bound)")]
#[case::the_smallest_that_fits(json!({"storageClassName": "slow"}), "medium (Bound)")]
#[case::the_one_it_names(json!({"storageClassName": "slow", "volumeName": "large"}), "large (Bound)")]
#[case::of_these_labels(
    json!({"storageClassName": "slow", "selector": {"matchLabels": {"disk": "ssd"}}}),
    "ExternalProvisioning: waiting for a volume that example.com/nfs or somebody by hand makes; nothing here does, use the class of kubernetes.io/host-path or create a PersistentVolume"
)]
#[case::for_many(
    json!({"storageClassName": "slow", "accessModes": ["ReadWriteMany"]}), "many (Bound)"
)]
#[case::without_a_class(
    json!({"storageClassName": ""}),
    "FailedBinding: no persistent volumes available for this claim and no storage class is set"
)]
#[case::of_a_class_that_is_not_there(
    json!({"storageClassName": "fast"}), "ProvisioningFailed: storageclass.storage.k8s.io \"fast\" not found"
)]
#[case::later(
    json!({"storageClassName": "later"}),
    "WaitForFirstConsumer: waiting for first consumer to be created before binding"
)]
fn which_volume(#[case] spec: Value, #[case] expect: &str) {
    let volumes = vec![
        volume("large", "50Gi", json!({})),
        volume("medium", "20Gi", json!({})),
        volume("small", "5Gi", json!({})),
        volume("many", "90Gi", json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]})),
        volume("taken", "10Gi", json!({"claimRef": {"namespace": "n", "name": "other", "uid": "o"}})),
    ];
    let classes = [
        class("standard", PROVISIONER, "Immediate"),
        class("slow", "example.com/nfs", "Immediate"),
        class("later", PROVISIONER, "WaitForFirstConsumer"),
    ];
    assert_eq!(settle(claim(spec), volumes, &classes, &[]), expect);
}

#[test]
fn the_first_pod_decides_where_a_volume_is_made() {
    let classes = [class("later", PROVISIONER, "WaitForFirstConsumer")];
    let volume = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "weights"}}]);
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "a", "volumes": volume}});
    let spec = json!({"storageClassName": "later"});
    assert_eq!(settle(claim(spec), Vec::new(), &classes, &[Arc::new(pod)]), "pvc-u (Bound)");
}

#[rstest]
#[case::in_use(Some("Running"), false)]
#[case::by_a_pod_that_has_finished(Some("Succeeded"), true)]
#[case::by_nobody(None, true)]
fn a_claim_in_use_is_not_deleted(#[case] phase: Option<&str>, #[case] goes: bool) {
    let mut leaving = claim(json!({}));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    leaving["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "weights"}}]);
    let pod =
        |phase: &str| json!({"metadata": {"name": "p"}, "spec": {"volumes": volumes}, "status": {"phase": phase}});
    let pods: Vec<Arc<Value>> = phase.map(|phase| Arc::new(pod(phase))).into_iter().collect();
    let plan = plan_claim(&leaving, &[], &[], &pods, None);
    assert_eq!(!plan.actions.is_empty(), goes);
}

#[rstest]
#[case::of_nobody(json!({}), "Available", false)]
#[case::of_its_claim(json!({"claimRef": {"namespace": "n", "name": "weights", "uid": "u"}}), "Bound", false)]
#[case::set_aside(json!({"claimRef": {"namespace": "n", "name": "later"}}), "Available", false)]
#[case::left_behind(json!({"claimRef": {"namespace": "n", "name": "weights", "uid": "old"}}), "Released", false)]
#[case::goes_with_its_claim(
    json!({"claimRef": {"namespace": "n", "name": "weights", "uid": "old"}, "persistentVolumeReclaimPolicy": "Delete"}),
    "Released",
    true
)]
fn whose_volume(#[case] spec: Value, #[case] phase: &str, #[case] goes: bool) {
    let mut volume = Value::clone(&volume("v", "10Gi", spec));
    volume["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]);
    volume["metadata"]["annotations"] = json!({PROVISIONED_BY: PROVISIONER});
    volume["status"]["phase"] = json!("?");
    let claim = claim(json!({"volumeName": "v"}));
    let same_name = volume.pointer("/spec/claimRef/name") == Some(&json!("weights"));
    let plan = plan_volume(&volume, Some(&claim).filter(|_| same_name));
    let Some(Action::Status { object, .. }) = plan.actions.first() else { panic!("{plan:?}") };
    assert_eq!(object["status"]["phase"], phase);
    assert_eq!(plan.actions.iter().any(|action| matches!(action, Action::Delete { .. })), goes);
}
