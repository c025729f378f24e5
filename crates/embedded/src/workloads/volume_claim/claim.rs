//! One claim: protect it while it is used, find or make its volume.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Binding, CLAIMS, PROVISIONED_BY, PROVISIONER, VOLUMES, Wanted};
use super::{binding, class_of, default_class, fits, makes_volumes, refers_to, size, used_by, with_finalizer};
use crate::object;
use crate::workloads::action::{Action, Plan};

const PROTECTION: &str = "kubernetes.io/pvc-protection";
const BOUND_BY: &str = "pv.kubernetes.io/bound-by-controller";
const COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// What to do about one claim. `pods` are those of its namespace; `folder` is where volumes are made.
pub(crate) fn plan(
    claim: &Value,
    volumes: &[Arc<Value>],
    classes: &[Arc<Value>],
    pods: &[Arc<Value>],
    folder: Option<&Path>,
) -> Plan {
    let mut plan = Plan::default();
    let users: Vec<&Arc<Value>> = pods.iter().filter(|pod| uses(pod, claim)).collect();
    if object::is_deleting(claim) {
        let released = with_finalizer(claim, PROTECTION, Wanted::Absent).filter(|_| users.is_empty());
        plan.actions.extend(released.map(|object| Action::Update { resource: CLAIMS, object }));
        return plan;
    }
    if let Some(dressed) = dressed(claim, classes) {
        // Its next version is looked at again.
        plan.push(Action::Update { resource: CLAIMS, object: dressed });
        return plan;
    }
    if is_completed(claim) {
        keep(&mut plan, claim, volumes);
        return plan;
    }
    let has_node = |pod: &&Arc<Value>| !object::text(pod, "/spec/nodeName").is_empty();
    if matches!(binding(claim, classes), Binding::AtFirstPod { .. }) && !users.iter().any(has_node) {
        let message = "waiting for first consumer to be created before binding".to_owned();
        plan.event(claim, "WaitForFirstConsumer", message);
        return plan;
    }
    let node = users.iter().find(|pod| has_node(pod)).map(|pod| object::text(pod, "/spec/nodeName"));
    match smallest(claim, volumes) {
        Some(volume) => bind(&mut plan, claim, volume),
        None => make(&mut plan, claim, class_of(claim, classes), folder, node),
    }
    plan
}

/// A Pod that has finished uses nothing.
fn uses(pod: &Value, claim: &Value) -> bool {
    let finished = matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
    !finished && used_by(pod).any(|name| name == object::name(claim))
}

/// The claim with its protection and, where it names no class and no volume, the default one.
fn dressed(claim: &Value, classes: &[Arc<Value>]) -> Option<Value> {
    let protected = with_finalizer(claim, PROTECTION, Wanted::Present);
    let unnamed = claim.pointer("/spec/storageClassName").is_none();
    let class = default_class(classes).filter(|_| unnamed && !is_completed(claim));
    let mut dressed = protected.or_else(|| class.map(|_| claim.clone()))?;
    if let Some(class) = class {
        dressed["spec"]["storageClassName"] = json!(object::name(class));
    }
    Some(dressed)
}

fn is_completed(claim: &Value) -> bool {
    claim.pointer("/metadata/annotations").is_some_and(|all| all.get(COMPLETED).is_some())
}

/// A claim whose volume is gone is lost, as what was in it.
fn keep(plan: &mut Plan, claim: &Value, volumes: &[Arc<Value>]) {
    let name = object::text(claim, "/spec/volumeName");
    match volumes.iter().find(|volume| object::name(volume) == name) {
        Some(volume) => plan.status(CLAIMS, claim, bound_status(claim, volume)),
        None if object::text(claim, "/status/phase") == "Lost" => {}
        None => {
            plan.status(CLAIMS, claim, json!({"phase": "Lost"}));
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!".to_owned();
            plan.push(Action::Event { about: claim.clone(), kind: "Warning", reason: "ClaimLost", message });
        }
    }
}

/// The one that was made or set aside for the claim, else the smallest that fits.
fn smallest<'a>(claim: &Value, volumes: &'a [Arc<Value>]) -> Option<&'a Value> {
    let reserved = |volume: &Value| volume.pointer("/spec/claimRef").is_some_and(|it| refers_to(it, claim));
    let fitting = volumes.iter().filter(|volume| fits(claim, volume));
    let best =
        fitting.min_by_key(|volume| (!reserved(volume), size(volume, "/spec/capacity/storage"), object::name(volume)));
    best.map(Arc::as_ref)
}

/// The volume first: a claim that is bound always has one that says so.
fn bind(plan: &mut Plan, claim: &Value, volume: &Value) {
    let mut taken = volume.clone();
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": object::namespace(claim), "name": object::name(claim), "uid": object::uid(claim),
        "resourceVersion": object::text(claim, "/metadata/resourceVersion"),
    });
    let is_ours = |reference: &Value| object::text(reference, "/uid") == object::uid(claim);
    if !volume.pointer("/spec/claimRef").is_some_and(is_ours) {
        taken["spec"]["claimRef"] = reference;
        annotate(&mut taken, BOUND_BY);
        plan.push(Action::Update { resource: VOLUMES, object: taken });
    }
    let mut bound = claim.clone();
    if object::text(claim, "/spec/volumeName").is_empty() {
        bound["spec"]["volumeName"] = json!(object::name(volume));
        annotate(&mut bound, BOUND_BY);
    }
    annotate(&mut bound, COMPLETED);
    plan.push(Action::Update { resource: CLAIMS, object: bound });
}

fn annotate(object: &mut Value, key: &str) {
    let mut all = object.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    object::members(&mut all).insert(key.to_owned(), json!("yes"));
    object::set_metadata(object, "annotations", Some(all));
}

fn bound_status(claim: &Value, volume: &Value) -> Value {
    let mut status = claim.get("status").cloned().unwrap_or_else(|| json!({}));
    status["phase"] = json!("Bound");
    status["accessModes"] = volume["spec"]["accessModes"].clone();
    status["capacity"] = volume["spec"]["capacity"].clone();
    status
}

/// No volume fits: makes one, or says what is waited for.
fn make(plan: &mut Plan, claim: &Value, class: Option<&Value>, folder: Option<&Path>, node: Option<&str>) {
    let named = object::text(claim, "/spec/volumeName");
    let stated = object::text(claim, "/spec/storageClassName");
    let (kind, reason, message) = match (class, folder) {
        _ if !named.is_empty() => {
            ("Normal", "FailedBinding", format!("volume \"{named}\" does not exist or does not fit the claim"))
        }
        (Some(class), Some(folder)) if makes_volumes(class) => {
            plan.push(Action::Create { resource: VOLUMES, object: made(claim, class, folder, node) });
            let message = format!("Successfully provisioned volume {}", volume_name(claim));
            ("Normal", "ProvisioningSucceeded", message)
        }
        (Some(class), _) => {
            let provisioner = object::text(class, "/provisioner");
            let message = format!(
                "waiting for a volume that {provisioner} or somebody by hand makes; nothing here does, use the class of {PROVISIONER} or create a PersistentVolume"
            );
            ("Normal", "ExternalProvisioning", message)
        }
        (None, _) if !stated.is_empty() => {
            ("Warning", "ProvisioningFailed", format!("storageclass.storage.k8s.io \"{stated}\" not found"))
        }
        (None, _) => {
            let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
            ("Normal", "FailedBinding", message)
        }
    };
    plan.push(Action::Event { about: claim.clone(), kind, reason, message });
}

fn volume_name(claim: &Value) -> String {
    format!("pvc-{}", object::uid(claim))
}

/// A folder of this machine; kept for the node of the first Pod where the class waits for that.
fn made(claim: &Value, class: &Value, folder: &Path, node: Option<&str>) -> Value {
    let name = volume_name(claim);
    let policy = match object::text(class, "/reclaimPolicy") {
        "" => "Delete",
        policy => policy,
    };
    let mut spec = json!({
        "accessModes": claim["spec"]["accessModes"],
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
        "claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": object::namespace(claim), "name": object::name(claim), "uid": object::uid(claim),
        },
        "hostPath": {"path": folder.join(&name).display().to_string(), "type": "DirectoryOrCreate"},
        "persistentVolumeReclaimPolicy": policy,
        "storageClassName": object::name(class),
        "volumeMode": claim["spec"].get("volumeMode").cloned().unwrap_or_else(|| json!("Filesystem")),
    });
    let waits = object::text(class, "/volumeBindingMode") == "WaitForFirstConsumer";
    if let Some(node) = node.filter(|_| waits) {
        let here = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchFields": here}]}});
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": spec,
    })
}
