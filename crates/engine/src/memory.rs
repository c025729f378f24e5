//! Memory of a simulated node: bytes of each accelerator and of the host, which the engines of the node share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use crate::sleep::{MemoryPart, SleepLevel};

/// Device memory that an engine does not release while it sleeps, such as the context of the driver.
const CONTEXT_BYTES: u64 = 1 << 30;

const GIB: f64 = (1_u64 << 30) as f64;

/// The memory of one node. Clones share it.
#[derive(Debug, Clone)]
pub struct NodeMemory(Arc<Mutex<NodePools>>);

#[derive(Debug)]
struct NodePools {
    /// Pools by device ID.
    devices: BTreeMap<String, Pool>,
    host: Pool,
}

/// A number of bytes, of which engines use some.
#[derive(Debug, Clone, Copy)]
struct Pool {
    total: u64,
    used: u64,
}

/// Where the memory of an engine is, and how much it needs.
#[derive(Debug, Clone)]
pub struct EngineMemory {
    /// Memory of the node of the engine.
    pub node: NodeMemory,
    /// IDs of the devices that the engine uses; those that the node does not have are ignored.
    pub devices: Vec<String>,
    /// Size of the weights on all devices together.
    pub weight_bytes: u64,
}

/// A memory error as vLLM reports it.
#[derive(Debug, Clone, PartialEq, Error)]
pub(crate) enum MemoryError {
    /// Another process uses memory that the engine needs to start.
    #[error(
        "ValueError: Free memory on device cuda:{device} ({free}/{total} GiB) on startup is less than desired GPU memory utilization ({utilization}, {requested} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        free = gib(*free), total = gib(*total), requested = gib(*requested)
    )]
    Startup { device: usize, free: u64, total: u64, utilization: f64, requested: u64 },
    /// Another process uses memory that the engine needs to wake up.
    #[error("RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:139")]
    WakeUp,
    /// The host has too little memory for the weights.
    #[error("RuntimeError: CUDA error: out of memory")]
    Offload,
}

/// The memory that an engine has allocated. It is freed when the value is dropped.
#[derive(Debug)]
pub(crate) struct Allocation {
    node: NodeMemory,
    /// Allocations by device ID.
    devices: BTreeMap<String, DeviceBytes>,
    parts: Mutex<Parts>,
}

/// Memory of an engine on one device.
#[derive(Debug, Clone, Copy)]
struct DeviceBytes {
    context: u64,
    weights: u64,
    kv_cache: u64,
}

/// Where the parts of the memory are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parts {
    weights: WeightLocation,
    has_kv_cache: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WeightLocation {
    Device,
    Host,
    Discarded,
}

// === impl NodeMemory ===

impl NodeMemory {
    /// Returns unused memory: `devices` are bytes by device ID.
    pub fn new(devices: impl IntoIterator<Item = (String, u64)>, host_bytes: u64) -> Self {
        let pool = |total| Pool { total, used: 0 };
        let devices = devices.into_iter().map(|(id, total)| (id, pool(total))).collect();
        Self(Arc::new(Mutex::new(NodePools { devices, host: pool(host_bytes) })))
    }

    /// Whether an engine, or another clone, refers to this memory.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn pools(&self) -> MutexGuard<'_, NodePools> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Pool ===

impl Pool {
    fn free(self) -> u64 {
        self.total.saturating_sub(self.used)
    }
}

// === impl EngineMemory ===

impl EngineMemory {
    /// Allocates the fraction `utilization` of each device.
    ///
    /// # Errors
    /// A device has less free memory.
    pub(crate) fn allocate(&self, utilization: f64) -> Result<Allocation, MemoryError> {
        let mut pools = self.node.pools();
        let mut devices = BTreeMap::new();
        let known: Vec<&String> = self.devices.iter().filter(|id| pools.devices.contains_key(*id)).collect();
        for (device, id) in known.iter().enumerate() {
            let Some(pool) = pools.devices.get(*id).copied() else { continue };
            let requested = (pool.total as f64 * utilization).ceil() as u64;
            let free = pool.free();
            if free < requested {
                return Err(MemoryError::Startup { device, free, total: pool.total, utilization, requested });
            }
            let bytes = DeviceBytes::new(requested, self.weight_bytes / known.len() as u64);
            devices.insert((*id).clone(), bytes);
        }
        for (id, bytes) in &devices {
            if let Some(pool) = pools.devices.get_mut(id) {
                pool.used += bytes.context + bytes.weights + bytes.kv_cache;
            }
        }
        drop(pools);
        let parts = Parts { weights: WeightLocation::Device, has_kv_cache: true };
        Ok(Allocation { node: self.node.clone(), devices, parts: Mutex::new(parts) })
    }
}

// === impl DeviceBytes ===

impl DeviceBytes {
    /// Divides `total` bytes: the KV cache gets what context and weights leave.
    fn new(total: u64, weights: u64) -> Self {
        let context = CONTEXT_BYTES.min(total);
        let weights = weights.min(total - context);
        Self { context, weights, kv_cache: total - context - weights }
    }

    fn used(self, parts: Parts) -> u64 {
        let weights = if parts.weights == WeightLocation::Device { self.weights } else { 0 };
        self.context + weights + if parts.has_kv_cache { self.kv_cache } else { 0 }
    }
}

// === impl Allocation ===

impl Allocation {
    /// Releases what a sleep at `level` releases.
    ///
    /// # Errors
    /// The host has too little memory for the weights.
    pub(crate) fn release(&self, level: SleepLevel) -> Result<(), MemoryError> {
        let current = *self.parts();
        let weights = match (level, current.weights) {
            (SleepLevel::Pause, location) => location,
            (SleepLevel::OffloadWeights, WeightLocation::Discarded) | (SleepLevel::DiscardAll, _) => {
                WeightLocation::Discarded
            }
            (SleepLevel::OffloadWeights, _) => WeightLocation::Host,
        };
        let has_kv_cache = current.has_kv_cache && level == SleepLevel::Pause;
        self.change(Parts { weights, has_kv_cache }, MemoryError::Offload)
    }

    /// Restores `parts`.
    ///
    /// # Errors
    /// A device has too little free memory.
    pub(crate) fn restore(&self, parts: &[MemoryPart]) -> Result<(), MemoryError> {
        let mut restored = *self.parts();
        for part in parts {
            match part {
                MemoryPart::Weights => restored.weights = WeightLocation::Device,
                MemoryPart::KvCache => restored.has_kv_cache = true,
            }
        }
        self.change(restored, MemoryError::WakeUp)
    }

    /// Moves the parts, or returns `error` and moves nothing if there is too little memory.
    fn change(&self, new: Parts, error: MemoryError) -> Result<(), MemoryError> {
        let (mut pools, mut parts) = (self.node.pools(), self.parts());
        let old = *parts;
        let is_sufficient = |pool: &Pool, old: u64, new: u64| new.saturating_sub(old) <= pool.free();
        let devices_fit = self.devices.iter().all(|(id, bytes)| {
            pools.devices.get(id).is_none_or(|pool| is_sufficient(pool, bytes.used(old), bytes.used(new)))
        });
        if !devices_fit || !is_sufficient(&pools.host, self.host_bytes(old), self.host_bytes(new)) {
            return Err(error);
        }
        for (id, bytes) in &self.devices {
            if let Some(pool) = pools.devices.get_mut(id) {
                pool.used = pool.used - bytes.used(old) + bytes.used(new);
            }
        }
        pools.host.used = pools.host.used - self.host_bytes(old) + self.host_bytes(new);
        *parts = new;
        Ok(())
    }

    fn host_bytes(&self, parts: Parts) -> u64 {
        let weights = self.devices.values().map(|bytes| bytes.weights).sum();
        if parts.weights == WeightLocation::Host { weights } else { 0 }
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let (mut pools, parts) = (self.node.pools(), *self.parts());
        for (id, bytes) in &self.devices {
            if let Some(pool) = pools.devices.get_mut(id) {
                pool.used -= bytes.used(parts);
            }
        }
        pools.host.used -= self.host_bytes(parts);
    }
}

/// Formats bytes as vLLM does: GiB with at most two decimals.
fn gib(bytes: u64) -> String {
    let rounded = (bytes as f64 / GIB * 100.0).round() / 100.0;
    if rounded.fract() == 0.0 { format!("{rounded:.1}") } else { rounded.to_string() }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const fn gibs(count: u64) -> u64 {
        count << 30
    }

    /// Two devices of 80 GiB and 40 GiB of host memory.
    fn node() -> NodeMemory {
        NodeMemory::new([("a".to_owned(), gibs(80)), ("b".to_owned(), gibs(80))], gibs(40))
    }

    fn engine(node: &NodeMemory, devices: &[&str]) -> EngineMemory {
        let devices = devices.iter().map(|id| (*id).to_owned()).collect();
        EngineMemory { node: node.clone(), devices, weight_bytes: gibs(30) }
    }

    fn used(node: &NodeMemory) -> [u64; 3] {
        let pools = node.pools();
        [pools.devices["a"].used, pools.devices["b"].used, pools.host.used].map(|bytes| bytes >> 30)
    }

    #[test]
    fn second_engine_starts_when_the_first_sleeps_or_ends() {
        let node = node();
        let first = engine(&node, &["a"]).allocate(0.75).unwrap();
        assert_eq!(used(&node), [60, 0, 0]);
        let error = engine(&node, &["a"]).allocate(0.9).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ValueError: Free memory on device cuda:0 (20.0/80.0 GiB) on startup is less than desired GPU memory utilization \
             (0.9, 72.0 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
        );
        first.release(SleepLevel::OffloadWeights).unwrap();
        assert_eq!(used(&node), [1, 0, 30]);
        let second = engine(&node, &["a"]).allocate(0.9).unwrap();
        let error = first.restore(&[MemoryPart::Weights, MemoryPart::KvCache]).unwrap_err();
        assert_eq!(error, MemoryError::WakeUp);
        assert_eq!(used(&node), [73, 0, 30]);
        drop(second);
        first.restore(&[MemoryPart::Weights]).unwrap();
        assert_eq!(used(&node), [31, 0, 0]);
        first.restore(&[MemoryPart::KvCache]).unwrap();
        assert_eq!(used(&node), [60, 0, 0]);
        drop(first);
        assert_eq!(used(&node), [0, 0, 0]);
    }

    #[test]
    fn engine_on_several_devices_needs_all_of_them() {
        let node = node();
        let _first = engine(&node, &["b"]).allocate(0.5).unwrap();
        let error = engine(&node, &["a", "b"]).allocate(0.9).unwrap_err();
        assert!(matches!(error, MemoryError::Startup { device: 1, .. }), "{error}");
        assert_eq!(used(&node), [0, 40, 0]);
        let second = engine(&node, &["a", "b"]).allocate(0.5).unwrap();
        second.release(SleepLevel::OffloadWeights).unwrap();
        assert_eq!(used(&node), [1, 41, 30]);
    }

    #[rstest]
    #[case::pause(SleepLevel::Pause, [60, 0, 0])]
    #[case::offload(SleepLevel::OffloadWeights, [1, 0, 30])]
    #[case::discard(SleepLevel::DiscardAll, [1, 0, 0])]
    fn levels_release_memory(#[case] level: SleepLevel, #[case] expected: [u64; 3]) {
        let node = node();
        let engine = engine(&node, &["a"]).allocate(0.75).unwrap();
        engine.release(level).unwrap();
        assert_eq!(used(&node), expected);
        drop(engine);
        assert_eq!(used(&node), [0, 0, 0]);
    }

    #[test]
    fn weights_need_host_memory() {
        let node = node();
        let [first, second] = ["a", "b"].map(|id| engine(&node, &[id]).allocate(0.75).unwrap());
        first.release(SleepLevel::OffloadWeights).unwrap();
        assert_eq!(second.release(SleepLevel::OffloadWeights), Err(MemoryError::Offload));
        assert_eq!(used(&node), [1, 60, 30]);
        second.release(SleepLevel::DiscardAll).unwrap();
    }

    #[rstest]
    #[case::rounded(gibs(2) + (3 << 28), "2.75")]
    #[case::integer(gibs(79), "79.0")]
    #[case::two_decimals(gibs(80) / 3, "26.67")]
    fn formats_gibibytes(#[case] bytes: u64, #[case] expected: &str) {
        assert_eq!(gib(bytes), expected);
    }
}
