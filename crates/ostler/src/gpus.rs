//! The accelerators of this machine: what `nvidia-smi` says of them, and which container has which.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

/// The resource that stands for one.
pub(crate) const RESOURCE: &str = "nvidia.com/gpu";
/// Which devices a CUDA program sees; none when it is empty.
pub(crate) const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// One device, as `nvidia-smi` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub uuid: String,
    pub product: String,
    pub memory_mib: u32,
    /// Compute capability.
    pub compute: (u8, u8),
}

/// The devices, and those that are taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gpus {
    all: Arc<Vec<Gpu>>,
    taken: Arc<Mutex<BTreeSet<String>>>,
}

/// Devices of one container; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Grant {
    pub uuids: Vec<String>,
    taken: Arc<Mutex<BTreeSet<String>>>,
}

// === impl Gpus ===

impl Gpus {
    /// Asks `nvidia-smi`; a machine without it has none.
    pub(crate) fn discover() -> Self {
        let fields = "--query-gpu=uuid,name,memory.total,compute_cap";
        let asked = Command::new("nvidia-smi").args([fields, "--format=csv,noheader,nounits"]).output();
        let told = asked.ok().filter(|output| output.status.success());
        let text = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        Self { all: Arc::new(text.lines().filter_map(Gpu::read).collect()), taken: Arc::default() }
    }

    pub(crate) fn all(&self) -> &[Gpu] {
        &self.all
    }

    /// What GPU feature discovery would put on the node; of several products, the first one's.
    pub(crate) fn labels(&self) -> Map<String, Value> {
        let Some(first) = self.all.first() else { return Map::new() };
        let label = |name: &str, value: String| (format!("nvidia.com/gpu.{name}"), json!(value));
        let (major, minor) = first.compute;
        Map::from_iter([
            label("present", "true".to_owned()),
            label("product", first.product.replace(' ', "-")),
            label("count", self.all.len().to_string()),
            label("memory", first.memory_mib.to_string()),
            label("family", family(first.compute).to_owned()),
            label("compute.major", major.to_string()),
            label("compute.minor", minor.to_string()),
        ])
    }

    /// Takes so many that are free. `None` when there are fewer: the scheduler counts, so that some still are in use by
    /// whoever is about to end.
    pub(crate) fn take(&self, count: usize) -> Option<Grant> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.all.iter().map(|gpu| gpu.uuid.clone()).filter(|uuid| !taken.contains(uuid));
        let uuids: Vec<String> = free.take(count).collect();
        if uuids.len() < count {
            return None;
        }
        taken.extend(uuids.iter().cloned());
        drop(taken);
        Some(Grant { uuids, taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        for uuid in &self.uuids {
            taken.remove(uuid);
        }
    }
}

// === impl Gpu ===

impl Gpu {
    /// `GPU-5f…, NVIDIA H100 80GB HBM3, 81559, 9.0`
    fn read(line: &str) -> Option<Self> {
        let mut cells = line.split(',').map(str::trim);
        let (uuid, product, memory) = (cells.next()?, cells.next()?, cells.next()?);
        let (major, minor) = cells.next()?.split_once('.')?;
        Some(Self {
            uuid: uuid.to_owned(),
            product: product.to_owned(),
            memory_mib: memory.parse().ok()?,
            compute: (major.parse().ok()?, minor.parse().ok()?),
        })
    }
}

/// By compute capability, as GPU feature discovery names it.
fn family(compute: (u8, u8)) -> &'static str {
    match compute {
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

    fn two() -> Gpus {
        let lines = "GPU-a, NVIDIA H100 80GB HBM3, 81559, 9.0\nGPU-b, NVIDIA H100 80GB HBM3, 81559, 9.0\nNo devices";
        Gpus { all: Arc::new(lines.lines().filter_map(Gpu::read).collect()), taken: Arc::default() }
    }

    #[test]
    fn labels_are_those_of_feature_discovery() {
        let labels = two().labels();
        assert_eq!(labels["nvidia.com/gpu.product"], "NVIDIA-H100-80GB-HBM3");
        assert_eq!(
            (&labels["nvidia.com/gpu.count"], &labels["nvidia.com/gpu.family"]),
            (&json!("2"), &json!("hopper"))
        );
    }

    #[test]
    fn nobody_gets_a_device_that_another_has() {
        let gpus = two();
        let first = gpus.take(1).unwrap();
        assert_eq!(first.uuids, ["GPU-a"]);
        assert_eq!(gpus.take(1).unwrap().uuids, ["GPU-b"]);
        assert!(gpus.take(2).is_none());
        drop(first);
        assert_eq!(gpus.take(2).unwrap().uuids, ["GPU-a", "GPU-b"]);
    }
}
