//! Defaulting: applies the schema defaults of custom resources and the defaults of built-in kinds
//! (`k8s.io/kubernetes/pkg/apis/*/v1/defaults.go`).

mod autoscaler;
mod binding;
mod definition;
mod namespace;
mod pod;
mod service;
mod storage;
mod workload;

use std::sync::Arc;

use apimachinery::NullPolicy;
use base64::Engine as _;
use serde_json::{Value, json};

use crate::resources::{self, Resource};
use crate::write::Subresource;
use crate::write::prune::prune_to_schema;
use apimachinery::object::{self, child_object, set_default, spec};
pub(super) use namespace::namespace_defaults;

/// Applies the defaults of an object.
pub(crate) fn apply_defaults(resource: &Resource, object: &mut Value) {
    apply_request_defaults(resource, Subresource::Main, object, false);
}

/// Applies the defaults of an object in a write request. In the result of server-side apply (`is_applied`), nulls are
/// retained, because validation rejects them.
pub(super) fn apply_request_defaults(
    resource: &Resource,
    subresource: Subresource,
    object: &mut Value,
    is_applied: bool,
) {
    // No field in the status of a built-in kind has a default.
    if subresource == Subresource::Status && !resource.custom {
        return;
    }
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
        resources::definition::STORAGE => definition::definition_defaults(object),
        "persistentvolumeclaims" => storage::volume_claim_defaults(spec(object)),
        "persistentvolumes" => storage::volume_defaults(spec(object)),
        "storageclasses.storage.k8s.io" => storage::storage_class_defaults(object::members(object)),
        _ => {}
    }
}

/// Returns a stored object with the fields and defaults of the current schema, which may have changed after the object was
/// stored.
pub(super) fn with_current_schema(resource: &Resource, stored: &Arc<Value>) -> Arc<Value> {
    if !resource.has_defaults && !resource.custom {
        return Arc::clone(stored);
    }
    let mut object = Value::clone(stored);
    prune_to_schema(resource, &mut object);
    apply_defaults(resource, &mut object);
    Arc::new(object)
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
