//! Names of extended resources that are accelerators.

/// Resource names under which device plugins advertise whole accelerators; classes may add others.
pub const ACCELERATOR_RESOURCES: [&str; 9] = [
    "amd.com/gpu",
    "aws.amazon.com/neuron",
    "google.com/tpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "huawei.com/Ascend910",
    "intel.com/gpu",
    "nvidia.com/gpu",
];

/// Returns whether a resource is an accelerator, a shared one (`nvidia.com/gpu.shared`) or a slice (`nvidia.com/mig-…`).
#[must_use]
pub fn is_accelerator_resource(name: &str) -> bool {
    let name = name.strip_suffix(".shared").unwrap_or(name);
    ACCELERATOR_RESOURCES.contains(&name) || name.starts_with("nvidia.com/mig-")
}
