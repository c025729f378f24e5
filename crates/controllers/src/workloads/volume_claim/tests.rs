//! Claims and volumes, reconciled until nothing changes.

use std::path::Path;

use apimachinery::{object, persistent_volume};
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
    let mut full_spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}});
    object::members(&mut full_spec).extend(spec.as_object().cloned().unwrap_or_default());
    json!({"metadata": {"name": "weights", "namespace": "n", "uid": "u"}, "spec": full_spec, "status": {"phase": "Pending"}})
}

fn volume(name: &str, size: &str, spec: Value) -> Arc<Value> {
    let mut full_spec =
        json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "storageClassName": "slow"});
    object::members(&mut full_spec).extend(spec.as_object().cloned().unwrap_or_default());
    Arc::new(json!({"metadata": {"name": name}, "spec": full_spec, "status": {"phase": "Available"}}))
}

/// Reconciles a claim until nothing changes; returns `VOLUME (PHASE)` or the last event.
fn reconcile(mut claim: Value, mut volumes: Vec<Arc<Value>>, classes: &[Arc<Value>], pods: &[Arc<Value>]) -> String {
    for _ in 0..10 {
        let plan = plan_claim(&claim, &volumes, classes, pods, Some(Path::new("/data")));
        let mut last_event = String::new();
        let mut changed = false;
        for action in plan.actions {
            match action {
                Action::Update { resource: persistent_volume::CLAIMS, object }
                | Action::UpdateStatus { resource: persistent_volume::CLAIMS, object } => {
                    changed |= claim != object;
                    claim = object;
                }
                Action::Create { object, .. } | Action::Update { object, .. } | Action::UpdateStatus { object, .. } => {
                    changed = true;
                    volumes.retain(|volume| object::name(volume) != object::name(&object));
                    volumes.push(Arc::new(object));
                }
                Action::Event { reason, message, .. } => last_event = format!("{reason}: {message}"),
                Action::Delete { .. } => {}
            }
        }
        if !changed {
            let bound =
                format!("{} ({})", object::text(&claim, "/spec/volumeName"), object::text(&claim, "/status/phase"));
            return if last_event.is_empty() { bound } else { last_event };
        }
    }
    "does not converge".to_owned()
}

#[rstest]
#[case::default_class_provisions(json!({}), "pvc-u (Bound)")]
#[case::smallest_matching_volume(json!({"storageClassName": "slow"}), "medium (Bound)")]
#[case::named_volume(json!({"storageClassName": "slow", "volumeName": "large"}), "large (Bound)")]
#[case::volume_selector(
    json!({"storageClassName": "slow", "selector": {"matchLabels": {"disk": "ssd"}}}),
    "ExternalProvisioning: waiting for a volume to be created by the external provisioner \"example.com/nfs\" or manually; this cluster only runs the provisioner \"kubernetes.io/host-path\": use a StorageClass of that provisioner or create a PersistentVolume"
)]
#[case::access_mode(
    json!({"storageClassName": "slow", "accessModes": ["ReadWriteMany"]}), "many (Bound)"
)]
#[case::without_class(
    json!({"storageClassName": ""}),
    "FailedBinding: no persistent volumes available for this claim and no storage class is set"
)]
#[case::class_not_found(
    json!({"storageClassName": "fast"}), "ProvisioningFailed: storageclass.storage.k8s.io \"fast\" not found"
)]
#[case::wait_for_first_consumer(
    json!({"storageClassName": "later"}),
    "WaitForFirstConsumer: waiting for first consumer to be created before binding"
)]
fn binds_or_provisions(#[case] spec: Value, #[case] expect: &str) {
    let volumes = vec![
        volume("large", "50Gi", json!({})),
        volume("medium", "20Gi", json!({})),
        volume("small", "5Gi", json!({})),
        volume("many", "90Gi", json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]})),
        volume("taken", "10Gi", json!({"claimRef": {"namespace": "n", "name": "other", "uid": "o"}})),
    ];
    let classes = [
        class("standard", persistent_volume::PROVISIONER, "Immediate"),
        class("slow", "example.com/nfs", "Immediate"),
        class("later", persistent_volume::PROVISIONER, "WaitForFirstConsumer"),
    ];
    assert_eq!(reconcile(claim(spec), volumes, &classes, &[]), expect);
}

#[test]
fn first_consumer_selects_node() {
    let classes = [class("later", persistent_volume::PROVISIONER, "WaitForFirstConsumer")];
    let volume = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "weights"}}]);
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "a", "volumes": volume}});
    let spec = json!({"storageClassName": "later"});
    assert_eq!(reconcile(claim(spec), Vec::new(), &classes, &[Arc::new(pod)]), "pvc-u (Bound)");
}

#[rstest]
#[case::used_by_running_pod(Some("Running"), false)]
#[case::used_by_finished_pod(Some("Succeeded"), true)]
#[case::unused(None, true)]
fn protects_claim_in_use(#[case] phase: Option<&str>, #[case] is_released: bool) {
    let mut deleting = claim(json!({}));
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    deleting["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "weights"}}]);
    let pod =
        |phase: &str| json!({"metadata": {"name": "p"}, "spec": {"volumes": volumes}, "status": {"phase": phase}});
    let pods: Vec<Arc<Value>> = phase.map(|phase| Arc::new(pod(phase))).into_iter().collect();
    let plan = plan_claim(&deleting, &[], &[], &pods, None);
    assert_eq!(!plan.actions.is_empty(), is_released);
}

#[rstest]
#[case::unclaimed(json!({}), "Available", false)]
#[case::bound(json!({"claimRef": {"namespace": "n", "name": "weights", "uid": "u"}}), "Bound", false)]
#[case::reserved(json!({"claimRef": {"namespace": "n", "name": "later"}}), "Available", false)]
#[case::released(json!({"claimRef": {"namespace": "n", "name": "weights", "uid": "old"}}), "Released", false)]
#[case::reclaimed(
    json!({"claimRef": {"namespace": "n", "name": "weights", "uid": "old"}, "persistentVolumeReclaimPolicy": "Delete"}),
    "Released",
    true
)]
fn sets_phase_and_reclaims(#[case] spec: Value, #[case] phase: &str, #[case] is_deleted: bool) {
    let mut volume = Value::clone(&volume("v", "10Gi", spec));
    volume["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]);
    volume["metadata"]["annotations"] = json!({persistent_volume::PROVISIONED_BY: persistent_volume::PROVISIONER});
    volume["status"]["phase"] = json!("?");
    let claim = claim(json!({"volumeName": "v"}));
    let has_same_name = volume.pointer("/spec/claimRef/name") == Some(&json!("weights"));
    let plan = plan_volume(&volume, Some(&claim).filter(|_| has_same_name));
    let Some(Action::UpdateStatus { object, .. }) = plan.actions.first() else { panic!("{plan:?}") };
    assert_eq!(object["status"]["phase"], phase);
    assert_eq!(plan.actions.iter().any(|action| matches!(action, Action::Delete { .. })), is_deleted);
}
