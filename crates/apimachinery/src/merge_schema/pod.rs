//! Merge schema of Pods and Pod templates.

use super::constructors::{atomic, deduced, key, key_with_default, list, map_by, object, patch_merge_by};
use super::meta::{conditions, metadata};
use super::node::{MergeSchema, MergeStrategy, PatchStrategy};

pub(super) fn template() -> MergeSchema {
    object([("metadata", metadata()), ("spec", pod_spec())])
}

pub(super) fn pod_spec() -> MergeSchema {
    object([
        ("containers", map_by(&["name"], container())),
        ("initContainers", map_by(&["name"], container())),
        ("ephemeralContainers", map_by(&["name"], container())),
        ("volumes", map_by(&["name"], volume())),
        ("imagePullSecrets", map_by(&["name"], deduced())),
        ("hostAliases", map_by(&["ip"], deduced())),
        ("topologySpreadConstraints", spread_constraints()),
        ("resourceClaims", map_by(&["name"], deduced())),
        ("schedulingGates", map_by(&["name"], deduced())),
        ("tolerations", atomic()),
        ("nodeSelector", atomic()),
        ("readinessGates", atomic()),
        ("affinity", affinity()),
        ("securityContext", object([("supplementalGroups", atomic()), ("sysctls", atomic())])),
    ])
}

fn container() -> MergeSchema {
    object([
        ("ports", container_ports()),
        ("env", map_by(&["name"], env_variable())),
        ("envFrom", atomic()),
        ("volumeMounts", map_by(&["mountPath"], deduced())),
        ("volumeDevices", map_by(&["devicePath"], deduced())),
        ("resizePolicy", atomic()),
        ("resources", object([("claims", map_by(&["name"], deduced()))])),
    ])
}

/// Server-side apply identifies ports by number and protocol, strategic merge patch by number alone.
fn container_ports() -> MergeSchema {
    let keys = vec![key("containerPort"), key_with_default("protocol", "TCP")];
    list(MergeStrategy::Map(keys), PatchStrategy::MergeBy("containerPort".into()), deduced())
}

fn spread_constraints() -> MergeSchema {
    let keys = vec![key("topologyKey"), key("whenUnsatisfiable")];
    let item = object([("labelSelector", atomic())]);
    list(MergeStrategy::Map(keys), PatchStrategy::MergeBy("topologyKey".into()), item)
}

fn env_variable() -> MergeSchema {
    let references = ["configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef"];
    object([("valueFrom", object(references.map(|name| (name, atomic()))))])
}

fn volume() -> MergeSchema {
    object([
        ("secret", object([("items", atomic())])),
        ("configMap", object([("items", atomic())])),
        ("projected", object([("sources", atomic())])),
    ])
}

fn affinity() -> MergeSchema {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    object([("nodeAffinity", object([(required, atomic())]))])
}

pub(super) fn pod_status() -> MergeSchema {
    object([
        ("conditions", conditions()),
        ("podIPs", map_by(&["ip"], deduced())),
        ("hostIPs", patch_merge_by("ip")),
        ("resourceClaimStatuses", map_by(&["name"], deduced())),
    ])
}
