//! The GPUs of this host, as `nvidia-smi` reports them, and their allocation to containers.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

/// Name of the extended resource.
pub(crate) const GPU_RESOURCE: &str = "nvidia.com/gpu";
/// Environment variable that lists the devices visible to a CUDA program; if it is empty, no device is visible.
pub(crate) const VISIBLE_DEVICES_ENV: &str = "CUDA_VISIBLE_DEVICES";

/// A GPU as `nvidia-smi` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub uuid: String,
    pub product: String,
    pub memory_mib: u32,
    /// Major and minor version.
    pub compute_capability: (u8, u8),
}

/// The GPUs of this host, and which of them are allocated.
#[derive(Debug, Clone, Default)]
pub(crate) struct GpuInventory {
    all: Arc<Vec<Gpu>>,
    allocated: Arc<Mutex<BTreeSet<String>>>,
}

/// The GPUs of a container. They are released when this value is dropped.
#[derive(Debug)]
pub(crate) struct GpuAllocation {
    pub uuids: Vec<String>,
    allocated: Arc<Mutex<BTreeSet<String>>>,
}

// === impl GpuInventory ===

impl GpuInventory {
    /// Runs `nvidia-smi`. If it is not installed, the inventory is empty.
    pub(crate) fn discover() -> Self {
        let fields = "--query-gpu=uuid,name,memory.total,compute_cap";
        let output = Command::new("nvidia-smi").args([fields, "--format=csv,noheader,nounits"]).output();
        let successful_output = output.ok().filter(|output| output.status.success());
        let text =
            successful_output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        Self { all: Arc::new(text.lines().filter_map(Gpu::parse).collect()), allocated: Arc::default() }
    }

    /// Returns all GPUs, allocated or not.
    pub(crate) fn all(&self) -> &[Gpu] {
        &self.all
    }

    /// Returns the node labels of GPU feature discovery. With several products, they describe the first one.
    pub(crate) fn labels(&self) -> Map<String, Value> {
        let Some(first_gpu) = self.all.first() else { return Map::new() };
        let label = |name: &str, value: String| (format!("nvidia.com/gpu.{name}"), json!(value));
        let (major, minor) = first_gpu.compute_capability;
        Map::from_iter([
            label("present", "true".to_owned()),
            label("product", first_gpu.product.replace(' ', "-")),
            label("count", self.all.len().to_string()),
            label("memory", first_gpu.memory_mib.to_string()),
            label("family", family(first_gpu.compute_capability).to_owned()),
            label("compute.major", major.to_string()),
            label("compute.minor", minor.to_string()),
        ])
    }

    /// Allocates `count` free GPUs, or returns `None` if fewer are free. The scheduler only counts GPUs: a terminating
    /// container may still use some of them.
    pub(crate) fn allocate(&self, count: usize) -> Option<GpuAllocation> {
        let mut allocated = self.allocated.lock().unwrap_or_else(PoisonError::into_inner);
        let free_uuids = self.all.iter().map(|gpu| gpu.uuid.clone()).filter(|uuid| !allocated.contains(uuid));
        let uuids: Vec<String> = free_uuids.take(count).collect();
        if uuids.len() < count {
            return None;
        }
        allocated.extend(uuids.iter().cloned());
        drop(allocated);
        Some(GpuAllocation { uuids, allocated: Arc::clone(&self.allocated) })
    }
}

// === impl GpuAllocation ===

impl Drop for GpuAllocation {
    fn drop(&mut self) {
        let mut allocated = self.allocated.lock().unwrap_or_else(PoisonError::into_inner);
        for uuid in &self.uuids {
            allocated.remove(uuid);
        }
    }
}

// === impl Gpu ===

impl Gpu {
    /// Parses a line such as `GPU-5f…, NVIDIA H100 80GB HBM3, 81559, 9.0`.
    fn parse(line: &str) -> Option<Self> {
        let mut columns = line.split(',').map(str::trim);
        let (uuid, product, memory) = (columns.next()?, columns.next()?, columns.next()?);
        let (major, minor) = columns.next()?.split_once('.')?;
        Some(Self {
            uuid: uuid.to_owned(),
            product: product.to_owned(),
            memory_mib: memory.parse().ok()?,
            compute_capability: (major.parse().ok()?, minor.parse().ok()?),
        })
    }
}

/// Returns the GPU family of a compute capability, as GPU feature discovery names it.
fn family(compute_capability: (u8, u8)) -> &'static str {
    match compute_capability {
        (7, 5) => "turing",
        (7, _) => "volta",
        (8, 9) => "ada-lovelace",
        (8, _) => "ampere",
        (9, _) => "hopper",
        (10 | 12, _) => "blackwell",
        _ => "undefined",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_gpus() -> GpuInventory {
        let lines = "GPU-a, NVIDIA H100 80GB HBM3, 81559, 9.0\nGPU-b, NVIDIA H100 80GB HBM3, 81559, 9.0\nNo devices";
        GpuInventory { all: Arc::new(lines.lines().filter_map(Gpu::parse).collect()), allocated: Arc::default() }
    }

    #[test]
    fn labels_match_gpu_feature_discovery() {
        let labels = two_gpus().labels();
        assert_eq!(labels["nvidia.com/gpu.product"], "NVIDIA-H100-80GB-HBM3");
        assert_eq!(
            (&labels["nvidia.com/gpu.count"], &labels["nvidia.com/gpu.family"]),
            (&json!("2"), &json!("hopper"))
        );
    }

    #[test]
    fn allocates_each_gpu_once() {
        let gpus = two_gpus();
        let first = gpus.allocate(1).unwrap();
        assert_eq!(first.uuids, ["GPU-a"]);
        assert_eq!(gpus.allocate(1).unwrap().uuids, ["GPU-b"]);
        assert!(gpus.allocate(2).is_none());
        drop(first);
        assert_eq!(gpus.allocate(2).unwrap().uuids, ["GPU-a", "GPU-b"]);
    }
}
