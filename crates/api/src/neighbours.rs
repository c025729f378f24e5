//! Compact CRDs of the neighbours whose kinds we write, for clusters that do not have the neighbour: the embedded
//! one, and tests. A real installation brings its own; never install these over it.

mod gateway;

use serde_json::{Value, json};

pub use gateway::{http_route_crd, inference_pool_crd};

/// API version of HTTPRoute.
pub const HTTP_ROUTE: &str = "gateway.networking.k8s.io/v1";
/// API version of InferencePool.
pub const INFERENCE_POOL: &str = "inference.networking.k8s.io/v1";
/// API version of LeaderWorkerSet.
pub const LEADER_WORKER_SET: &str = "leaderworkerset.x-k8s.io/v1";
/// API version of KEDA's ScaledObject.
pub const SCALED_OBJECT: &str = "keda.sh/v1alpha1";
/// API version of Volcano's PodGroup.
pub const POD_GROUP: &str = "scheduling.volcano.sh/v1beta1";

/// Every CRD of this module.
pub fn crds() -> Vec<Value> {
    vec![leader_worker_set_crd(), pod_group_crd(), inference_pool_crd(), http_route_crd()]
}

/// LeaderWorkerSet v1, with the defaults and limits that the upstream CRD has.
pub fn leader_worker_set_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "leaderworkersets.leaderworkerset.x-k8s.io"},
        "spec": {
            "group": "leaderworkerset.x-k8s.io",
            "scope": "Namespaced",
            "names": {
                "kind": "LeaderWorkerSet",
                "listKind": "LeaderWorkerSetList",
                "plural": "leaderworkersets",
                "singular": "leaderworkerset",
                "shortNames": ["lws"],
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": leader_worker_set_schema()},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.hpaPodSelector",
                    },
                },
                "additionalPrinterColumns": [
                    column("Ready", "integer", ".status.readyReplicas"),
                    column("Desired", "integer", ".spec.replicas"),
                    column("Up-to-date", "integer", ".status.updatedReplicas"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
            }],
        },
    })
}

fn leader_worker_set_schema() -> Value {
    let count = json!({"type": "integer", "format": "int32"});
    json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {"type": "object", "required": ["leaderWorkerTemplate"], "properties": {
            "replicas": {"type": "integer", "format": "int32", "default": 1, "minimum": 0, "maximum": 1_000_000},
            "startupPolicy": one_of(&["LeaderCreated", "LeaderReady"], Some("LeaderCreated")),
            "networkConfig": {"type": "object", "required": ["subdomainPolicy"], "properties": {
                "subdomainPolicy": one_of(&["Shared", "UniquePerReplica"], None),
            }},
            "rolloutStrategy": {"type": "object", "required": ["type"], "properties": {
                "type": one_of(&["RollingUpdate"], Some("RollingUpdate")),
                "rollingUpdateConfiguration": {"type": "object", "properties": {
                    "maxSurge": {"x-kubernetes-int-or-string": true, "default": 0},
                    "maxUnavailable": {"x-kubernetes-int-or-string": true, "default": 1},
                    "partition": {"type": "integer", "format": "int32", "default": 0},
                }},
            }},
            "leaderWorkerTemplate": {"type": "object", "required": ["workerTemplate"], "properties": {
                "size": {"type": "integer", "format": "int32", "default": 1, "minimum": 1},
                "restartPolicy": one_of(
                    &["Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"],
                    Some("RecreateGroupOnPodRestart"),
                ),
                "leaderTemplate": open_object(),
                "workerTemplate": open_object(),
                "subGroupPolicy": {"type": "object", "properties": {
                    "subGroupPolicyType": one_of(&["LeaderWorker", "LeaderExcluded"], Some("LeaderWorker")),
                    "subGroupSize": count,
                }},
                "volumeClaimTemplates": {"type": "array", "items": open_object()},
                "persistentVolumeClaimRetentionPolicy": {"type": "object", "properties": {
                    "whenDeleted": {"type": "string"},
                    "whenScaled": {"type": "string"},
                }},
            }},
        }},
        "status": {"type": "object", "properties": {
            "conditions": {
                "type": "array",
                "items": open_object_with_type(),
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "observedGeneration": {"type": "integer", "format": "int64"},
            "replicas": count,
            "readyReplicas": count,
            "updatedReplicas": count,
            "hpaPodSelector": {"type": "string"},
        }},
    }})
}

/// Volcano's PodGroup, with `subGroupPolicy` as Volcano 1.14 and later have it. It has no status subresource.
pub fn pod_group_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.scheduling.volcano.sh"},
        "spec": {
            "group": "scheduling.volcano.sh",
            "scope": "Namespaced",
            "names": {
                "kind": "PodGroup",
                "listKind": "PodGroupList",
                "plural": "podgroups",
                "singular": "podgroup",
                "shortNames": ["pg", "podgroup-v1beta1"],
            },
            "versions": [{
                "name": "v1beta1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": pod_group_schema()},
                "additionalPrinterColumns": [
                    column("STATUS", "string", ".status.phase"),
                    column("minMember", "integer", ".spec.minMember"),
                    column("RUNNINGS", "integer", ".status.running"),
                    column("AGE", "date", ".metadata.creationTimestamp"),
                ],
            }],
        },
    })
}

fn pod_group_schema() -> Value {
    let count = json!({"type": "integer", "format": "int32", "minimum": 0});
    let quantities = json!({"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}});
    json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {
            "minMember": count,
            "minTaskMember": {"type": "object", "additionalProperties": {"type": "integer", "format": "int32"}},
            "minResources": quantities,
            "queue": {"type": "string", "default": "default", "maxLength": 253},
            "priorityClassName": {"type": "string", "maxLength": 253},
            "networkTopology": open_object(),
            "subGroupPolicy": {"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string", "maxLength": 253},
                "subGroupSize": {"type": "integer", "format": "int32", "default": 1, "minimum": 1},
                "minSubGroups": {"type": "integer", "format": "int32", "default": 0, "minimum": 0},
                "labelSelector": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "x-kubernetes-preserve-unknown-fields": true,
                },
                "matchLabelKeys": {
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "atomic",
                },
                "networkTopology": open_object(),
            }}},
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "phase": {"type": "string"},
            "running": count,
            "succeeded": count,
            "failed": count,
        }},
    }})
}

fn open_object() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A condition: a list-map key must be a declared, required field.
fn open_object_with_type() -> Value {
    json!({
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string"}},
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn one_of(values: &[&str], default: Option<&str>) -> Value {
    let mut schema = json!({"type": "string", "enum": values});
    if let Some(default) = default {
        schema["default"] = json!(default);
    }
    schema
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::schema::Schema;

    #[test]
    fn schemas_are_structural() {
        for crd in crds() {
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            Schema::from_json(schema).unwrap();
        }
    }
}
