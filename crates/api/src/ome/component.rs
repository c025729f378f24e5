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
pub struct Component {
    /// The main container, a Kubernetes Container.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub runner: Option<Value>,
    /// First node of a multi-node replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<NodeGroup>,
    /// Further nodes of a multi-node replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<NodeGroup>,
    /// Resources of the runner container, as Story 5 of seed 000 writes them.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub resources: Option<Value>,
    /// Router only: parameters that become the router's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// 1 if unset; 0 allows scale to zero.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// Target value of the metric, such as 80 for 80 % of cpu.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_target: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_metric: Option<ScaleMetric>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_concurrency: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary_traffic_percent: Option<i64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::int_or_string")]
    pub min_available: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::int_or_string")]
    pub max_unavailable: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub deployment_strategy: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub keda_config: Option<Value>,
    /// Deployed upstream field: this component's own selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator_override: Option<AcceleratorSelector>,
    /// Tuning per class; the service's wins over the runtime's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accelerator_configurations: Vec<AcceleratorConfiguration>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub affinity: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::objects")]
    pub tolerations: Vec<Value>,
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
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub runner: Option<Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub affinity: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::objects")]
    pub tolerations: Vec<Value>,
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
