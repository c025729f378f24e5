//! What a provider inherits from its requester before the patch is applied.

use apimachinery::object::{self, items};
use serde_json::{Map, Value, json};

use super::patch::Patch;

/// Fields of the requester's spec that a provider has only if the patch states them. Affinity and spread constraints of the
/// requester can exclude the provider from the node, a gate would block its scheduling, `hostname` and `subdomain` would make it
/// answer under the requester's DNS name, and admission rejects a copied priority once its class has changed.
const DROPPED_FIELDS: [&str; 9] = [
    "affinity",
    "topologySpreadConstraints",
    "schedulingGates",
    "hostname",
    "subdomain",
    "priority",
    "preemptionPolicy",
    "activeDeadlineSeconds",
    "restartPolicy",
];

/// Returns a Pod with the requester's labels and those fields of its spec that providers inherit.
pub(super) fn base_pod(requester: &Value, patch: &Patch) -> Value {
    let mut spec = requester["spec"].clone();
    let fields = object::members(&mut spec);
    DROPPED_FIELDS.iter().for_each(|field| drop(fields.remove(*field)));
    fields.remove("ephemeralContainers");
    remove_token_volume(fields);
    remove_overridden_requests(fields, patch);
    // A sleeper that restarts by itself would load again, awake, on an accelerator that another engine may use.
    fields.insert("restartPolicy".to_owned(), json!("Never"));
    let labels = requester["metadata"].get("labels").cloned().unwrap_or_else(|| json!({}));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}, "spec": spec})
}

/// Removes the volume with the service account token, which admission adds to each Pod, and its mounts.
fn remove_token_volume(spec: &mut Map<String, Value>) {
    let volume = items(spec.get("volumes")).map(|volume| object::text(volume, "/name"));
    let Some(name) = volume.into_iter().find(|name| is_token_volume(name)).map(str::to_owned) else { return };
    retain(spec, "volumes", |volume| volume["name"] != *name);
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            retain(object::members(container), "volumeMounts", |mount| mount["name"] != *name);
        }
    }
}

fn retain(fields: &mut Map<String, Value>, list: &str, keep: impl Fn(&Value) -> bool) {
    if let Some(items) = fields.get_mut(list).and_then(Value::as_array_mut) {
        items.retain(keep);
        if items.is_empty() {
            fields.remove(list);
        }
    }
}

/// Whether admission generated the name of the volume.
fn is_token_volume(name: &str) -> bool {
    let suffix = name.strip_prefix("kube-api-access-").unwrap_or_default();
    !suffix.is_empty() && suffix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Removes the requester's requests of resources for which the patch states only a limit. The API server sets them to the limit,
/// so that the scheduler accounts for the engine and not for the requester.
fn remove_overridden_requests(spec: &mut Map<String, Value>, patch: &Patch) {
    let (limits, requests) = (patch.resource_names("limits"), patch.resource_names("requests"));
    for container in spec.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        if container["name"] != api::dual_pods::CONTAINER {
            continue;
        }
        if let Some(inherited) = container.pointer_mut("/resources/requests").and_then(Value::as_object_mut) {
            inherited.retain(|name, _| !limits.contains(&name.as_str()) || requests.contains(&name.as_str()));
        }
    }
}
