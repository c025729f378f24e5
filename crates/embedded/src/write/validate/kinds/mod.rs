//! Rules of the built-in kinds beyond their types (`k8s.io/kubernetes/pkg/apis/*/validation`), those that people meet: a
//! file for each kind, or for kinds that share their rules.

mod autoscaler;
mod budget;
mod claim;
mod config;
mod container;
mod endpoints;
mod environment;
mod event;
mod field;
mod ingress;
mod job;
mod lease;
mod node;
mod placement;
mod pod;
mod pod_change;
mod priority_class;
mod probe;
mod rbac;
mod resources;
mod revision;
mod selector;
mod service;
mod share;
mod storage_class;
mod volume;
mod workload;

use apimachinery::status::{Cause, Status};
use serde_json::Value;

use crate::conversion::autoscaling;
use crate::resources::Resource;
use field::Field;

/// Fields of a workload that never change once written.
const IMMUTABLE: &[(&str, &str)] = &[
    ("deployments.apps", "spec.selector"),
    ("replicasets.apps", "spec.selector"),
    ("statefulsets.apps", "spec.selector"),
    ("statefulsets.apps", "spec.serviceName"),
    ("statefulsets.apps", "spec.volumeClaimTemplates"),
    ("statefulsets.apps", "spec.podManagementPolicy"),
    ("jobs.batch", "spec.template"),
    ("jobs.batch", "spec.selector"),
    ("jobs.batch", "spec.completionMode"),
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
        "deployments.apps" => workload::deployment(object),
        "replicasets.apps" => workload::replica_set(object),
        "statefulsets.apps" => workload::stateful_set(object),
        "controllerrevisions.apps" => revision::causes(object),
        "jobs.batch" => job::causes(object),
        "poddisruptionbudgets.policy" => budget::causes(object),
        "persistentvolumeclaims" => claim::causes(object),
        "endpoints" => endpoints::endpoints(object),
        "endpointslices.discovery.k8s.io" => endpoints::slice(object),
        "ingresses.networking.k8s.io" => ingress::causes(object),
        "nodes" => node::causes(object),
        "storageclasses.storage.k8s.io" => storage_class::causes(object),
        "roles.rbac.authorization.k8s.io" | "clusterroles.rbac.authorization.k8s.io" => rbac::role(resource, object),
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            rbac::binding(resource, object)
        }
        _ => Vec::new(),
    }
}

/// What is wrong with an object, and with what became of it, in the order in which kube-apiserver tells it.
pub(super) fn causes_of_change(resource: &Resource, current: &Value, object: &Value) -> Vec<Cause> {
    if let Some(cause) = endpoints::slice_changed(resource, current, object) {
        return vec![cause];
    }
    let mut all = match resource.storage.as_str() {
        "services" => service::moved(current, object).into_iter().collect(),
        "configmaps" | "secrets" => config::frozen(resource, current, object),
        "persistentvolumeclaims" => claim::changed(current, object),
        "controllerrevisions.apps" => revision::changed(current, object).into_iter().collect(),
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            rbac::rebound(current, object).into_iter().collect()
        }
        "priorityclasses.scheduling.k8s.io" => priority_class::changed(current, object),
        _ => Vec::new(),
    };
    all.extend(causes(resource, object));
    all.extend(immutable(resource, current, object));
    if resource.storage == "pods" {
        all.extend(pod_change::causes(current, object));
    }
    all
}

/// What is wrong with a status.
pub(super) fn causes_of_status(resource: &Resource, object: &Value) -> Vec<Cause> {
    match resource.storage.as_str() {
        "deployments.apps" => workload::status(object),
        _ => Vec::new(),
    }
}

/// # Errors
/// 400 for values that do not even decode: quantities that are none, data that is no base64.
pub(super) fn decodes(resource: &Resource, object: &Value) -> Result<(), Status> {
    resources::quantities(resource, object)?;
    config::decodes(resource, object)
}

fn immutable(resource: &Resource, current: &Value, object: &Value) -> Vec<Cause> {
    let fields = IMMUTABLE.iter().filter(|(storage, _)| *storage == resource.storage);
    let of = |object| move |name: &str| Field::of(object).get(name);
    fields.filter_map(|(_, name)| of(object)(name).unchanged_from(&of(current)(name))).collect()
}

/// The elements of a list that may not be there.
pub(in crate::write) fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}
