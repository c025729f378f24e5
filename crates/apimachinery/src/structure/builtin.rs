//! Builtin kinds, written by hand from the `+listType`, `+listMapKey`, `+structType`, `patchStrategy` and
//! `patchMergeKey` markers of Kubernetes' API types. Only what differs from [`Merge::Deduced`] is written down.

use serde_json::Value;

use super::pod::{pod_spec, pod_status, template};
use super::{Key, Merge, Strategic, Structure};

pub(super) fn of(group: &str, kind: &str) -> Structure {
    let (spec, status) = match (group, kind) {
        ("", "Pod") => (pod_spec(), pod_status()),
        ("", "PodTemplate") => return kind_with(&[("template", template())]),
        ("", "Service") => (service_spec(), object([("conditions", conditions())])),
        ("", "Event") => {
            return kind_with(&[("involvedObject", atomic()), ("related", atomic())]);
        }
        ("", "Node") => (node_spec(), node_status()),
        ("", "ServiceAccount") => {
            return kind_with(&[("secrets", strategic_by("name"))]);
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
        ("networking.k8s.io", "Ingress") => (object([("tls", atomic()), ("rules", atomic())]), plain()),
        ("discovery.k8s.io", "EndpointSlice") => {
            return kind_with(&[("endpoints", atomic()), ("ports", atomic())]);
        }
        ("autoscaling", "HorizontalPodAutoscaler") => (plain(), with_conditions()),
        ("autoscaling/v1", "HorizontalPodAutoscaler") => (object([("scaleTargetRef", atomic())]), plain()),
        ("events.k8s.io", "Event") => {
            return kind_with(&[("regarding", atomic()), ("related", atomic()), ("deprecatedSource", atomic())]);
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            return kind_with(&[("roleRef", atomic())]);
        }
        ("policy", "PodDisruptionBudget") => {
            let mut selector = atomic();
            selector.strategic = Strategic::Replace;
            (object([("selector", selector)]), with_conditions())
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => (plain(), with_conditions()),
        _ => return kind_with(&[]),
    };
    kind_with(&[("spec", spec), ("status", status)])
}

// === parts ===

pub(super) fn metadata() -> Structure {
    object([
        ("labels", map_of(plain())),
        ("annotations", map_of(plain())),
        ("finalizers", set()),
        ("ownerReferences", {
            let mut owners = map_by(&["uid"], atomic());
            owners.strategic = Strategic::MergeBy("uid".into());
            owners
        }),
    ])
}

fn workload_spec() -> Structure {
    object([("selector", atomic()), ("template", template())])
}

fn service_spec() -> Structure {
    let mut ports = map_by(&["port"], plain());
    ports.merge = Merge::Map(vec![key("port"), key_or("protocol", "TCP")]);
    object([("ports", ports), ("selector", atomic()), ("clusterIPs", atomic())])
}

fn node_spec() -> Structure {
    object([("podCIDRs", set()), ("taints", atomic())])
}

fn node_status() -> Structure {
    object([("addresses", map_by(&["type"], plain())), ("conditions", conditions())])
}

fn with_conditions() -> Structure {
    object([("conditions", conditions())])
}

pub(super) fn conditions() -> Structure {
    map_by(&["type"], plain())
}

// === words of the table ===

fn kind_with(fields: &[(&str, Structure)]) -> Structure {
    let mut kind = object([("metadata", metadata())]);
    kind.fields.extend(fields.iter().map(|(name, structure)| ((*name).to_owned(), structure.clone())));
    kind
}

pub(super) fn object<const N: usize>(fields: [(&str, Structure); N]) -> Structure {
    let fields = fields.into_iter().map(|(name, structure)| (name.to_owned(), structure)).collect();
    Structure { fields, ..Structure::default() }
}

pub(super) fn plain() -> Structure {
    Structure::default()
}

pub(super) fn map_of(value: Structure) -> Structure {
    Structure { rest: Some(Box::new(value)), ..Structure::default() }
}

/// One value for server-side apply; strategic merge still merges it if it is an object.
pub(super) fn atomic() -> Structure {
    Structure { merge: Merge::Atomic, ..Structure::default() }
}

pub(super) fn set() -> Structure {
    list(Merge::Set, Strategic::MergeValues, plain())
}

/// A list of objects; strategic merge goes by the first key.
pub(super) fn map_by(keys: &[&str], item: Structure) -> Structure {
    let strategic = keys.first().map_or(Strategic::Plain, |first| Strategic::MergeBy((*first).to_owned()));
    list(Merge::Map(keys.iter().map(|name| key(name)).collect()), strategic, item)
}

/// A list that is one value for server-side apply, and merges by `name` for strategic merge.
pub(super) fn strategic_by(name: &str) -> Structure {
    list(Merge::Atomic, Strategic::MergeBy(name.to_owned()), plain())
}

pub(super) fn list(merge: Merge, strategic: Strategic, item: Structure) -> Structure {
    Structure { merge, strategic, items: Some(Box::new(item)), ..Structure::default() }
}

pub(super) fn key(name: &str) -> Key {
    Key { name: name.to_owned(), default: None }
}

pub(super) fn key_or(name: &str, default: &str) -> Key {
    Key { name: name.to_owned(), default: Some(Value::from(default)) }
}
