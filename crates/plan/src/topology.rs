//! The internal topology of a service. Both InferenceService kinds are converted into it, and a single renderer
//! converts it into objects.

use std::collections::BTreeMap;

use api::Code;
use decide::Setting;
use serde_json::{Map, Value, json};

use crate::gang::Gang;
use crate::labels::{self, Labels};
use crate::router::Router;

/// The service that owns the rendered objects.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Owner {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// `None` in offline plans, before the service exists in a cluster.
    pub uid: Option<String>,
    /// Set on objects but never in Pod templates, where it would restart Pods on every edit.
    pub generation: Option<i64>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// Complete topology of one service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Topology {
    pub owner: Owner,
    /// Labels of the objects that belong to the service as a whole.
    pub labels: BTreeMap<String, String>,
    /// In declaration order; names are unique.
    pub roles: Vec<Role>,
    /// Gang of Pods to schedule together; `None` without gang scheduling.
    pub gang: Option<Gang>,
    /// Pool and use case for the gateway.
    pub routing: Option<Routing>,
    /// Endpoint picker for Gateway API gateways; only role-based services have one.
    pub router: Option<Router>,
}

/// A set of identical replicas.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Role {
    /// Name, unique within the service: `engine`, `engine-nvidia-l40s`, or the name of the user's role.
    pub name: String,
    /// Component; equal to `name` unless the component has several replica sets.
    pub component: String,
    pub workload: Workload,
    pub replicas: ReplicaRange,
    /// Number of Pods per replica, at least 1.
    pub nodes: u32,
    /// Pod template (`metadata`, `spec`) as JSON, which preserves unknown fields. The leader's template in multi-node replicas.
    pub template: Value,
    /// Pod template of the workers; `None` in single-node replicas.
    pub worker_template: Option<Value>,
    /// Whether the Pods are members of the service's gang.
    pub in_gang: bool,
    /// Whether to schedule the Pods of a replica on different Nodes.
    pub spread_over_hosts: bool,
    /// Labels that select the Pods of this role; a subset of the template's labels.
    pub selector: BTreeMap<String, String>,
    /// Labels of the workload object.
    pub labels: BTreeMap<String, String>,
    /// Selector of the component's Service; `None` for further replica sets of the component, and for roles without a Service.
    pub service_selector: Option<BTreeMap<String, String>>,
    /// HTTP port of the engine.
    pub port: u16,
    /// Disruption budget; `None` for roles without one.
    pub disruption: Option<Disruption>,
    /// Deployment strategy that the user sets.
    pub strategy: Option<Value>,
    /// Settings of the template with their origins.
    pub settings: Vec<Setting>,
}

/// The kind of workload that runs the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// One Deployment for all replicas.
    Deployment,
    /// One LeaderWorkerSet for all replicas, with one group per replica.
    LeaderWorkerSet,
    /// One LeaderWorkerSet of `replicas: 1` for each replica.
    LeaderWorkerSetPerReplica,
}

impl Workload {
    /// Restricts `selector` to the Pods that serve requests: only the leaders of multi-node replicas.
    pub(crate) fn serving_selector(self, mut selector: Labels) -> Labels {
        if self != Self::Deployment {
            selector.insert(labels::WORKER_INDEX.to_owned(), "0".to_owned());
        }
        selector
    }
}

/// Range of replicas and the autoscaler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaRange {
    /// Minimum; 0 only if the autoscaler can scale from zero.
    pub min: u32,
    /// Maximum; equal to `min` without an autoscaler.
    pub max: u32,
    pub scaler: Scaler,
}

impl ReplicaRange {
    /// Returns a fixed number of replicas.
    pub(crate) fn fixed(count: u32) -> Self {
        Self { min: count, max: count, scaler: Scaler::Utilization { metric: ResourceMetric::Cpu, target: 80 } }
    }

    /// Returns whether an autoscaler manages the number of replicas.
    pub(crate) fn is_autoscaled(&self) -> bool {
        self.max > self.min
    }
}

/// Metric source of an autoscaler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scaler {
    /// HorizontalPodAutoscaler on a resource metric; `target` in percent of the request.
    Utilization { metric: ResourceMetric, target: u32 },
    /// KEDA on a Prometheus query; `threshold` is the value per replica.
    Prometheus { server: String, query: String, threshold: String },
}

/// Resource metrics of a HorizontalPodAutoscaler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceMetric {
    Cpu,
    Memory,
}

/// Autoscalers that the cluster supports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AutoscalerSupport {
    /// HorizontalPodAutoscaler on CPU and memory only.
    #[default]
    HpaOnly,
    /// HorizontalPodAutoscaler and KEDA.
    HpaAndKeda,
}

/// Disruption budget of a role: a number or a percentage.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Disruption {
    MinAvailable(Value),
    MaxUnavailable(Value),
}

/// Pool and use case of the service for the gateway.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Routing {
    /// Selects the Pods that serve requests.
    pub selector: BTreeMap<String, String>,
    pub ports: Vec<u16>,
    /// `vllm`, `sglang`, `trtllm` or `triton`.
    pub model_server: &'static str,
    /// Model name in requests of clients.
    pub model_name: String,
    /// Model name of the engine; `None` if it is the same.
    pub target_model: Option<String>,
}

impl Owner {
    /// Reads apiVersion, kind and metadata of a service object; the default namespace is `default`.
    pub(crate) fn from_object(service: &Value) -> Self {
        let text = |pointer: &str| service.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            api_version: text("/apiVersion").unwrap_or_default(),
            kind: text("/kind").unwrap_or_default(),
            namespace: text("/metadata/namespace").filter(|n| !n.is_empty()).unwrap_or_else(|| "default".to_owned()),
            name: text("/metadata/name").unwrap_or_default(),
            uid: text("/metadata/uid").filter(|uid| !uid.is_empty()),
            generation: service.pointer("/metadata/generation").and_then(Value::as_i64),
            labels: string_map(service.pointer("/metadata/labels")),
            annotations: string_map(service.pointer("/metadata/annotations")),
        }
    }

    /// Returns the metadata of an object owned by this service.
    pub(crate) fn metadata(&self, name: &str, labels: &BTreeMap<String, String>) -> Value {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), json!(name));
        metadata.insert("namespace".to_owned(), json!(self.namespace));
        metadata.insert("labels".to_owned(), json!(labels));
        if let Some(uid) = &self.uid {
            let reference = json!({
                "apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            });
            metadata.insert("ownerReferences".to_owned(), json!([reference]));
        }
        Value::Object(metadata)
    }
}

/// Returns the string values of a JSON map.
pub(crate) fn string_map(map: Option<&Value>) -> BTreeMap<String, String> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The reason why a service cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// Stable code of [`code::error`](crate::code::error).
    pub code: Code,
    /// Explanation with the field and the remedy.
    pub message: String,
}

impl PlanError {
    /// Creates an error.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
