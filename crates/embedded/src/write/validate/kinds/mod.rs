//! Rules of the built-in kinds beyond their types (`k8s.io/kubernetes/pkg/apis/*/validation`), those that people meet: a
//! file for each kind, or for kinds that share their rules.

mod autoscaler;
mod config;
mod event;
mod lease;
mod pod;
mod pod_change;
mod priority_class;
mod resources;
mod service;
mod workload;

use apimachinery::status::Cause;
use serde_json::Value;

use crate::conversion::autoscaling;
use crate::resources::Resource;
pub(super) use resources::quantities;

/// Fields of a workload that never change once written.
const IMMUTABLE: &[(&str, &str)] = &[
    ("deployments.apps", "/spec/selector"),
    ("replicasets.apps", "/spec/selector"),
    ("statefulsets.apps", "/spec/selector"),
    ("statefulsets.apps", "/spec/serviceName"),
    ("jobs.batch", "/spec/template"),
];

/// What is said of a negative count.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// What is wrong with an object, whatever it was before.
pub(super) fn causes(resource: &Resource, object: &Value) -> Vec<Cause> {
    match resource.storage.as_str() {
        "configmaps" => config::map(object),
        "secrets" => config::secret(object),
        "services" => service::causes(object),
        "pods" => pod::causes(object.get("spec").unwrap_or(&Value::Null), "spec"),
        "events" => event::causes(object),
        "priorityclasses.scheduling.k8s.io" => priority_class::causes(object),
        "leases.coordination.k8s.io" => lease::causes(object),
        autoscaling::STORAGE => autoscaler::causes(object),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" => workload::causes(object),
        "jobs.batch" => workload::template(object),
        _ => Vec::new(),
    }
}

/// What is wrong with an object, and with what became of it, in the order in which kube-apiserver tells it.
pub(super) fn causes_of_change(resource: &Resource, current: &Value, object: &Value) -> Vec<Cause> {
    let mut all = match resource.storage.as_str() {
        "services" => service::moved(current, object).into_iter().collect(),
        "configmaps" | "secrets" => config::frozen(current, object),
        "priorityclasses.scheduling.k8s.io" => priority_class::changed(current, object),
        _ => Vec::new(),
    };
    all.extend(causes(resource, object));
    all.extend(immutable(resource, current, object));
    if resource.storage == "pods" {
        all.extend(pod_change::cause(current, object));
    }
    all
}

fn immutable(resource: &Resource, current: &Value, object: &Value) -> Vec<Cause> {
    let fields = IMMUTABLE.iter().filter(|(storage, _)| *storage == resource.storage);
    let changed = fields.filter(|(_, pointer)| current.pointer(pointer) != object.pointer(pointer));
    changed
        .map(|(_, pointer)| {
            let value = object.pointer(pointer).unwrap_or(&Value::Null);
            Cause::invalid(pointer[1..].replace('/', "."), value, "field is immutable")
        })
        .collect()
}

/// The elements of a list that may not be there.
pub(in crate::write) fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}
