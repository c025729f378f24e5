//! Merge schemas of built-in kinds, transcribed from the `+listType`, `+listMapKey`, `+structType`, `patchStrategy` and
//! `patchMergeKey` markers of the Kubernetes API types. Only deviations from [`MergeStrategy::Deduced`] are listed.

use serde_json::Value;

use super::pod::{pod_spec, pod_status, template};
use super::{ListMapKey, MergeSchema, MergeStrategy, PatchStrategy};

/// Returns the merge schema of a built-in kind.
pub(super) fn schema_for(group: &str, kind: &str) -> MergeSchema {
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

// === shared types ===

pub(super) fn metadata() -> MergeSchema {
    object([
        ("labels", map_of(deduced())),
        ("annotations", map_of(deduced())),
        ("finalizers", set()),
        ("ownerReferences", {
            let mut owners = map_by(&["uid"], atomic());
            owners.patch = PatchStrategy::MergeBy("uid".into());
            owners
        }),
    ])
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

pub(super) fn conditions() -> MergeSchema {
    map_by(&["type"], deduced())
}

// === constructors ===

fn kind_with(fields: &[(&str, MergeSchema)]) -> MergeSchema {
    let mut schema = object([("metadata", metadata())]);
    schema.fields.extend(fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone())));
    schema
}

pub(super) fn object<const N: usize>(fields: [(&str, MergeSchema); N]) -> MergeSchema {
    let fields = fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
    MergeSchema { fields, ..MergeSchema::default() }
}

pub(super) fn deduced() -> MergeSchema {
    MergeSchema::default()
}

pub(super) fn map_of(value: MergeSchema) -> MergeSchema {
    MergeSchema { additional: Some(Box::new(value)), ..MergeSchema::default() }
}

/// Atomic for server-side apply; strategic merge patch still merges objects.
pub(super) fn atomic() -> MergeSchema {
    MergeSchema { merge: MergeStrategy::Atomic, ..MergeSchema::default() }
}

pub(super) fn set() -> MergeSchema {
    list(MergeStrategy::Set, PatchStrategy::MergePrimitives, deduced())
}

/// A list of objects; strategic merge patch merges it by the first key.
pub(super) fn map_by(keys: &[&str], item: MergeSchema) -> MergeSchema {
    let patch = keys.first().map_or(PatchStrategy::Default, |first| PatchStrategy::MergeBy((*first).to_owned()));
    list(MergeStrategy::Map(keys.iter().map(|name| key(name)).collect()), patch, item)
}

/// A list that is atomic for server-side apply and merges by `key` in strategic merge patch.
pub(super) fn patch_merge_by(key: &str) -> MergeSchema {
    list(MergeStrategy::Atomic, PatchStrategy::MergeBy(key.to_owned()), deduced())
}

pub(super) fn list(merge: MergeStrategy, patch: PatchStrategy, item: MergeSchema) -> MergeSchema {
    MergeSchema { merge, patch, items: Some(Box::new(item)), ..MergeSchema::default() }
}

pub(super) fn key(name: &str) -> ListMapKey {
    ListMapKey { name: name.to_owned(), default: None }
}

pub(super) fn key_with_default(name: &str, default: &str) -> ListMapKey {
    ListMapKey { name: name.to_owned(), default: Some(Value::from(default)) }
}
