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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// Such as `fp8`, `fbgemm_fp8`, `int4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// Number of parameters, such as `7.24B`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_parameter_size: Option<ParameterCount>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model_capabilities: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_capabilities: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub model_configuration: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub diffusion_pipeline: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<ModelStorage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serving_mode: Vec<String>,
    /// Longest context, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<i64>,
    #[serde(rename = "compartmentID", skip_serializing_if = "Option::is_none")]
    pub compartment_id: Option<String>,
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
    pub name: String,
    /// `major[.minor[.patch]]`, kept as written; parse it with [`crate::version::Version`].
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_path: Option<String>,
    /// Name of the Secret key with credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub node_affinity: Option<Value>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_ready: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_failed: Vec<String>,
}
