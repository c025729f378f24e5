//! Defaulting: applies the schema defaults of custom resources and the defaults of built-in kinds
//! (`k8s.io/kubernetes/pkg/apis/*/v1/defaults.go`).

mod autoscaler;
mod binding;
mod pod;
mod service;
mod storage;
mod workload;

use apimachinery::NullPolicy;
use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::resources::Resource;
use crate::{crd, object};

/// Applies the defaults of an object.
pub(crate) fn apply_defaults(resource: &Resource, object: &mut Value) {
    apply_request_defaults(resource, object, false);
}

/// Applies the defaults of an object in a write request. In the result of server-side apply (`is_applied`), nulls are
/// retained, because validation rejects them.
pub(super) fn apply_request_defaults(resource: &Resource, object: &mut Value, is_applied: bool) {
    if resource.custom {
        if let Some(schema) = resource.schema() {
            let metadata = object::members(object).remove("metadata");
            schema.default_with(object, if is_applied { NullPolicy::Retain } else { NullPolicy::Prune });
            if let Some(metadata) = metadata {
                object::members(object).insert("metadata".to_owned(), metadata);
            }
        }
        return;
    }
    match resource.storage.as_str() {
        "pods" => pod::pod_defaults(spec(object)),
        "services" => service::service_defaults(spec(object)),
        "deployments.apps" => workload::deployment_defaults(spec(object)),
        "replicasets.apps" => workload::replica_set_defaults(spec(object)),
        "statefulsets.apps" => workload::stateful_set_defaults(spec(object)),
        "jobs.batch" => workload::job_defaults(spec(object)),
        "endpointslices.discovery.k8s.io" => service::endpoint_slice_defaults(object),
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            binding::binding_defaults(object);
        }
        "namespaces" => namespace_defaults(object),
        "secrets" => secret_defaults(object),
        "horizontalpodautoscalers.autoscaling" => autoscaler::autoscaler_defaults(spec(object)),
        crd::STORAGE => crd::apply_defaults(object),
        "persistentvolumeclaims" => storage::volume_claim_defaults(spec(object)),
        "persistentvolumes" => storage::volume_defaults(spec(object)),
        "storageclasses.storage.k8s.io" => storage::storage_class_defaults(object::members(object)),
        _ => {}
    }
}

/// Defaults of Secrets: moves `stringData` into `data`.
fn secret_defaults(object: &mut Value) {
    let members = object::members(object);
    set_default(members, "type", json!("Opaque"));
    let Some(string_data) = members.remove("stringData") else { return };
    let data = child_object(members, "data");
    for (key, text) in string_data.as_object().into_iter().flatten() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
        data.insert(key.clone(), json!(encoded));
    }
}

pub(super) fn namespace_defaults(object: &mut Value) {
    let name = object::name(object).to_owned();
    // A terminating Namespace must not get the finalizer back, because namespace deletion removes it. A new Namespace
    // gets the finalizer only after its UID is set, when field managers are already recorded, so that no manager owns
    // the field.
    if !object::is_deleting(object) && !object::uid(object).is_empty() {
        set_default(spec(object), "finalizers", json!(["kubernetes"]));
    }
    let labels = object::members(object::metadata(object).entry("labels").or_insert_with(|| json!({})));
    labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
}

/// Sets a field if it is absent.
pub(super) fn set_default(members: &mut Map<String, Value>, field: &str, value: Value) {
    members.entry(field).or_insert(value);
}

/// Returns the object in `field`, creating it if absent.
pub(super) fn child_object<'a>(members: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    object::members(members.entry(field).or_insert_with(|| json!({})))
}

/// Returns `spec`, creating it if absent.
pub(super) fn spec(object: &mut Value) -> &mut Map<String, Value> {
    child_object(object::members(object), "spec")
}
