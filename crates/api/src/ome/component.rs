//! Engine, decoder and router: one shape for what a runtime offers and what a service overrides.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AcceleratorConfiguration, AcceleratorSelector};
use crate::openapi;

/// A component of a service, or a runtime's template for it. Pod fields stand inline beside these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = openapi::rule(
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas == 0 || self.minReplicas <= self.maxReplicas",
    "minReplicas is above maxReplicas; raise maxReplicas, or lower minReplicas",
))]
pub struct Component {
    /// The main container, a Kubernetes Container.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::container")]
    pub runner: Option<Value>,
    /// First node of a multi-node replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<NodeGroup>,
    /// Further nodes of a multi-node replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<NodeGroup>,
    /// Resources of the runner container, as Story 5 of seed 000 writes them.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::resources")]
    pub resources: Option<Value>,
    /// Router only: parameters that become the router's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// 1 if unset; 0 allows scale to zero.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// Most replicas of the autoscaler; 0 or unset: as many as `minReplicas`.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// Target value of the metric, such as 80 for 80 % of cpu.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_target: Option<i32>,
    /// What the autoscaler looks at; `cpu` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_metric: Option<ScaleMetric>,
    /// Requests that one replica takes at once; kept, without effect.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_concurrency: Option<i64>,
    /// Longest time of one request, in seconds; kept, without effect.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
    /// Share of a new revision; kept, without effect.
    #[schemars(range(min = 0, max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary_traffic_percent: Option<i64>,
    /// Labels of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Pods that must stay during a disruption: a number or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::int_or_string")]
    pub min_available: Option<Value>,
    /// Pods that may be away during a disruption: a number or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::int_or_string")]
    pub max_unavailable: Option<Value>,
    /// The `strategy` of a Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub deployment_strategy: Option<Value>,
    /// Deployed upstream field: parameters of a KEDA autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub keda_config: Option<Value>,
    /// Deployed upstream field: this component's own selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator_override: Option<AcceleratorSelector>,
    /// Tuning per class; the service's wins over the runtime's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accelerator_configurations: Vec<AcceleratorConfiguration>,
    /// Labels that the Pods' nodes must have; the strongest of all layers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// A Kubernetes Affinity, ANDed with those of the other layers.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub affinity: Option<Value>,
    /// Kubernetes Tolerations of the Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::objects")]
    pub tolerations: Vec<Value>,
    /// Kubernetes Volumes that the containers may mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::objects")]
    pub volumes: Vec<Value>,
    /// Every other PodSpec field, untouched: containers, serviceAccountName, hostNetwork, …
    #[serde(flatten)]
    #[schemars(schema_with = "openapi::pod_fields")]
    pub pod: Map<String, Value>,
}

/// The leader or the workers of a multi-node component. Pod fields stand inline beside these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroup {
    /// Number of worker Pods; not for leaders.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i32>,
    /// The main container of these Pods, a Kubernetes Container.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::container")]
    pub runner: Option<Value>,
    /// Labels that these Pods' nodes must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// A Kubernetes Affinity of these Pods.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub affinity: Option<Value>,
    /// Kubernetes Tolerations of these Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::objects")]
    pub tolerations: Vec<Value>,
    /// Kubernetes Volumes of these Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::objects")]
    pub volumes: Vec<Value>,
    /// Every other PodSpec field, untouched.
    #[serde(flatten)]
    #[schemars(schema_with = "openapi::pod_fields")]
    pub pod: Map<String, Value>,
}

/// What autoscaling looks at; `cpu` if unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ScaleMetric {
    #[default]
    Cpu,
    Memory,
    Concurrency,
    Rps,
}
