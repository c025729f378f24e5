//! The one internal shape between a service and its objects. Both InferenceService kinds become it, one renderer reads it.

use std::collections::BTreeMap;

use api::code::Code;
use decide::merge::origin::Setting;
use serde_json::{Map, Value, json};

use crate::gang::Gang;
use crate::labels::{self, Labels};
use crate::router::Router;

/// The service that everything rendered belongs to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// None before the service exists in a cluster (offline plan).
    pub uid: Option<String>,
    /// Only ever on objects, never in a pod template: a template that held it would restart pods on every edit.
    pub generation: Option<i64>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// What a service runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    pub owner: Owner,
    /// Labels of the objects that belong to the service as a whole.
    pub labels: BTreeMap<String, String>,
    /// In declaration order; names are unique.
    pub roles: Vec<Role>,
    /// What must be placed together; None where every replica stands alone.
    pub gang: Option<Gang>,
    /// How requests reach it; None where the service brings its own router.
    pub routing: Option<Routing>,
    /// The endpoint picker for gateways of others; only role-based services have one.
    pub router: Option<Router>,
}

/// One set of equal replicas.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// Unique within the service: `engine`, `engine-nvidia-l40s`, or the user's name of it.
    pub name: String,
    /// What it is a replica set of; the same as `name` unless a component has several.
    pub component: String,
    pub workload: Workload,
    pub replicas: Replicas,
    /// Pods per replica, at least 1.
    pub nodes: u32,
    /// Pod template (`metadata`, `spec`), as the user wrote it and completed by the rules; JSON, so unknown fields survive.
    /// The leader's where a replica has several Pods.
    pub template: Value,
    /// Pod template of all Pods of a replica but the first; None where a replica is one Pod.
    pub worker: Option<Value>,
    /// Whether its Pods are placed together with those of the other roles.
    pub gang: bool,
    /// Keep the Pods of one replica on different hosts.
    pub spread: bool,
    /// Labels that tell the pods of this role from all others; a subset of the template's labels.
    pub selector: BTreeMap<String, String>,
    /// Labels of the workload object.
    pub labels: BTreeMap<String, String>,
    /// Labels of the component, by which its Service finds the Pods that answer; None for further replica sets of the same component, and where no Service is
    /// made.
    pub service: Option<BTreeMap<String, String>>,
    /// Port on which the engine answers HTTP.
    pub port: u16,
    /// None where disruptions are nobody's business.
    pub disruption: Option<Disruption>,
    /// The user's Deployment strategy.
    pub strategy: Option<Value>,
    /// Who stated what of the template.
    pub settings: Vec<Setting>,
}

/// The kind of object that keeps the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// One Deployment for all replicas.
    Deployment,
    /// One LeaderWorkerSet for all replicas, each a group of its own.
    LeaderWorkerSet,
    /// One LeaderWorkerSet of `replicas: 1` for each replica.
    LeaderWorkerSetPerReplica,
}

impl Workload {
    /// `selector`, narrowed to the Pods that answer requests: of a replica over several nodes only the first does.
    pub fn answering(self, mut selector: Labels) -> Labels {
        if self != Self::Deployment {
            selector.insert(labels::WORKER_INDEX.to_owned(), "0".to_owned());
        }
        selector
    }
}

/// How many replicas, and what moves the number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    /// 0 only where something can wake the first one.
    pub min: u32,
    /// At least `min`; equal means no autoscaler.
    pub max: u32,
    pub scaler: Scaler,
}

impl Replicas {
    /// A number that nothing moves.
    pub fn fixed(count: u32) -> Self {
        Self { min: count, max: count, scaler: Scaler::Utilization { metric: ScaleMetric::Cpu, target: 80 } }
    }

    /// Whether an autoscaler owns the number.
    pub fn scaled(&self) -> bool {
        self.max > self.min
    }
}

/// What an autoscaler looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scaler {
    /// A HorizontalPodAutoscaler by itself; `target` in percent of the request.
    Utilization { metric: ScaleMetric, target: u32 },
    /// KEDA, by what a Prometheus says: `threshold` is a replica's share of what `query` counts.
    Prometheus { server: String, query: String, threshold: String },
}

/// Metrics that a HorizontalPodAutoscaler reads by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleMetric {
    Cpu,
    Memory,
}

/// Which autoscalers the cluster has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Autoscalers {
    /// HorizontalPodAutoscalers on cpu and memory only.
    #[default]
    Resources,
    /// KEDA as well.
    Keda,
}

/// What drains and other disruptions leave of a role's Pods: a number or a percentage.
#[derive(Debug, Clone, PartialEq)]
pub enum Disruption {
    MinAvailable(Value),
    MaxUnavailable(Value),
}

/// Pool and use case of the service.
#[derive(Debug, Clone, PartialEq)]
pub struct Routing {
    /// Picks exactly the pods that answer requests.
    pub selector: BTreeMap<String, String>,
    pub ports: Vec<u16>,
    /// `vllm`, `sglang`, `trtllm` or `triton`.
    pub model_server: &'static str,
    /// What clients send as `model`.
    pub model_name: String,
    /// What the engine calls it; None where it is the same.
    pub target_model: Option<String>,
}

impl Owner {
    /// Reads apiVersion, kind and metadata of a service object; the namespace is `default` where absent.
    pub fn of(service: &Value) -> Self {
        let text = |pointer: &str| service.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            api_version: text("/apiVersion").unwrap_or_default(),
            kind: text("/kind").unwrap_or_default(),
            namespace: text("/metadata/namespace").filter(|n| !n.is_empty()).unwrap_or_else(|| "default".to_owned()),
            name: text("/metadata/name").unwrap_or_default(),
            uid: text("/metadata/uid").filter(|uid| !uid.is_empty()),
            generation: service.pointer("/metadata/generation").and_then(Value::as_i64),
            labels: strings(service.pointer("/metadata/labels")),
            annotations: strings(service.pointer("/metadata/annotations")),
        }
    }

    /// Metadata of an object that belongs to this service.
    pub fn metadata(&self, name: &str, labels: &BTreeMap<String, String>) -> Value {
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

/// A JSON map of strings; other values are left out.
pub fn strings(map: Option<&Value>) -> BTreeMap<String, String> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Why a service cannot be laid out: a stable code and a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
