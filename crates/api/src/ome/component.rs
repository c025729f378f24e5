//! Components: engine, decoder and router, as specified by a runtime and overridden by a service.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AcceleratorConfiguration, AcceleratorSelector};
use crate::openapi;

/// A component of a service, or its template in a runtime. PodSpec fields are inlined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = openapi::validation_rule(
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas == 0 || self.minReplicas <= self.maxReplicas",
    "minReplicas exceeds maxReplicas; increase maxReplicas or decrease minReplicas",
))]
pub struct Component {
    /// The main container, a Kubernetes Container.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::container")]
    pub runner: Option<Value>,
    /// Leader of a multi-node replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<NodeGroup>,
    /// Workers of a multi-node replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<NodeGroup>,
    /// Resources of the runner container.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::resources")]
    pub resources: Option<Value>,
    /// Router only: parameters, passed to the router as environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// Minimum number of replicas; 1 if unset, 0 allows scaling to zero.
    #[schemars(range(min = 0, max = crate::MAX_REPLICAS))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// Maximum number of replicas of the autoscaler; `minReplicas` if 0 or unset.
    #[schemars(range(min = 0, max = crate::MAX_REPLICAS))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// Target value of the metric, such as 80 for 80% CPU utilization.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_target: Option<i32>,
    /// Metric of the autoscaler; `cpu` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_metric: Option<ScaleMetric>,
    /// Maximum concurrent requests per replica; accepted without effect.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_concurrency: Option<i64>,
    /// Request timeout in seconds; accepted without effect.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
    /// Traffic percentage of a new revision; accepted without effect.
    #[schemars(range(min = 0, max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary_traffic_percent: Option<i64>,
    /// Labels of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Minimum number or percentage of Pods that must remain available during a disruption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::int_or_string")]
    pub min_available: Option<Value>,
    /// Maximum number or percentage of Pods that may be unavailable during a disruption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::int_or_string")]
    pub max_unavailable: Option<Value>,
    /// Kubernetes DeploymentStrategy.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub deployment_strategy: Option<Value>,
    /// Upstream OME field: parameters of a KEDA autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub keda_config: Option<Value>,
    /// Upstream OME field: accelerator selector of this component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator_override: Option<AcceleratorSelector>,
    /// Configuration per class; the service's configuration takes precedence over the runtime's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accelerator_configurations: Vec<AcceleratorConfiguration>,
    /// Labels that the nodes of the Pods must have; takes precedence over all other layers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Kubernetes Affinity of the Pods, ANDed with those of the other layers.
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
    /// All other PodSpec fields, unmodified: containers, serviceAccountName, hostNetwork, …
    #[serde(flatten)]
    #[schemars(schema_with = "openapi::pod_fields")]
    pub pod: Map<String, Value>,
}

/// The leader or the workers of a multi-node component. PodSpec fields are inlined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroup {
    /// Workers only: number of Pods.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i32>,
    /// The main container of these Pods, a Kubernetes Container.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::container")]
    pub runner: Option<Value>,
    /// Labels that the nodes of these Pods must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Kubernetes Affinity of these Pods.
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
    /// All other PodSpec fields, unmodified.
    #[serde(flatten)]
    #[schemars(schema_with = "openapi::pod_fields")]
    pub pod: Map<String, Value>,
}

/// Metric of the autoscaler; `cpu` if unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ScaleMetric {
    /// CPU utilization.
    #[default]
    Cpu,
    /// Memory utilization.
    Memory,
    /// Concurrent requests per replica.
    Concurrency,
    /// Requests per second per replica.
    Rps,
}
