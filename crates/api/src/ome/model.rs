//! BaseModel and ClusterBaseModel: a model with its properties and storage.

use std::collections::BTreeMap;
use std::ops::Deref;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{openapi, parameter_count::ParameterCount};

/// A model that services can serve.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "BaseModel",
    plural = "basemodels",
    namespaced,
    category = "inference-catalog",
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
    /// Human-readable name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Vendor of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Version of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether the model is disabled; services cannot use a disabled model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Format of the weights, such as `safetensors`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_format: Option<VersionedName>,
    /// Framework of the model, such as `transformers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_framework: Option<VersionedName>,
    /// Architecture, such as `LlamaForCausalLM`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_architecture: Option<String>,
    /// The `model_type` in the `config.json` of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// Quantization, such as `fp8`, `fbgemm_fp8` or `int4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// Number of parameters, such as `7.24B`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_parameter_size: Option<ParameterCount>,
    /// Capabilities, such as TEXT_GENERATION or EMBEDDING.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model_capabilities: Vec<String>,
    /// API capabilities, such as CHAT or COMPLETION.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_capabilities: Vec<String>,
    /// Contents of the `config.json` of the model.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub model_configuration: Option<Value>,
    /// Pipeline of a diffusion model; must equal that of the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub diffusion_pipeline: Option<Value>,
    /// Storage of the model files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<ModelStorage>,
    /// Serving modes, such as On-demand or Dedicated; accepted without effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serving_mode: Vec<String>,
    /// Maximum context length, in tokens.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<i64>,
    /// Compartment ID; accepted without effect.
    #[serde(rename = "compartmentID", skip_serializing_if = "Option::is_none")]
    pub compartment_id: Option<String>,
    /// Additional metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_metadata: BTreeMap<String, String>,
}

/// A cluster-scoped model that services in all namespaces can serve.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "ClusterBaseModel",
    plural = "clusterbasemodels",
    category = "inference-catalog",
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

/// A format or framework with a version and a comparison operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionedName {
    /// Name, such as `safetensors` or `TensorFlow SavedModel`; names of formats are compared without case.
    pub name: String,
    /// Version: `major[.minor[.patch]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::version")]
    pub version: Option<String>,
    /// Operator that compares the version of the runtime (left) with that of the model (right); `Equal` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<VersionOperator>,
    /// Upstream OME field: weight; accepted without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// Comparison of the version of a runtime with that of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum VersionOperator {
    /// The versions are equal.
    #[default]
    Equal,
    /// The version of the runtime is greater.
    GreaterThan,
    /// The version of the runtime is greater or equal.
    GreaterThanOrEqual,
}

/// Storage of the model files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelStorage {
    /// URI, such as `hf://org/name`, `pvc://claim/path` or `file:///path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_uri: Option<String>,
    /// Directory on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Schema path; accepted without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_path: Option<String>,
    /// Name of the Secret key with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Storage parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Labels of the nodes that have the files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Kubernetes NodeAffinity of the nodes that have the files.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub node_affinity: Option<Value>,
    /// When the files are downloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download_policy: Option<DownloadPolicy>,
}

/// When the files are downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DownloadPolicy {
    /// Download on every start.
    AlwaysDownload,
    /// Download only if the files do not exist.
    ReuseIfExists,
}

/// Availability of the model on nodes, reported by a model agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BaseModelStatus {
    /// State of the model: Creating, Importing, In_Transit, In_Training, Ready or Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Lifecycle, such as Public, Deprecated or Experimental.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// Nodes that have the files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_ready: Vec<String>,
    /// Nodes that failed to download the files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_failed: Vec<String>,
}

// === impl ClusterBaseModelSpec ===

impl Deref for ClusterBaseModelSpec {
    type Target = BaseModelSpec;
    fn deref(&self) -> &BaseModelSpec {
        &self.0
    }
}
