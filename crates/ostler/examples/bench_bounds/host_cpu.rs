//! CPU time that a virtual machine does not receive.

use crate::result::Result;

/// Clock ticks of all CPUs since the start of the system.
pub(crate) struct HostCpu {
    total: u64,
    steal: u64,
}

// === impl HostCpu ===

impl HostCpu {
    /// Reads the first line of `/proc/stat` (proc(5)): `cpu user nice system idle iowait irq softirq steal guest guest_nice`.
    /// User and nice time include guest time.
    pub(crate) fn read() -> Result<Self> {
        let statistics = std::fs::read_to_string("/proc/stat")?;
        let line = statistics.lines().next().unwrap_or_default();
        let ticks = line.split_whitespace().skip(1).take(8).map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        Ok(Self { total: ticks.iter().sum(), steal: ticks.get(7).copied().unwrap_or_default() })
    }

    /// Returns the share of CPU time in percent that the hypervisor gave to other machines since `start`.
    pub(crate) fn steal_since(&self, start: &Self) -> f64 {
        let [total, steal] = [self.total - start.total, self.steal - start.steal].map(|ticks| ticks as f64);
        100.0 * steal / total.max(1.0)
    }
}
