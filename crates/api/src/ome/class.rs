//! AcceleratorClass: one type of accelerator with its node selection, capabilities and cost.

use std::collections::BTreeMap;

use apimachinery::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{condition::Condition, memory::AcceleratorMemory, openapi};

/// A type of accelerator in the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "AcceleratorClass",
    plural = "acceleratorclasses",
    shortname = "aclass",
    category = "inference-catalog",
    status = "AcceleratorClassStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Vendor","type":"string","jsonPath":".spec.vendor"}"#,
    printcolumn = r#"{"name":"Family","type":"string","jsonPath":".spec.family"}"#,
    printcolumn = r#"{"name":"Memory","type":"string","jsonPath":".spec.capabilities.memoryGB"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.availableNodes"}"#,
    printcolumn = r#"{"name":"Free","type":"integer","jsonPath":".status.availableAccelerators"}"#,
    printcolumn = r#"{"name":"Total","type":"integer","jsonPath":".status.totalAccelerators"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = require_capabilities,
    extend("x-kubernetes-validations" = [{
        "rule": "has(self.discovery) || has(self.nodeSelector)",
        "message": "discovery is required; select the nodes with the accelerator, such as `discovery: {nodeSelector: {nvidia.com/gpu.product: …}}`",
    }])
)]
pub struct AcceleratorClassSpec {
    /// Vendor, such as `nvidia`, `amd` or `intel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Architecture family, such as `ampere`, `hopper` or `cdna2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Model, such as `a100`, `h100` or `mi250x`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Selects the nodes that have the accelerator.
    #[serde(default)]
    pub discovery: AcceleratorDiscovery,
    /// Capabilities of one accelerator.
    #[serde(default)]
    pub capabilities: AcceleratorCapabilities,
    /// Extended resources that expose the accelerator; Pods request the first one that is not divisible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<AcceleratorResource>,
    /// Names of the class in other systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integration: Option<AcceleratorIntegration>,
    /// Cost of the accelerator, in dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<AcceleratorCost>,
    /// Labels of the nodes that have the accelerator, in addition to `discovery.nodeSelector`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

/// Selects nodes. Selector and terms are ORed; an empty discovery matches no node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorDiscovery {
    /// Labels that a node must have to match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Kubernetes NodeSelectorTerms; `Gte`, `Lte`, `Gt` and `Lt` also accept quantities, such as `24Gi`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::objects")]
    pub node_selector_terms: Vec<Value>,
    /// Upstream OME field: a Kubernetes Affinity.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub affinity: Option<Value>,
    /// PCI vendor ID, such as `10de` for NVIDIA.
    #[serde(rename = "pciVendorID", skip_serializing_if = "Option::is_none")]
    pub pci_vendor_id: Option<String>,
    /// PCI device IDs of that vendor, such as `20b0`; matched against node labels with PCI IDs.
    #[serde(default, rename = "deviceIDs", skip_serializing_if = "Vec::is_empty")]
    pub device_ids: Vec<String>,
}

/// Capabilities that an accelerator has, or must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = openapi::accept_aliases(&[
    ("computeCapability", &["minComputeCapability"]),
    ("features", &["requiredFeatures"]),
]))]
pub struct AcceleratorCapabilities {
    /// Memory of one accelerator; a number without a unit is GiB.
    #[serde(default, rename = "memoryGB", skip_serializing_if = "Option::is_none")]
    pub memory: Option<AcceleratorMemory>,
    /// Compute capability, such as `9.0`; alias `minComputeCapability`.
    #[serde(default, alias = "minComputeCapability", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::compute_capability")]
    pub compute_capability: Option<String>,
    /// Clock speed, in MHz.
    #[schemars(range(min = 0))]
    #[serde(rename = "clockSpeedMHz", skip_serializing_if = "Option::is_none")]
    pub clock_speed_mhz: Option<i32>,
    /// Memory bandwidth, in GB/s.
    #[serde(default, rename = "memoryBandwidthGBps", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::number_or_string")]
    pub memory_bandwidth: Option<Quantity>,
    /// Features, compared case-insensitively; alias `requiredFeatures`.
    #[serde(default, alias = "requiredFeatures", skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Peak throughput by number format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub performance: Option<AcceleratorPerformance>,
    /// AMD only: ROCm version, such as `5.7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rocm_version: Option<String>,
    /// Intel only: Level Zero version, such as `1.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level_zero_version: Option<String>,
}

/// Peak throughput of one accelerator, in 10^12 operations per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = openapi::accept_aliases(&[
    ("fp32TFLOPS", &["fp32Tflops"]),
    ("fp16TFLOPS", &["fp16Tflops"]),
    ("fp8TFLOPS", &["fp8Tflops"]),
    ("int8TOPS", &["int8Tops"]),
    ("int4TOPS", &["int4Tops"]),
]))]
pub struct AcceleratorPerformance {
    /// Single-precision throughput, in TFLOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "fp32TFLOPS", alias = "fp32Tflops", skip_serializing_if = "Option::is_none")]
    pub fp32: Option<f64>,
    /// Half-precision throughput, in TFLOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "fp16TFLOPS", alias = "fp16Tflops", skip_serializing_if = "Option::is_none")]
    pub fp16: Option<f64>,
    /// 8-bit floating-point throughput, in TFLOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "fp8TFLOPS", alias = "fp8Tflops", skip_serializing_if = "Option::is_none")]
    pub fp8: Option<f64>,
    /// 8-bit integer throughput, in TOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "int8TOPS", alias = "int8Tops", skip_serializing_if = "Option::is_none")]
    pub int8: Option<f64>,
    /// 4-bit integer throughput, in TOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "int4TOPS", alias = "int4Tops", skip_serializing_if = "Option::is_none")]
    pub int4: Option<f64>,
    /// Upstream OME field: latencies; accepted without effect.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub latency: Option<Value>,
}

/// An extended resource that exposes the accelerator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorResource {
    /// Name of the resource, such as `nvidia.com/gpu`.
    #[schemars(length(min = 1, max = 317))]
    pub name: String,
    /// Quantity of the resource per accelerator; 1 if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::count", extend("default" = "1"))]
    pub quantity: Option<Quantity>,
    /// Whether one unit of the resource is only a fraction of an accelerator.
    #[schemars(extend("default" = false))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divisible: Option<bool>,
}

/// Names of the class in other systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorIntegration {
    /// Kueue ResourceFlavor that is synchronized with the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kueue_resource_flavor: Option<String>,
    /// GPU type in Volcano; accepted without effect.
    #[serde(rename = "volcanoGPUType", skip_serializing_if = "Option::is_none")]
    pub volcano_gpu_type: Option<String>,
}

/// Prices in dollars.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorCost {
    /// Price of one accelerator per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::number_or_string")]
    pub per_hour: Option<Quantity>,
    /// Price per million tokens; used if no hourly price is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::number_or_string")]
    pub per_million_tokens: Option<Quantity>,
    /// Spot price of one accelerator per hour; used if `perHour` is unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::number_or_string")]
    pub spot_per_hour: Option<Quantity>,
    /// Cost tier: `low`, `medium` or `high`.
    #[schemars(extend("enum" = ["low", "medium", "high"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

/// Nodes and accelerators of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorClassStatus {
    /// Names of the matching nodes, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Number of matching nodes that are ready and schedulable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_nodes: Option<i32>,
    /// Number of accelerators of all matching nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_accelerators: Option<i32>,
    /// Number of free accelerators: allocatable minus the requests of Pods that have not terminated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_accelerators: Option<i32>,
    /// Time at which the status last changed, in RFC 3339 format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
    /// Conditions `Ready` and `NodesMatched`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
}

// === impl AcceleratorClassSpec ===

impl AcceleratorClassSpec {
    /// Returns the labels of the nodes of the class: `spec.nodeSelector`, overridden by `discovery.nodeSelector`.
    pub fn merged_node_selector(&self) -> BTreeMap<String, String> {
        let mut merged = self.node_selector.clone();
        merged.extend(self.discovery.node_selector.clone());
        merged
    }
}

/// Returns the extended resource that the device plugin of a vendor advertises; `None` for an unknown vendor, whose
/// classes must set `resources`.
pub fn vendor_resource(vendor: &str) -> Option<&'static str> {
    Some(match vendor.to_ascii_lowercase().as_str() {
        "nvidia" => "nvidia.com/gpu",
        "amd" => "amd.com/gpu",
        "intel" => "gpu.intel.com/i915",
        "habana" => "habana.ai/gaudi",
        "google" => "google.com/tpu",
        "aws" | "amazon" => "aws.amazon.com/neuron",
        "huawei" => "huawei.com/Ascend910",
        _ => return None,
    })
}

/// The vendor of a class that does not specify one.
pub const DEFAULT_VENDOR: &str = "nvidia";

/// Returns the vendor whose tools set a node label.
pub fn vendor_for_label(key: &str) -> Option<&'static str> {
    const DOMAINS: [(&str, &str); 6] = [
        ("nvidia.com/", "nvidia"),
        ("amd.com/", "amd"),
        ("habana.ai/", "habana"),
        ("intel.com/", "intel"),
        ("cloud.google.com/gke-tpu", "google"),
        ("huawei.com/", "huawei"),
    ];
    let has_domain = |domain: &str| key.strip_prefix(domain).is_some() || key.contains(&format!(".{domain}"));
    DOMAINS.iter().find(|(domain, _)| has_domain(domain)).map(|(_, vendor)| *vendor)
}

/// Makes `capabilities` required (seed 000) and removes its default, which applies to offline parsing only.
fn require_capabilities(schema: &mut schemars::Schema) {
    for field in ["capabilities", "discovery"] {
        if let Some(field) = schema.pointer_mut(&format!("/properties/{field}")).and_then(Value::as_object_mut) {
            field.remove("default");
        }
    }
    schema.insert("required".to_owned(), serde_json::json!(["capabilities"]));
}
