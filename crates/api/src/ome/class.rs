//! AcceleratorClass: one kind of accelerator, how to find its nodes, what it can do and costs.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Quantity, condition::Condition, memory::AcceleratorMemory, openapi};

/// An accelerator class of the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "AcceleratorClass",
    plural = "acceleratorclasses",
    shortname = "aclass",
    category = "inference",
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
    transform = required,
    extend("x-kubernetes-validations" = [{
        "rule": "has(self.discovery) || has(self.nodeSelector)",
        "message": "discovery is required; say which nodes have the accelerator, such as `discovery: {nodeSelector: {nvidia.com/gpu.product: …}}`",
    }])
)]
pub struct AcceleratorClassSpec {
    /// nvidia, amd, intel, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// ampere, hopper, cdna2, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// a100, h100, mi250x, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How to find the nodes that have it.
    #[serde(default)]
    pub discovery: AcceleratorDiscovery,
    /// What one accelerator can do.
    #[serde(default)]
    pub capabilities: AcceleratorCapabilities,
    /// Extended resources that expose it; the first that is not a fraction is requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<AcceleratorResource>,
    /// Names of this class in other systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integration: Option<AcceleratorIntegration>,
    /// What it costs, in dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<AcceleratorCost>,
    /// Story 3 of seed 000 writes the selector here; read through [`Self::selector`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

impl AcceleratorClassSpec {
    /// Labels of the class's nodes: `discovery.nodeSelector`, with `spec.nodeSelector` below it.
    pub fn selector(&self) -> BTreeMap<String, String> {
        let mut merged = self.node_selector.clone();
        merged.extend(self.discovery.node_selector.clone());
        merged
    }
}

/// The resource that a vendor's device plugin advertises whole accelerators under; `None` for a vendor that is not known,
/// whose classes must state their `resources`.
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

/// The vendor of a class that says nothing of it: a vendor is needed for nothing else.
pub const USUAL_VENDOR: &str = "nvidia";

/// The vendor whose tools put such a label on nodes.
pub fn vendor_of_label(key: &str) -> Option<&'static str> {
    const DOMAINS: [(&str, &str); 6] = [
        ("nvidia.com/", "nvidia"),
        ("amd.com/", "amd"),
        ("habana.ai/", "habana"),
        ("intel.com/", "intel"),
        ("cloud.google.com/gke-tpu", "google"),
        ("huawei.com/", "huawei"),
    ];
    let names = |domain: &str| key.strip_prefix(domain).is_some() || key.contains(&format!(".{domain}"));
    DOMAINS.iter().find(|(domain, _)| names(domain)).map(|(_, vendor)| *vendor)
}

/// Patterns that identify nodes; selector and terms are ORed, an empty discovery matches no node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorDiscovery {
    /// A node matches when it has every one of these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// NodeSelectorTerms; `Gte`, `Lte`, `Gt`, `Lt` may carry quantities (`24Gi`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::objects")]
    pub node_selector_terms: Vec<Value>,
    /// Deployed upstream field: a Kubernetes Affinity.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub affinity: Option<Value>,
    /// PCI vendor, such as `10de` for NVIDIA.
    #[serde(rename = "pciVendorID", skip_serializing_if = "Option::is_none")]
    pub pci_vendor_id: Option<String>,
    /// PCI devices of that vendor, such as `20b0`; matched on nodes that publish PCI ids.
    #[serde(default, rename = "deviceIDs", skip_serializing_if = "Vec::is_empty")]
    pub device_ids: Vec<String>,
}

/// What an accelerator has, or must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = openapi::accept(&[
    ("computeCapability", &["minComputeCapability"]),
    ("features", &["requiredFeatures"]),
]))]
pub struct AcceleratorCapabilities {
    /// Memory of one accelerator; a bare number is GiB, as GPUs are sold.
    #[serde(default, rename = "memoryGB", skip_serializing_if = "Option::is_none")]
    pub memory: Option<AcceleratorMemory>,
    /// Dotted number, such as `9.0`; also read as `minComputeCapability`.
    #[serde(default, alias = "minComputeCapability", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::capability")]
    pub compute_capability: Option<String>,
    /// Clock of the device, in MHz.
    #[schemars(range(min = 0))]
    #[serde(rename = "clockSpeedMHz", skip_serializing_if = "Option::is_none")]
    pub clock_speed_mhz: Option<i32>,
    /// GB/s.
    #[serde(default, rename = "memoryBandwidthGBps", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::number_or_string")]
    pub memory_bandwidth: Option<Quantity>,
    /// Also read as `requiredFeatures`; compared without case.
    #[serde(default, alias = "requiredFeatures", skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Peak throughput by number format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub performance: Option<AcceleratorPerformance>,
    /// AMD only: version of ROCm, such as `5.7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rocm_version: Option<String>,
    /// Intel only: version of Level Zero, such as `1.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level_zero_version: Option<String>,
}

/// Peak throughput of one accelerator, in units of 10^12 operations per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = openapi::accept(&[
    ("fp32TFLOPS", &["fp32Tflops"]),
    ("fp16TFLOPS", &["fp16Tflops"]),
    ("fp8TFLOPS", &["fp8Tflops"]),
    ("int8TOPS", &["int8Tops"]),
    ("int4TOPS", &["int4Tops"]),
]))]
pub struct AcceleratorPerformance {
    /// Single precision, TFLOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "fp32TFLOPS", alias = "fp32Tflops", skip_serializing_if = "Option::is_none")]
    pub fp32: Option<f64>,
    /// Half precision, TFLOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "fp16TFLOPS", alias = "fp16Tflops", skip_serializing_if = "Option::is_none")]
    pub fp16: Option<f64>,
    /// 8-bit floating point, TFLOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "fp8TFLOPS", alias = "fp8Tflops", skip_serializing_if = "Option::is_none")]
    pub fp8: Option<f64>,
    /// 8-bit integers, TOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "int8TOPS", alias = "int8Tops", skip_serializing_if = "Option::is_none")]
    pub int8: Option<f64>,
    /// 4-bit integers, TOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "int4TOPS", alias = "int4Tops", skip_serializing_if = "Option::is_none")]
    pub int4: Option<f64>,
    /// Deployed upstream field, without effect.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub latency: Option<Value>,
}

/// An extended resource that exposes the accelerator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorResource {
    /// Such as `nvidia.com/gpu`.
    #[schemars(length(min = 1, max = 317))]
    pub name: String,
    /// Per accelerator; 1 if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::count", extend("default" = "1"))]
    pub quantity: Option<Quantity>,
    /// Whether the resource is a fraction of the accelerator.
    #[schemars(extend("default" = false))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divisible: Option<bool>,
}

/// Names of this class in other systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorIntegration {
    /// A Kueue ResourceFlavor to keep in step with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kueue_resource_flavor: Option<String>,
    /// Kept, without effect.
    #[serde(rename = "volcanoGPUType", skip_serializing_if = "Option::is_none")]
    pub volcano_gpu_type: Option<String>,
}

/// Prices in dollars.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorCost {
    /// One accelerator, one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::number_or_string")]
    pub per_hour: Option<Quantity>,
    /// One million tokens; used where no hourly price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::number_or_string")]
    pub per_million_tokens: Option<Quantity>,
    /// Counts only where `perHour` is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::number_or_string")]
    pub spot_per_hour: Option<Quantity>,
    /// low, medium or high.
    #[schemars(extend("enum" = ["low", "medium", "high"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

/// What the cluster has of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorClassStatus {
    /// Names of the nodes that match, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Ready, schedulable nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_nodes: Option<i32>,
    /// Accelerators of all matching nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_accelerators: Option<i32>,
    /// Allocatable less the requests of Pods that have not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_accelerators: Option<i32>,
    /// RFC 3339; moves only with the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
    /// `Ready` and `NodesMatched`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
}

/// Seed 000 requires `capabilities`; offline they default to nothing known, so no default may reach the API server.
fn required(schema: &mut schemars::Schema) {
    for field in ["capabilities", "discovery"] {
        if let Some(field) = schema.pointer_mut(&format!("/properties/{field}")).and_then(Value::as_object_mut) {
            field.remove("default");
        }
    }
    schema.insert("required".to_owned(), serde_json::json!(["capabilities"]));
}
