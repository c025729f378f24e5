//! ServingRuntime and ClusterServingRuntime: templates of engines and the models they serve.

use std::collections::BTreeMap;
use std::ops::Deref;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AcceleratorConfiguration, AcceleratorModelConfig, AcceleratorRequirements, Component, VersionedName};
use crate::{openapi, size::ParameterCount};

/// A template for engines that serve certain models.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "ServingRuntime",
    plural = "servingruntimes",
    namespaced,
    shortname = "srt",
    category = "inference",
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
    /// A disabled runtime is never used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The models that this runtime serves; one entry must match as a whole.
    #[schemars(length(max = 256))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supported_model_formats: Vec<SupportedModelFormat>,
    /// Model sizes this runtime serves, in parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_size_range: Option<ModelSizeRange>,
    /// openAI, cohere, openInference-v1, openInference-v2; openAI if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::protocol_list")]
    pub protocol_versions: Vec<String>,
    /// The engine.
    #[schemars(transform = one_replica)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_config: Option<Component>,
    /// The decoder of prefill/decode disaggregated serving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_config: Option<Component>,
    /// The router in front of the engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_config: Option<Component>,
    /// Which accelerators it needs and prefers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator_requirements: Option<AcceleratorRequirements>,
    /// Tuning per class, below that of the matching format and of the components.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accelerator_configurations: Vec<AcceleratorConfiguration>,
    /// Deprecated: containers of the engine; `engineConfig.runner` replaces it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::containers")]
    pub containers: Vec<Value>,
    /// Deprecated: workers of a multi-node engine; `engineConfig.worker` replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub workers: Option<Value>,
    /// Labels that the Pods' nodes must have, below those of the components.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// A Kubernetes Affinity, ANDed with those of the other layers.
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
    /// Every other PodSpec field, untouched.
    #[serde(flatten)]
    #[schemars(schema_with = "openapi::pod_fields")]
    pub pod: Map<String, Value>,
}

/// The same template for the whole cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "ClusterServingRuntime",
    plural = "clusterservingruntimes",
    shortname = "csrt",
    category = "inference",
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

impl Deref for ClusterServingRuntimeSpec {
    type Target = ServingRuntimeSpec;
    fn deref(&self) -> &ServingRuntimeSpec {
        &self.0
    }
}

/// One kind of model that a runtime serves; every attribute stated must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportedModelFormat {
    /// Deprecated: read when `modelFormat` is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Deprecated: read when `modelFormat` is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::version")]
    pub version: Option<String>,
    /// How the weights are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_format: Option<VersionedName>,
    /// The library that the model was made with; unstated accepts any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_framework: Option<VersionedName>,
    /// Such as `LlamaForCausalLM`; unstated accepts any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_architecture: Option<String>,
    /// Such as `fp8`; must be equal, or unset on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// Deprecated upstream field, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// The parts of a diffusion model; must be equal to the model's.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub diffusion_pipeline: Option<Value>,
    /// Whether a service that names no runtime may get this one.
    #[schemars(extend("default" = false))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_select: Option<bool>,
    /// Higher wins among runtimes that fit equally; greater than zero.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Deployed upstream field: tuning by class name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accelerator_config: BTreeMap<String, AcceleratorModelConfig>,
}

impl SupportedModelFormat {
    /// `modelFormat`, else the deprecated `name` and `version`.
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

/// Inclusive bounds in parameters; either may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelSizeRange {
    /// Smallest model in parameters, such as `5B`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<ParameterCount>,
    /// Largest model in parameters, such as `9B`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<ParameterCount>,
}

/// The engine's default, stated where it starts: a service's component inherits the runtime's number instead.
fn one_replica(component: &mut schemars::Schema) {
    if let Some(replicas) = component.pointer_mut("/properties/minReplicas").and_then(Value::as_object_mut) {
        replicas.insert("default".to_owned(), Value::from(1));
    }
}
