//! `fusioninfer.io/v1alpha1`: a service stated as roles (seed 002).

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{condition::Condition, openapi};

/// The API group and version of this module.
pub const API_VERSION: &str = "fusioninfer.io/v1alpha1";

/// A service made of roles.
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
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("must start with a letter and hold only a-z, 0-9 and -, because Services are named after it").field_path(".metadata.name"),
    validation = Rule::new("self.spec.roles.all(role, role.componentType == 'router' || size(self.metadata.name) + size(role.name) + size(has(role.replicas) && role.replicas > 0 ? string(role.replicas - 1) : '0') + 2 <= 50)").message("the composed name {service}-{role}-{replica} must not be longer than 50 characters").field_path(".spec.roles"),
    printcolumn = r#"{"name":"Active","type":"string","jsonPath":".status.conditions[?(@.type=='Active')].status"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceSpec {
    /// At least one; names are unique, at most one is a router.
    #[schemars(schema_with = "roles")]
    pub roles: Vec<Role>,
    /// How the Pods of all engine roles are scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_strategy: Option<SchedulingStrategy>,
}

/// Pod-level scheduling of all engine roles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStrategy {
    /// Set on every engine Pod; gang roles use `volcano` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// How much must fit at once; by default what the installed Volcano can express.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_policy: Option<GangPolicy>,
}

/// What a gang waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GangPolicy {
    /// One replica of every gang role together, further replicas one whole replica at a time.
    MinimumAvailable,
    /// Everything or nothing.
    All,
}

/// A logical component of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Role {
    /// Chosen by the user, unique in the service.
    #[schemars(length(min = 1, max = 48), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// What the role does.
    pub component_type: ComponentType,
    /// Router only; `prefix-cache` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RoutingStrategy>,
    /// Router only: the spec of an HTTPRoute.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::ome::object")]
    #[schemars(schema_with = "openapi::object")]
    pub httproute: Option<Value>,
    /// Router only, deployed upstream field: the spec of a Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::ome::object")]
    #[schemars(schema_with = "openapi::object")]
    pub gateway: Option<Value>,
    /// Router only: configuration of the endpoint picker, verbatim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_picker_config: Option<String>,
    /// Independent copies; 1 if unset.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Nodes per copy; one if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multinode: Option<Multinode>,
    /// A Kubernetes PodTemplateSpec.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::ome::object")]
    #[schemars(schema_with = "openapi::pod_template")]
    pub template: Option<Value>,
    /// Copies that may be down during a rollout; 1 if unset.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<i32>,
}

impl Role {
    /// Copies wanted; unset is one.
    pub fn replica_count(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }

    /// Nodes, and so Pods, of one copy; unset is one.
    pub fn node_count(&self) -> i32 {
        self.multinode.as_ref().map_or(1, |multinode| multinode.node_count)
    }
}

/// What a role does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ComponentType {
    Router,
    Prefiller,
    Decoder,
    #[default]
    Worker,
}

impl ComponentType {
    /// As written in manifests and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Prefiller => "prefiller",
            Self::Decoder => "decoder",
            Self::Worker => "worker",
        }
    }
}

/// How a router picks endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingStrategy {
    #[default]
    PrefixCache,
    KvCacheUtilization,
    QueueSize,
    LoraAffinity,
    PdDisaggregation,
}

/// A copy that spans nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Multinode {
    /// Nodes, and so Pods, of one copy.
    #[schemars(range(min = 1))]
    pub node_count: i32,
    /// How the nodes find each other; `Ray` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<MultinodeBackend>,
    /// Require the Pods of one copy to be on different hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<bool>,
}

/// What joins the nodes of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum MultinodeBackend {
    #[default]
    Ray,
    Native,
}

/// State of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceStatus {
    /// The generation of the spec that the status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One `Ready`, and a condition per stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
    /// By role name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, ComponentStatus>,
    /// By role name: what is being rolled out now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rollouts: BTreeMap<String, RolloutStatus>,
}

/// How far a role's new template is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Copies wanted.
    pub replicas: i32,
    /// Copies that have the new template.
    pub updated_replicas: i32,
    /// The most copies that were ready since the rollout began: of these `maxUnavailable` may be down.
    pub ready_before: i32,
}

/// State of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// Copies wanted.
    pub desired_replicas: i32,
    /// A copy is ready when all its nodes are.
    pub ready_replicas: i32,
    /// Nodes of one copy.
    pub nodes_per_replica: i32,
    /// Pods of all copies.
    pub total_pods: i32,
    /// Those that are ready.
    pub ready_pods: i32,
    /// Where the role is in its life.
    pub phase: ComponentPhase,
    /// RFC 3339; moves only with the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
}

/// Where a role is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ComponentPhase {
    #[default]
    Pending,
    Deploying,
    Running,
    Failed,
    Unknown,
}

/// The roles with the rules between them.
fn roles(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut item = generator.subschema_for::<Role>();
    item.insert(
        "x-kubernetes-validations".to_owned(),
        json!([{
            "rule": "self.componentType == 'router' || has(self.template)",
            "message": "a role that is not a router needs a template",
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
    fn every_topology_is_one_kind() {
        let pod = r#"template: {spec: {containers: [{name: vllm, image: "vllm/vllm-openai:v0.11.0"}]}}"#;
        let worker = format!("{{name: inference, componentType: worker, {pod}}}");
        let prefill =
            format!("{{name: prefill, componentType: prefiller, replicas: 1, multinode: {{nodeCount: 2}}, {pod}}}");
        let decode =
            format!("{{name: decode, componentType: decoder, replicas: 2, multinode: {{nodeCount: 4}}, {pod}}}");
        let router = "{name: router, componentType: router, strategy: pd-disaggregation, httproute: {}}".to_owned();
        let pair = format!("{prefill}, {decode}");
        let all = [worker.clone(), pair.clone(), format!("{worker}, {router}"), format!("{pair}, {router}")];
        for roles in all {
            let text = format!(
                "apiVersion: fusioninfer.io/v1alpha1\nkind: InferenceService\nmetadata: {{name: svc}}\nspec: {{roles: [{roles}]}}\n"
            );
            let documents = manifest::read("f.yaml", &text).unwrap();
            assert_eq!(lint::check(&documents[0]), [], "{text}");
            documents[0].parse::<InferenceService>().unwrap();
        }
    }

    #[test]
    fn unset_counts_are_one() {
        let role = Role::default();
        assert_eq!((role.replica_count(), role.node_count()), (1, 1));
    }
}
