//! The pod template, which most workloads carry.

use super::builtin::{atomic, conditions, key, key_or, list, map_by, metadata, object, plain, strategic_by};
use super::{Merge, Strategic, Structure};

pub(super) fn template() -> Structure {
    object([("metadata", metadata()), ("spec", pod_spec())])
}

pub(super) fn pod_spec() -> Structure {
    object([
        ("containers", map_by(&["name"], container())),
        ("initContainers", map_by(&["name"], container())),
        ("ephemeralContainers", map_by(&["name"], container())),
        ("volumes", map_by(&["name"], volume())),
        ("imagePullSecrets", map_by(&["name"], plain())),
        ("hostAliases", map_by(&["ip"], plain())),
        ("topologySpreadConstraints", spread_constraints()),
        ("resourceClaims", map_by(&["name"], plain())),
        ("schedulingGates", map_by(&["name"], plain())),
        ("tolerations", atomic()),
        ("nodeSelector", atomic()),
        ("readinessGates", atomic()),
        ("affinity", affinity()),
        ("securityContext", object([("supplementalGroups", atomic()), ("sysctls", atomic())])),
    ])
}

fn container() -> Structure {
    object([
        ("ports", container_ports()),
        ("env", map_by(&["name"], env_variable())),
        ("envFrom", atomic()),
        ("volumeMounts", map_by(&["mountPath"], plain())),
        ("volumeDevices", map_by(&["devicePath"], plain())),
        ("resizePolicy", atomic()),
        ("resources", object([("claims", map_by(&["name"], plain()))])),
    ])
}

/// Server-side apply tells ports apart by number and protocol, strategic merge by number alone.
fn container_ports() -> Structure {
    let keys = vec![key("containerPort"), key_or("protocol", "TCP")];
    list(Merge::Map(keys), Strategic::MergeBy("containerPort".into()), plain())
}

fn spread_constraints() -> Structure {
    let keys = vec![key("topologyKey"), key("whenUnsatisfiable")];
    let item = object([("labelSelector", atomic())]);
    list(Merge::Map(keys), Strategic::MergeBy("topologyKey".into()), item)
}

fn env_variable() -> Structure {
    let references = ["configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef"];
    object([("valueFrom", object(references.map(|name| (name, atomic()))))])
}

fn volume() -> Structure {
    object([
        ("secret", object([("items", atomic())])),
        ("configMap", object([("items", atomic())])),
        ("projected", object([("sources", atomic())])),
    ])
}

fn affinity() -> Structure {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    object([("nodeAffinity", object([(required, atomic())]))])
}

pub(super) fn pod_status() -> Structure {
    object([
        ("conditions", conditions()),
        ("podIPs", map_by(&["ip"], plain())),
        ("hostIPs", strategic_by("ip")),
        ("resourceClaimStatuses", map_by(&["name"], plain())),
    ])
}
