//! Replica counts and autoscaling of a component.

use api::ome::{Component, InferenceServiceSpec, ScaleMetric as ApiMetric};
use decide::Warning;
use serde_json::{Value, json};

use crate::code;
use crate::owner::Owner;
use crate::replicas::{AutoscalerSupport, ReplicaRange, ResourceMetric, Scaler};
use crate::role::Disruption;

/// Default target utilization, in percent of the request.
const DEFAULT_UTILIZATION: u32 = 80;
/// Default number of requests, or requests per second, for one replica, as in upstream OME.
const DEFAULT_THRESHOLD: u32 = 10;

/// Input for the replica count of a component.
pub(super) struct ScalingInput<'a> {
    pub owner: &'a Owner,
    pub spec: &'a InferenceServiceSpec,
    pub runtime: &'a Component,
    pub service: &'a Component,
    /// `engine`, `decoder` or `router`.
    pub component: &'static str,
    /// Name of the workload, which is the prefix of its Pods' names.
    pub workload: String,
    /// Engine detected from the command; determines the metrics of the default query.
    pub engine: Option<&'static str>,
    pub autoscaler_support: AutoscalerSupport,
}

impl ScalingInput<'_> {
    /// Returns the range of replicas and the autoscaler. The service takes precedence over the runtime; a `minReplicas` above
    /// the runtime's `maxReplicas` raises the maximum. If the requested autoscaling is unavailable, warns
    /// (`AutoscalerUnavailable`) and returns a fixed number.
    pub(super) fn replicas(&self, warnings: &mut Vec<Warning>) -> ReplicaRange {
        let count = |value: Option<i32>| value.map(|value| value.max(0).unsigned_abs());
        let min = count(self.service.min_replicas.or(self.runtime.min_replicas)).unwrap_or(1);
        let max = count(self.service.max_replicas.or(self.runtime.max_replicas)).unwrap_or(min).max(min).max(1);
        let target = count(self.service.scale_target.or(self.runtime.scale_target));
        let metric = self.service.scale_metric.or(self.runtime.scale_metric).unwrap_or_default();
        let utilization = |metric| Ok(Scaler::Utilization { metric, target: target.unwrap_or(DEFAULT_UTILIZATION) });
        let scaler = match metric {
            ApiMetric::Cpu => utilization(ResourceMetric::Cpu),
            ApiMetric::Memory => utilization(ResourceMetric::Memory),
            ApiMetric::Concurrency | ApiMetric::Rps => self.prometheus_scaler(metric, target),
        };
        let (min, fixed) = (self.effective_minimum(min, &scaler, warnings), min.max(1));
        match scaler {
            Ok(scaler) => ReplicaRange { min, max: max.max(min), scaler },
            Err(reason) => {
                if max > fixed {
                    self.warn_unavailable(
                        format!(
                            "{reason}; running {fixed} replica{} instead of scaling up to {max}",
                            if fixed == 1 { "" } else { "s" }
                        ),
                        warnings,
                    );
                }
                ReplicaRange::fixed(fixed)
            }
        }
    }

    /// Returns the disruption budget. The service takes precedence over the runtime; the default is `maxUnavailable: 1`.
    pub(super) fn disruption(&self) -> Disruption {
        let budget = |component: &Component| {
            let min_available = component.min_available.clone().map(Disruption::MinAvailable);
            min_available.or_else(|| component.max_unavailable.clone().map(Disruption::MaxUnavailable))
        };
        budget(self.service).or_else(|| budget(self.runtime)).unwrap_or(Disruption::MaxUnavailable(json!(1)))
    }

    /// Returns the minimum number of replicas. Scaling from zero requires a custom query, because no engine reports
    /// metrics while no replica runs.
    fn effective_minimum(&self, min: u32, scaler: &Result<Scaler, String>, warnings: &mut Vec<Warning>) -> u32 {
        let scales_from_zero =
            matches!(scaler, Ok(Scaler::Prometheus { .. })) && self.keda_config("customPromQuery").is_some();
        if min > 0 || scales_from_zero {
            return min;
        }
        let message = match self.autoscaler_support {
            AutoscalerSupport::HpaOnly => {
                "minReplicas 0 requires KEDA, which is not installed; the minimum is 1 replica"
            }
            AutoscalerSupport::HpaAndKeda => {
                "minReplicas 0 requires scaleMetric concurrency or rps, and a kedaConfig.customPromQuery that counts requests while no replica runs; the minimum is 1 replica"
            }
        };
        self.warn_unavailable(message.to_owned(), warnings);
        1
    }

    /// Returns the KEDA scaler for a request metric, or the reason why it is not possible.
    fn prometheus_scaler(&self, metric: ApiMetric, target: Option<u32>) -> Result<Scaler, String> {
        let name = if metric == ApiMetric::Rps { "rps" } else { "concurrency" };
        if self.autoscaler_support == AutoscalerSupport::HpaOnly {
            return Err(format!("scaleMetric {name} requires KEDA, which is not installed"));
        }
        let text = |field: &str| self.keda_config(field).as_ref().and_then(Value::as_str).map(str::to_owned);
        let server = text("promServerAddress").ok_or_else(|| {
            format!("scaleMetric {name} requires kedaConfig.promServerAddress, the address of the Prometheus server")
        })?;
        let query = text("customPromQuery").or_else(|| self.default_query(metric)).ok_or_else(|| {
            format!("scaleMetric {name} requires kedaConfig.customPromQuery, because the metrics of this engine are not known")
        })?;
        let config_threshold = text("scalingThreshold").filter(|_| target.is_none());
        let threshold = config_threshold.unwrap_or_else(|| target.unwrap_or(DEFAULT_THRESHOLD).to_string());
        Ok(Scaler::Prometheus { server, query, threshold })
    }

    /// Returns the default Prometheus query: the engine metrics of this workload's Pods.
    fn default_query(&self, metric: ApiMetric) -> Option<String> {
        let pods = format!("{{namespace=\"{}\",pod=~\"{}-.*\"}}", self.owner.namespace, self.workload);
        let (gauges, success_counter): (&[&str], &str) = match self.engine? {
            "vllm" => (&["vllm:num_requests_running", "vllm:num_requests_waiting"], "vllm:request_success_total"),
            "sglang" => (&["sglang:num_running_reqs", "sglang:num_queue_reqs"], "sglang:num_requests_total"),
            _ => return None,
        };
        Some(match metric {
            ApiMetric::Rps => format!("sum(rate({success_counter}{pods}[1m]))"),
            _ => gauges.iter().map(|gauge| format!("sum({gauge}{pods})")).collect::<Vec<_>>().join(" + "),
        })
    }

    /// Returns a field of `kedaConfig`, looked up in the service's component, then the service, then the runtime.
    fn keda_config(&self, field: &str) -> Option<Value> {
        let configs = [&self.service.keda_config, &self.spec.keda_config, &self.runtime.keda_config];
        configs.into_iter().flatten().map(|config| &config[field]).find(|value| !value.is_null()).cloned()
    }

    fn warn_unavailable(&self, message: String, warnings: &mut Vec<Warning>) {
        let message = format!("The {} cannot be scaled as requested: {message}", self.component);
        warnings.push(Warning::new(code::warning::AUTOSCALER_UNAVAILABLE, message));
    }
}
