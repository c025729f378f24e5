//! `fusioninfer.io/v1alpha1`: inference services that consist of roles (seed 002).

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{condition::Condition, openapi};

/// The API version of every kind in this module.
pub const API_VERSION: &str = "fusioninfer.io/v1alpha1";

/// A service that consists of roles.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fusioninfer.io",
    version = "v1alpha1",
    kind = "InferenceService",
    plural = "inferenceservices",
    namespaced,
    shortname = "fisvc",
    category = "inference",
    status = "InferenceServiceStatus",
    derive = "PartialEq",
    derive = "Default",
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("must start with a letter and contain only a-z, 0-9 and -, because Services are named after it").field_path(".metadata.name"),
    validation = Rule::new("self.spec.roles.all(role, role.componentType == 'router' || size(self.metadata.name) + size(role.name) + size(has(role.replicas) && role.replicas > 0 ? string(role.replicas - 1) : '0') + 2 <= 50)").message("the composed name {service}-{role}-{replica} must have at most 50 characters").field_path(".spec.roles"),
    printcolumn = r#"{"name":"Active","type":"string","jsonPath":".status.conditions[?(@.type=='Active')].status"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceSpec {
    /// Roles of the service, with unique names and at most one router.
    #[schemars(schema_with = "roles")]
    pub roles: Vec<Role>,
    /// Scheduling of the Pods of all engine roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_strategy: Option<SchedulingStrategy>,
}

/// Scheduling of the Pods of all engine roles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStrategy {
    /// Scheduler of the engine Pods; `volcano` for gang roles if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Pods that must be scheduled together; the default depends on the features of the installed Volcano version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_policy: Option<GangPolicy>,
}

/// Pods that are scheduled together as a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GangPolicy {
    /// One replica of each gang role together; further replicas individually.
    MinimumAvailable,
    /// All replicas of all gang roles together.
    All,
}

/// One role of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Role {
    /// Name of the role, unique in the service.
    #[schemars(length(min = 1, max = 48), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Type of the component.
    pub component_type: ComponentType,
    /// Router only: routing strategy; `prefix-cache` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RoutingStrategy>,
    /// Router only: spec of an HTTPRoute.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::ome::object")]
    #[schemars(schema_with = "openapi::object")]
    pub httproute: Option<Value>,
    /// Router only, upstream field: spec of a Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::ome::object")]
    #[schemars(schema_with = "openapi::object")]
    pub gateway: Option<Value>,
    /// Router only: configuration of the endpoint picker, passed on unmodified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_picker_config: Option<String>,
    /// Number of replicas; 1 if unset.
    #[schemars(range(min = 0, max = crate::MAX_REPLICAS))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Nodes of one replica; a single node if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multinode: Option<Multinode>,
    /// Kubernetes PodTemplateSpec of the role.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::ome::object")]
    #[schemars(schema_with = "openapi::pod_template")]
    pub template: Option<Value>,
    /// Maximum number of replicas that may be unavailable during a rollout; 1 if unset.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<i32>,
}

/// Type of the component of a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ComponentType {
    /// Routes requests to the engines.
    Router,
    /// Engine for prefill.
    Prefiller,
    /// Engine for decode.
    Decoder,
    /// Engine for both prefill and decode.
    #[default]
    Worker,
}

/// How a router selects endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingStrategy {
    /// Prefer endpoints with a cached prefix of the prompt.
    #[default]
    PrefixCache,
    /// Prefer endpoints with low KV cache utilization.
    KvCacheUtilization,
    /// Prefer endpoints with short queues.
    QueueSize,
    /// Prefer endpoints that have loaded the LoRA adapter.
    LoraAffinity,
    /// Select separate endpoints for prefill and decode.
    PdDisaggregation,
}

/// Nodes of a multi-node replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Multinode {
    /// Number of nodes, and thus Pods, of one replica.
    #[schemars(range(min = 1))]
    pub node_count: i32,
    /// How the nodes of a replica are connected; `Ray` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<MultinodeBackend>,
    /// Whether the Pods of one replica must run on different hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<bool>,
}

/// How the nodes of a replica are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum MultinodeBackend {
    /// A Ray cluster.
    #[default]
    Ray,
    /// The engine's own distributed runtime.
    Native,
}

/// State of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceStatus {
    /// Generation of the spec that the status was computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Condition `Ready`, and one condition per stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
    /// State by role name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, ComponentStatus>,
    /// Current rollouts by role name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rollouts: BTreeMap<String, RolloutStatus>,
}

/// Progress of the rollout of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Number of desired replicas.
    pub replicas: i32,
    /// Number of replicas with the new template.
    pub updated_replicas: i32,
    /// Maximum number of ready replicas since the start of the rollout; at most `maxUnavailable` of them may be
    /// unavailable.
    pub ready_before: i32,
}

/// State of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// Number of desired replicas.
    pub desired_replicas: i32,
    /// Number of replicas whose Pods are all ready.
    pub ready_replicas: i32,
    /// Number of nodes of one replica.
    pub nodes_per_replica: i32,
    /// Number of Pods of all replicas.
    pub total_pods: i32,
    /// Number of ready Pods.
    pub ready_pods: i32,
    /// Phase of the role.
    pub phase: ComponentPhase,
    /// Time at which the state last changed, in RFC 3339 format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
}

/// Phase of a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ComponentPhase {
    /// No Pods were created yet.
    #[default]
    Pending,
    /// Pods are starting or being updated.
    Deploying,
    /// All replicas are ready.
    Running,
    /// The role cannot be deployed.
    Failed,
    /// The state is not known.
    Unknown,
}

// === impl Role ===

impl Role {
    /// Returns the number of desired replicas; 1 if unset.
    pub fn replica_count(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }

    /// Returns the number of nodes, and thus Pods, of one replica; 1 if unset.
    pub fn node_count(&self) -> i32 {
        self.multinode.as_ref().map_or(1, |multinode| multinode.node_count)
    }
}

// === impl ComponentType ===

impl ComponentType {
    /// Returns the name in manifests and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Prefiller => "prefiller",
            Self::Decoder => "decoder",
            Self::Worker => "worker",
        }
    }
}

/// Schema of the list of roles, with the rules between roles.
fn roles(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut item = generator.subschema_for::<Role>();
    item.insert(
        "x-kubernetes-validations".to_owned(),
        json!([{
            "rule": "self.componentType == 'router' || has(self.template)",
            "message": "template is required for roles other than routers",
        }]),
    );
    schemars::json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 32,
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-validations": [{
            "rule": "self.filter(role, role.componentType == 'router').size() <= 1",
            "message": "at most one role may be a router",
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lint, manifest};

    // spec: TOP-2
    #[test]
    fn one_kind_expresses_every_topology() {
        let pod = r#"template: {spec: {containers: [{name: vllm, image: "vllm/vllm-openai:v0.11.0"}]}}"#;
        let worker = format!("{{name: inference, componentType: worker, {pod}}}");
        let prefill =
            format!("{{name: prefill, componentType: prefiller, replicas: 1, multinode: {{nodeCount: 2}}, {pod}}}");
        let decode =
            format!("{{name: decode, componentType: decoder, replicas: 2, multinode: {{nodeCount: 4}}, {pod}}}");
        let router = "{name: router, componentType: router, strategy: pd-disaggregation, httproute: {}}".to_owned();
        let pair = format!("{prefill}, {decode}");
        let role_lists = [worker.clone(), pair.clone(), format!("{worker}, {router}"), format!("{pair}, {router}")];
        for roles in role_lists {
            let text = format!(
                "apiVersion: fusioninfer.io/v1alpha1\nkind: InferenceService\nmetadata: {{name: svc}}\nspec: {{roles: [{roles}]}}\n"
            );
            let documents = manifest::parse_manifest("f.yaml", &text).unwrap();
            assert_eq!(lint::lint_document(&documents[0]), [], "{text}");
            documents[0].parse::<InferenceService>().unwrap();
        }
    }

    #[test]
    fn unset_replicas_and_nodes_default_to_one() {
        let role = Role::default();
        assert_eq!((role.replica_count(), role.node_count()), (1, 1));
    }
}
