//! BaseModel and ClusterBaseModel: what a model is and where its files are.

use std::collections::BTreeMap;
use std::ops::Deref;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{openapi, size::ParameterCount};

/// A model that services may name.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "BaseModel",
    plural = "basemodels",
    namespaced,
    category = "inference",
    status = "BaseModelStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Vendor","type":"string","jsonPath":".spec.vendor"}"#,
    printcolumn = r#"{"name":"Architecture","type":"string","jsonPath":".spec.modelArchitecture"}"#,
    printcolumn = r#"{"name":"Format","type":"string","jsonPath":".spec.modelFormat.name"}"#,
    printcolumn = r#"{"name":"Framework","type":"string","jsonPath":".spec.modelFramework.name","priority":1}"#,
    printcolumn = r#"{"name":"Size","type":"string","jsonPath":".spec.modelParameterSize"}"#,
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled","priority":1}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct BaseModelSpec {
    /// What people call the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Who made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// The vendor's version of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A disabled model is kept, and not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// How the weights are stored, such as `safetensors`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_format: Option<VersionedName>,
    /// The library that made them, such as `transformers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_framework: Option<VersionedName>,
    /// Such as `LlamaForCausalLM`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_architecture: Option<String>,
    /// The `model_type` of the model's `config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// Such as `fp8`, `fbgemm_fp8`, `int4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// Number of parameters, such as `7.24B`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_parameter_size: Option<ParameterCount>,
    /// Such as TEXT_GENERATION or EMBEDDING.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model_capabilities: Vec<String>,
    /// Such as CHAT or COMPLETION.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_capabilities: Vec<String>,
    /// The model's `config.json`, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub model_configuration: Option<Value>,
    /// The parts of a diffusion model; must be equal to those that the runtime states.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub diffusion_pipeline: Option<Value>,
    /// Where the files are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<ModelStorage>,
    /// Such as On-demand or Dedicated; kept, without effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serving_mode: Vec<String>,
    /// Longest context, in tokens.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<i64>,
    /// Kept, without effect.
    #[serde(rename = "compartmentID", skip_serializing_if = "Option::is_none")]
    pub compartment_id: Option<String>,
    /// Anything else worth keeping.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_metadata: BTreeMap<String, String>,
}

/// The same for the whole cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "ClusterBaseModel",
    plural = "clusterbasemodels",
    category = "inference",
    status = "BaseModelStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Vendor","type":"string","jsonPath":".spec.vendor"}"#,
    printcolumn = r#"{"name":"Architecture","type":"string","jsonPath":".spec.modelArchitecture"}"#,
    printcolumn = r#"{"name":"Format","type":"string","jsonPath":".spec.modelFormat.name"}"#,
    printcolumn = r#"{"name":"Framework","type":"string","jsonPath":".spec.modelFramework.name","priority":1}"#,
    printcolumn = r#"{"name":"Size","type":"string","jsonPath":".spec.modelParameterSize"}"#,
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled","priority":1}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(transparent)]
pub struct ClusterBaseModelSpec(pub BaseModelSpec);

impl Deref for ClusterBaseModelSpec {
    type Target = BaseModelSpec;
    fn deref(&self) -> &BaseModelSpec {
        &self.0
    }
}

/// A format or framework with its version, and how versions compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionedName {
    /// Compared as a whole, such as `safetensors` or `TensorFlow SavedModel`.
    pub name: String,
    /// `major[.minor[.patch]]`, kept as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::version")]
    pub version: Option<String>,
    /// Read as "runtime's version OP model's version"; `Equal` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<VersionOperator>,
    /// Deployed upstream field, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// How a runtime's version must stand to a model's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum VersionOperator {
    #[default]
    Equal,
    GreaterThan,
    GreaterThanOrEqual,
}

/// Where the model's files are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelStorage {
    /// Such as `hf://org/name`, `pvc://claim/path`, `file:///path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_uri: Option<String>,
    /// Directory on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Kept, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_path: Option<String>,
    /// Name of the Secret key with credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Parameters of the storage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Labels of the nodes that hold the files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// A Kubernetes NodeAffinity of the nodes that hold the files.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub node_affinity: Option<Value>,
    /// When the files are fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download_policy: Option<DownloadPolicy>,
}

/// When the files are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DownloadPolicy {
    AlwaysDownload,
    ReuseIfExists,
}

/// Where the model is present, as a model agent reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BaseModelStatus {
    /// Creating, Importing, In_Transit, In_Training, Ready or Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Such as Public, Deprecated or Experimental.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// Nodes that have the files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_ready: Vec<String>,
    /// Nodes that could not get them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_failed: Vec<String>,
}
