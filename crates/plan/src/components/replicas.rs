//! How many replicas of a component, and what moves the number.

use api::ome::{Component, ScaleMetric as ApiMetric};
use decide::reason::Warning;

use crate::code;
use crate::topology::{Replicas, ScaleMetric};

/// Utilization at which components scale that state no target, in percent of the request.
const TARGET: u32 = 80;

/// The service's own numbers win over the runtime's; a service that fixes `min` above the runtime's `max` lifts it. What
/// only KEDA could do is said (`AutoscalerUnavailable`) and left at the least number that serves.
pub(super) fn of(runtime: &Component, service: &Component, component: &str, warnings: &mut Vec<Warning>) -> Replicas {
    let count = |value: Option<i32>| value.map(|value| value.max(0).unsigned_abs());
    let mut unavailable = |message: String| {
        warnings.push(Warning::new(code::warning::AUTOSCALER_UNAVAILABLE, format!("{component}: {message}")));
    };
    let mut min = count(service.min_replicas.or(runtime.min_replicas)).unwrap_or(1);
    if min == 0 {
        unavailable("minReplicas 0 needs KEDA or an activator to wake it; one replica stays".to_owned());
        min = 1;
    }
    let mut max = count(service.max_replicas.or(runtime.max_replicas)).unwrap_or(min).max(min);
    let metric = match service.scale_metric.or(runtime.scale_metric).unwrap_or_default() {
        ApiMetric::Cpu => ScaleMetric::Cpu,
        ApiMetric::Memory => ScaleMetric::Memory,
        other @ (ApiMetric::Concurrency | ApiMetric::Rps) => {
            if max > min {
                let name = if other == ApiMetric::Rps { "rps" } else { "concurrency" };
                unavailable(format!("scaleMetric {name} needs KEDA: {min} replicas, not scaled up to {max}"));
            }
            max = min;
            ScaleMetric::Cpu
        }
    };
    let target = count(service.scale_target.or(runtime.scale_target)).unwrap_or(TARGET);
    Replicas { min, max, metric, target }
}
