//! Validation of the built-in kinds beyond the types of their fields. The rules are those in
//! `k8s.io/kubernetes/pkg/apis/*/validation` that are relevant in practice. There is one module per kind or per group
//! of kinds with common rules.

mod autoscaler;
mod config_data;
mod container;
mod controller_revision;
mod disruption_budget;
mod endpoints;
mod environment;
mod event;
mod field;
mod ingress;
mod int_or_percent;
mod job;
mod lease;
mod node;
mod placement;
mod pod;
mod pod_update;
mod priority_class;
mod probe;
mod rbac;
mod resources;
mod security_context;
mod selector;
mod service;
mod storage_class;
mod volume;
mod volume_claim;
mod workload;

use apimachinery::StatusCause;
use serde_json::Value;

use crate::conversion::autoscaling;
use crate::resources::Resource;
use crate::write::UndecodableObject;
use field::Field;
pub(crate) use field::NEGATIVE_MESSAGE;

/// Immutable fields of workloads.
const IMMUTABLE_FIELDS: &[(&str, &str)] = &[
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

/// Validates an object without regard to its previous state.
pub(super) fn causes(resource: &Resource, object: &Value) -> Vec<StatusCause> {
    match resource.storage.as_str() {
        "configmaps" => config_data::config_map_causes(object),
        "secrets" => config_data::secret_causes(object),
        "services" => service::causes(object),
        "pods" => pod::causes(object.get("spec").unwrap_or(&Value::Null), "spec"),
        "events" => event::causes(object),
        "priorityclasses.scheduling.k8s.io" => priority_class::causes(object),
        "leases.coordination.k8s.io" => lease::causes(object),
        autoscaling::STORAGE => autoscaler::causes(object),
        "deployments.apps" => workload::deployment_causes(object),
        "replicasets.apps" => workload::replica_set_causes(object),
        "statefulsets.apps" => workload::stateful_set_causes(object),
        "controllerrevisions.apps" => controller_revision::causes(object),
        "jobs.batch" => job::causes(object),
        "poddisruptionbudgets.policy" => disruption_budget::causes(object),
        "persistentvolumeclaims" => volume_claim::causes(object),
        "endpoints" => endpoints::endpoints_causes(object),
        "endpointslices.discovery.k8s.io" => endpoints::endpoint_slice_causes(object),
        "ingresses.networking.k8s.io" => ingress::causes(object),
        "nodes" => node::causes(object),
        "storageclasses.storage.k8s.io" => storage_class::causes(object),
        "roles.rbac.authorization.k8s.io" | "clusterroles.rbac.authorization.k8s.io" => {
            rbac::role_causes(resource, object)
        }
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            rbac::binding_causes(resource, object)
        }
        _ => Vec::new(),
    }
}

/// Validates an updated object. The causes are in the order of kube-apiserver.
pub(super) fn update_causes(resource: &Resource, current: &Value, object: &Value) -> Vec<StatusCause> {
    if let Some(cause) = endpoints::check_address_type_unchanged(resource, current, object) {
        return vec![cause];
    }
    let mut all_causes = match resource.storage.as_str() {
        "services" => service::check_cluster_ip_unchanged(current, object).into_iter().collect(),
        "configmaps" | "secrets" => config_data::immutable_causes(resource, current, object),
        "persistentvolumeclaims" => volume_claim::update_causes(current, object),
        "controllerrevisions.apps" => controller_revision::check_data_unchanged(current, object).into_iter().collect(),
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            rbac::check_role_ref_unchanged(current, object).into_iter().collect()
        }
        "priorityclasses.scheduling.k8s.io" => priority_class::update_causes(current, object),
        _ => Vec::new(),
    };
    all_causes.extend(causes(resource, object));
    all_causes.extend(immutable_field_causes(resource, current, object));
    if resource.storage == "pods" {
        all_causes.extend(pod_update::causes(current, object));
    }
    all_causes
}

/// Validates the status of an object.
pub(super) fn status_causes(resource: &Resource, object: &Value) -> Vec<StatusCause> {
    match resource.storage.as_str() {
        "deployments.apps" => workload::deployment_status_causes(object),
        _ => Vec::new(),
    }
}

/// Rejects values that kube-apiserver fails to decode.
///
/// # Errors
/// For an invalid quantity or invalid base64.
pub(super) fn check_decodable(resource: &Resource, object: &Value) -> Result<(), UndecodableObject> {
    resources::check_quantities(resource, object)?;
    config_data::check_base64(resource, object)
}

fn immutable_field_causes(resource: &Resource, current: &Value, object: &Value) -> Vec<StatusCause> {
    let fields = IMMUTABLE_FIELDS.iter().filter(|(storage, _)| *storage == resource.storage);
    let field_of = |object| move |name: &str| Field::root(object).get(name);
    fields.filter_map(|(_, name)| field_of(object)(name).check_unchanged(&field_of(current)(name))).collect()
}
