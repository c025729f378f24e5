//! API versions and compact CRDs of optional integrations: LeaderWorkerSet, Volcano, KEDA and the Gateway API.
//!
//! The CRDs are for clusters without the integration, such as the embedded cluster and tests. Installations of the
//! integrations include their own CRDs, which these must not replace.

mod gateway_api;
mod inference_extension;
mod schema;

use serde_json::{Value, json};

use schema::{enum_schema, open_object, printer_column};

pub use gateway_api::{gateway_class_crd, gateway_crd, http_route_crd, reference_grant_crd};
pub use inference_extension::{inference_model_rewrite_crds, inference_objective_crds, inference_pool_crd};

/// API version of HTTPRoute.
pub const HTTP_ROUTE_API_VERSION: &str = "gateway.networking.k8s.io/v1";
/// API version of InferencePool.
pub const INFERENCE_POOL_API_VERSION: &str = "inference.networking.k8s.io/v1";
/// API version of LeaderWorkerSet.
pub const LEADER_WORKER_SET_API_VERSION: &str = "leaderworkerset.x-k8s.io/v1";
/// API version of KEDA's ScaledObject.
pub const SCALED_OBJECT_API_VERSION: &str = "keda.sh/v1alpha1";
/// API version of Volcano's PodGroup.
pub const POD_GROUP_API_VERSION: &str = "scheduling.volcano.sh/v1beta1";

/// Returns all CRDs of this module.
pub fn crds() -> Vec<Value> {
    let single = vec![
        leader_worker_set_crd(),
        pod_group_crd(),
        inference_pool_crd(),
        gateway_class_crd(),
        gateway_crd(),
        http_route_crd(),
        reference_grant_crd(),
    ];
    single.into_iter().chain(inference_objective_crds()).chain(inference_model_rewrite_crds()).collect()
}

/// Returns the CRD of LeaderWorkerSet v1, with the defaults and limits of the upstream CRD.
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
                    printer_column("Ready", "integer", ".status.readyReplicas"),
                    printer_column("Desired", "integer", ".spec.replicas"),
                    printer_column("Up-to-date", "integer", ".status.updatedReplicas"),
                    printer_column("Age", "date", ".metadata.creationTimestamp"),
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
            "startupPolicy": enum_schema(&["LeaderCreated", "LeaderReady"], Some("LeaderCreated")),
            "networkConfig": {"type": "object", "required": ["subdomainPolicy"], "properties": {
                "subdomainPolicy": enum_schema(&["Shared", "UniquePerReplica"], None),
            }},
            "rolloutStrategy": {"type": "object", "required": ["type"], "properties": {
                "type": enum_schema(&["RollingUpdate"], Some("RollingUpdate")),
                "rollingUpdateConfiguration": {"type": "object", "properties": {
                    "maxSurge": {"x-kubernetes-int-or-string": true, "default": 0},
                    "maxUnavailable": {"x-kubernetes-int-or-string": true, "default": 1},
                    "partition": {"type": "integer", "format": "int32", "default": 0},
                }},
            }},
            "leaderWorkerTemplate": {"type": "object", "required": ["workerTemplate"], "properties": {
                "size": {"type": "integer", "format": "int32", "default": 1, "minimum": 1},
                "restartPolicy": enum_schema(
                    &["Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"],
                    Some("RecreateGroupOnPodRestart"),
                ),
                "leaderTemplate": open_object(),
                "workerTemplate": open_object(),
                "subGroupPolicy": {"type": "object", "properties": {
                    "subGroupPolicyType": enum_schema(&["LeaderWorker", "LeaderExcluded"], Some("LeaderWorker")),
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
                "items": condition_schema(),
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

/// Returns the CRD of Volcano's PodGroup, with `subGroupPolicy` as in Volcano 1.14 and later. It has no status subresource.
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
                    printer_column("STATUS", "string", ".status.phase"),
                    printer_column("minMember", "integer", ".spec.minMember"),
                    printer_column("RUNNINGS", "integer", ".status.running"),
                    printer_column("AGE", "date", ".metadata.creationTimestamp"),
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

/// Returns the schema of a condition: the key of a list of type `map` must be declared and required.
fn condition_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string"}},
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::Schema;

    #[test]
    fn schemas_are_structural() {
        for crd in crds() {
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            Schema::from_json(schema).unwrap();
        }
    }
}
