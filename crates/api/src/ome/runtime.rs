//! ServingRuntime and ClusterServingRuntime: engine templates and the models that they support.

use std::collections::BTreeMap;
use std::ops::Deref;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AcceleratorConfiguration, AcceleratorModelConfig, AcceleratorRequirements, Component, VersionedName};
use crate::{openapi, parameter_count::ParameterCount};

/// A template of an engine for certain models.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "ServingRuntime",
    plural = "servingruntimes",
    namespaced,
    shortname = "srt",
    category = "inference-catalog",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled"}"#,
    printcolumn = r#"{"name":"Format","type":"string","jsonPath":".spec.supportedModelFormats[*].modelFormat.name"}"#,
    printcolumn = r#"{"name":"Architecture","type":"string","jsonPath":".spec.supportedModelFormats[*].modelArchitecture"}"#,
    printcolumn = r#"{"name":"Min","type":"string","jsonPath":".spec.modelSizeRange.min"}"#,
    printcolumn = r#"{"name":"Max","type":"string","jsonPath":".spec.modelSizeRange.max"}"#,
    printcolumn = r#"{"name":"Image","type":"string","jsonPath":".spec.engineConfig.runner.image","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ServingRuntimeSpec {
    /// Whether the runtime is disabled; services cannot use a disabled runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Models that the runtime supports; a model must match all attributes of one entry.
    #[schemars(length(max = 256))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supported_model_formats: Vec<SupportedModelFormat>,
    /// Model sizes that the runtime supports, in parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_size_range: Option<ModelSizeRange>,
    /// Protocols: openAI, cohere, openInference-v1 or openInference-v2; openAI if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::protocol_list")]
    pub protocol_versions: Vec<String>,
    /// Template of the engine.
    #[schemars(transform = default_one_replica)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_config: Option<Component>,
    /// Template of the decoder for disaggregated prefill and decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_config: Option<Component>,
    /// Template of the router in front of the engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_config: Option<Component>,
    /// Accelerators that the runtime requires and prefers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator_requirements: Option<AcceleratorRequirements>,
    /// Configuration per class; the configuration in the matching format and in the components takes precedence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accelerator_configurations: Vec<AcceleratorConfiguration>,
    /// Deprecated: containers of the engine; use `engineConfig.runner`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::containers")]
    pub containers: Vec<Value>,
    /// Deprecated: workers of a multi-node engine; use `engineConfig.worker`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub workers: Option<Value>,
    /// Labels that the nodes of the Pods must have; those of the components take precedence.
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
    /// Labels of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// All other PodSpec fields, unmodified.
    #[serde(flatten)]
    #[schemars(schema_with = "openapi::pod_fields")]
    pub pod: Map<String, Value>,
}

/// A cluster-scoped template of an engine for certain models.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "ClusterServingRuntime",
    plural = "clusterservingruntimes",
    shortname = "csrt",
    category = "inference-catalog",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled"}"#,
    printcolumn = r#"{"name":"Format","type":"string","jsonPath":".spec.supportedModelFormats[*].modelFormat.name"}"#,
    printcolumn = r#"{"name":"Architecture","type":"string","jsonPath":".spec.supportedModelFormats[*].modelArchitecture"}"#,
    printcolumn = r#"{"name":"Min","type":"string","jsonPath":".spec.modelSizeRange.min"}"#,
    printcolumn = r#"{"name":"Max","type":"string","jsonPath":".spec.modelSizeRange.max"}"#,
    printcolumn = r#"{"name":"Image","type":"string","jsonPath":".spec.engineConfig.runner.image","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(transparent)]
pub struct ClusterServingRuntimeSpec(pub ServingRuntimeSpec);

/// Models that a runtime supports; a model must match all specified attributes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportedModelFormat {
    /// Deprecated: name of the format; used if `modelFormat` is unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Deprecated: version of the format; used if `modelFormat` is unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::version")]
    pub version: Option<String>,
    /// Format of the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_format: Option<VersionedName>,
    /// Framework of the model; any if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_framework: Option<VersionedName>,
    /// Architecture, such as `LlamaForCausalLM`; any if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_architecture: Option<String>,
    /// Quantization, such as `fp8`; must equal that of the model, or be unset for both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// Deprecated upstream field: model type; accepted without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// Pipeline of a diffusion model; must equal that of the model.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub diffusion_pipeline: Option<Value>,
    /// Whether the runtime can be selected for services that do not specify a runtime.
    #[schemars(extend("default" = false))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_select: Option<bool>,
    /// Priority among equally suitable runtimes; higher values are preferred. At least 1.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Upstream OME field: configuration by class name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accelerator_config: BTreeMap<String, AcceleratorModelConfig>,
}

/// Inclusive range of model sizes in parameters; either bound is optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelSizeRange {
    /// Minimum number of parameters, such as `5B`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<ParameterCount>,
    /// Maximum number of parameters, such as `9B`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<ParameterCount>,
}

// === impl ClusterServingRuntimeSpec ===

impl Deref for ClusterServingRuntimeSpec {
    type Target = ServingRuntimeSpec;
    fn deref(&self) -> &ServingRuntimeSpec {
        &self.0
    }
}

// === impl SupportedModelFormat ===

impl SupportedModelFormat {
    /// Returns `modelFormat`, otherwise the deprecated `name` and `version`.
    pub fn format(&self) -> Option<VersionedName> {
        self.model_format.clone().or_else(|| {
            self.name.clone().map(|name| VersionedName {
                name,
                version: self.version.clone(),
                ..VersionedName::default()
            })
        })
    }
}

/// Sets the default of `minReplicas` for engines of runtimes only; components of services inherit it from the runtime.
fn default_one_replica(component: &mut schemars::Schema) {
    if let Some(replicas) = component.pointer_mut("/properties/minReplicas").and_then(Value::as_object_mut) {
        replicas.insert("default".to_owned(), Value::from(1));
    }
}
