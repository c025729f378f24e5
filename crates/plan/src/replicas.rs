//! Number of replicas of a role, fixed or autoscaled.

/// Range of replicas and the autoscaler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaRange {
    /// Minimum; 0 only if the autoscaler can scale from zero.
    pub min: u32,
    /// Maximum; equal to `min` without an autoscaler.
    pub max: u32,
    pub scaler: Scaler,
}

/// Metric source of an autoscaler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scaler {
    /// HorizontalPodAutoscaler on a resource metric; `target` in percent of the request.
    Utilization { metric: ResourceMetric, target: u32 },
    /// KEDA on a Prometheus query; `threshold` is the value per replica.
    Prometheus { server: String, query: String, threshold: String },
}

/// Resource metrics of a HorizontalPodAutoscaler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceMetric {
    Cpu,
    Memory,
}

/// Autoscalers that the cluster supports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AutoscalerSupport {
    /// HorizontalPodAutoscaler on CPU and memory only.
    #[default]
    HpaOnly,
    /// HorizontalPodAutoscaler and KEDA.
    HpaAndKeda,
}

// === impl ReplicaRange ===

impl ReplicaRange {
    /// Returns a fixed number of replicas.
    pub(crate) fn fixed(count: u32) -> Self {
        Self { min: count, max: count, scaler: Scaler::Utilization { metric: ResourceMetric::Cpu, target: 80 } }
    }

    /// Returns whether an autoscaler manages the number of replicas.
    pub(crate) fn is_autoscaled(&self) -> bool {
        self.max > self.min
    }
}
