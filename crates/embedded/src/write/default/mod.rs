//! Fills in what the client left out: schema defaults of custom resources, and the defaults of the built-in kinds
//! (`k8s.io/kubernetes/pkg/apis/*/v1/defaults.go`).

mod autoscaler;
mod binding;
mod pod;
mod service;
mod storage;
mod workload;

use apimachinery::schema::Nulls;
use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::resources::Resource;
use crate::{crd, object};

/// Fills in everything but the status of a new object.
pub(crate) fn fill(resource: &Resource, object: &mut Value) {
    fill_written(resource, object, false);
}

/// The same of what is being written; null that was applied is a value, and may be wrong.
pub(super) fn fill_written(resource: &Resource, object: &mut Value, applied: bool) {
    if resource.custom {
        if let Some(schema) = resource.schema() {
            let metadata = object::members(object).remove("metadata");
            schema.default_with(object, if applied { Nulls::Kept } else { Nulls::Dropped });
            if let Some(metadata) = metadata {
                object::members(object).insert("metadata".to_owned(), metadata);
            }
        }
        return;
    }
    match resource.storage.as_str() {
        "pods" => pod::of_pod(spec(object)),
        "services" => service::fill(spec(object)),
        "deployments.apps" => workload::deployment(spec(object)),
        "replicasets.apps" => workload::replica_set(spec(object)),
        "statefulsets.apps" => workload::stateful_set(spec(object)),
        "jobs.batch" => workload::job(spec(object)),
        "endpointslices.discovery.k8s.io" => service::slice(object),
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            binding::fill(object);
        }
        "namespaces" => namespace(object),
        "secrets" => secret(object),
        "horizontalpodautoscalers.autoscaling" => autoscaler::fill(spec(object)),
        crd::STORAGE => crd::default(object),
        "persistentvolumeclaims" => storage::claim(spec(object)),
        "persistentvolumes" => storage::volume(spec(object)),
        "storageclasses.storage.k8s.io" => storage::class(object::members(object)),
        _ => {}
    }
}

/// `stringData` is written into `data` and never read back.
fn secret(object: &mut Value) {
    let members = object::members(object);
    set(members, "type", json!("Opaque"));
    let Some(texts) = members.remove("stringData") else { return };
    let data = child(members, "data");
    for (key, text) in texts.as_object().into_iter().flatten() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
        data.insert(key.clone(), json!(encoded));
    }
}

pub(super) fn namespace(object: &mut Value) {
    let name = object::name(object).to_owned();
    // Without it a namespace that is going may go. A new one gets it at its birth, from nobody.
    if !object::is_deleting(object) && !object::uid(object).is_empty() {
        set(spec(object), "finalizers", json!(["kubernetes"]));
    }
    let labels = object::members(object::metadata(object).entry("labels").or_insert_with(|| json!({})));
    labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
}

/// Sets a field that is absent.
pub(super) fn set(members: &mut Map<String, Value>, field: &str, value: Value) {
    members.entry(field).or_insert(value);
}

/// The object under `field`, created when absent.
pub(super) fn child<'a>(members: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    object::members(members.entry(field).or_insert_with(|| json!({})))
}

/// The specification, made when absent.
pub(super) fn spec(object: &mut Value) -> &mut Map<String, Value> {
    child(object::members(object), "spec")
}
