//! Number of replicas of a role, fixed or autoscaled.

use api::Duration;

/// Range of replicas and the autoscaler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaRange {
    /// Minimum; 0 only if the autoscaler or the gateway can scale from zero.
    pub min: u32,
    /// Maximum; equal to `min` without an autoscaler.
    pub max: u32,
    pub scaler: Scaler,
    /// Time without requests after which the gateway scales to zero replicas; `None` if it does not.
    pub idle_timeout: Option<Duration>,
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
        let scaler = Scaler::Utilization { metric: ResourceMetric::Cpu, target: 80 };
        Self { min: count, max: count, scaler, idle_timeout: None }
    }

    /// Returns whether others than the operator manage the number of replicas: an autoscaler, or the gateway.
    pub(crate) fn is_managed_by_others(&self) -> bool {
        self.max > self.min
    }

    /// Returns whether an autoscaler manages the number of replicas, once the gateway has started the first one.
    pub(crate) fn has_autoscaler(&self) -> bool {
        self.max > if self.idle_timeout.is_some() { 1 } else { self.min }
    }
}
