//! Merge schemas of built-in kinds, transcribed from the `+listType`, `+listMapKey`, `+structType`, `patchStrategy` and
//! `patchMergeKey` markers of the Kubernetes API types. Only deviations from [`MergeStrategy::Deduced`] are listed.

use super::constructors::{atomic, deduced, key, key_with_default, map_by, object, patch_merge_by, set};
use super::meta::{conditions, metadata};
use super::node::{MergeSchema, MergeStrategy, PatchStrategy};
use super::pod::{pod_spec, pod_status, template};

/// Returns the merge semantics of a built-in kind; `group` is empty for the core group. For unknown kinds, only
/// `metadata` is specified.
pub fn builtin_merge_schema(group: &str, kind: &str) -> MergeSchema {
    let (spec, status) = match (group, kind) {
        ("", "Pod") => (pod_spec(), pod_status()),
        ("", "PodTemplate") => return kind_with(&[("template", template())]),
        ("", "Service") => (service_spec(), object([("conditions", conditions())])),
        ("", "Event") => {
            return kind_with(&[("involvedObject", atomic()), ("related", atomic())]);
        }
        ("", "Node") => (node_spec(), node_status()),
        ("", "ServiceAccount") => {
            return kind_with(&[("secrets", patch_merge_by("name"))]);
        }
        ("", "Namespace") => (object([("finalizers", atomic())]), with_conditions()),
        ("", "PersistentVolumeClaim") => {
            (object([("selector", atomic()), ("dataSource", atomic())]), with_conditions())
        }
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") | ("batch", "Job") => {
            (workload_spec(), with_conditions())
        }
        ("batch", "CronJob") => {
            let job = object([("spec", workload_spec()), ("metadata", metadata())]);
            (object([("jobTemplate", job)]), object([("active", atomic())]))
        }
        ("networking.k8s.io", "Ingress") => (object([("tls", atomic()), ("rules", atomic())]), deduced()),
        ("discovery.k8s.io", "EndpointSlice") => {
            return kind_with(&[("endpoints", atomic()), ("ports", atomic())]);
        }
        ("autoscaling", "HorizontalPodAutoscaler") => (deduced(), with_conditions()),
        ("autoscaling/v1", "HorizontalPodAutoscaler") => (object([("scaleTargetRef", atomic())]), deduced()),
        ("events.k8s.io", "Event") => {
            return kind_with(&[("regarding", atomic()), ("related", atomic()), ("deprecatedSource", atomic())]);
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            return kind_with(&[("roleRef", atomic())]);
        }
        ("policy", "PodDisruptionBudget") => {
            let mut selector = atomic();
            selector.patch = PatchStrategy::Replace;
            (object([("selector", selector)]), with_conditions())
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => (deduced(), with_conditions()),
        _ => return kind_with(&[]),
    };
    kind_with(&[("spec", spec), ("status", status)])
}

fn kind_with(fields: &[(&str, MergeSchema)]) -> MergeSchema {
    let mut schema = object([("metadata", metadata())]);
    schema.fields.extend(fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone())));
    schema
}

fn workload_spec() -> MergeSchema {
    object([("selector", atomic()), ("template", template())])
}

fn service_spec() -> MergeSchema {
    let mut ports = map_by(&["port"], deduced());
    ports.merge = MergeStrategy::Map(vec![key("port"), key_with_default("protocol", "TCP")]);
    object([("ports", ports), ("selector", atomic()), ("clusterIPs", atomic())])
}

fn node_spec() -> MergeSchema {
    object([("podCIDRs", set()), ("taints", atomic())])
}

fn node_status() -> MergeSchema {
    object([("addresses", map_by(&["type"], deduced())), ("conditions", conditions())])
}

fn with_conditions() -> MergeSchema {
    object([("conditions", conditions())])
}
