//! Replica counts and autoscaling of a component.

use api::Duration;
use api::ome::{Component, InferenceServiceSpec, ScaleMetric as ApiMetric};
use decide::Warning;
use serde_json::{Value, json};

use crate::code;
use crate::labels;
use crate::owner::Owner;
use crate::plan_error::PlanError;
use crate::replicas::{AutoscalerSupport, ReplicaRange, ResourceMetric, Scaler};
use crate::role::Disruption;

/// Default target utilization, in percent of the request.
const DEFAULT_UTILIZATION: u32 = 80;
/// Default number of requests, or requests per second, for one replica, as in upstream OME.
const DEFAULT_THRESHOLD: u32 = 10;

/// Default time without requests after which the gateway scales to zero, as the `cooldownPeriod` of KEDA.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration(std::time::Duration::from_secs(300));

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
    /// Whether the Pods are engines that run in dual pods.
    pub uses_dual_pods: bool,
    /// Why the gateway cannot scale the component from zero, if so.
    pub activation_obstacle: Option<&'static str>,
}

/// Who scales a component from zero replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FromZero {
    /// It always has a replica.
    No,
    Autoscaler,
    /// It has no replica after this time without requests.
    Gateway(Duration),
}

impl ScalingInput<'_> {
    /// Returns the range of replicas and the autoscaler. The service takes precedence over the runtime; a `minReplicas` above
    /// the runtime's `maxReplicas` raises the maximum. If the requested autoscaling is unavailable, warns
    /// (`AutoscalerUnavailable`) and returns a fixed number.
    ///
    /// # Errors
    /// The annotation [`labels::IDLE_TIMEOUT`] is invalid.
    pub(super) fn replicas(&self, warnings: &mut Vec<Warning>) -> Result<ReplicaRange, PlanError> {
        if self.sleeps() {
            return Ok(ReplicaRange::fixed(0));
        }
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
        let idle_timeout = self.idle_timeout()?;
        let fixed = min.max(1);
        let from_zero = if min == 0 { self.scaling_from_zero(&scaler, idle_timeout, warnings) } else { FromZero::No };
        let range = match scaler {
            Ok(scaler) => {
                let min = if from_zero == FromZero::Autoscaler { 0 } else { fixed };
                ReplicaRange { min, max, scaler, idle_timeout: None }
            }
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
        };
        Ok(match from_zero {
            FromZero::Gateway(timeout) => ReplicaRange { min: 0, idle_timeout: Some(timeout), ..range },
            FromZero::Autoscaler | FromZero::No => range,
        })
    }

    /// Returns whether the service puts the engines of dual pods to sleep, also while there are requests.
    fn sleeps(&self) -> bool {
        self.uses_dual_pods && self.service.min_replicas == Some(0) && self.service.max_replicas == Some(0)
    }

    /// Returns the disruption budget. The service takes precedence over the runtime; the default is `maxUnavailable: 1`.
    pub(super) fn disruption(&self) -> Disruption {
        let budget = |component: &Component| {
            let min_available = component.min_available.clone().map(Disruption::MinAvailable);
            min_available.or_else(|| component.max_unavailable.clone().map(Disruption::MaxUnavailable))
        };
        budget(self.service).or_else(|| budget(self.runtime)).unwrap_or(Disruption::MaxUnavailable(json!(1)))
    }

    /// Returns who scales the component from zero. KEDA requires a custom query, because no engine reports metrics while no replica
    /// runs; the gateway receives the requests. Warns if none of them does.
    fn scaling_from_zero(
        &self,
        scaler: &Result<Scaler, String>,
        idle_timeout: Duration,
        warnings: &mut Vec<Warning>,
    ) -> FromZero {
        let obstacle = match (scaler, self.activation_obstacle) {
            (Ok(Scaler::Prometheus { .. }), _) if self.keda_config("customPromQuery").is_some() => {
                return FromZero::Autoscaler;
            }
            (Ok(Scaler::Prometheus { .. }), _) => {
                "with KEDA requires a kedaConfig.customPromQuery that counts requests while no replica runs"
            }
            (_, Some(obstacle)) => obstacle,
            (_, None) => return FromZero::Gateway(idle_timeout),
        };
        self.warn_unavailable(format!("minReplicas 0 {obstacle}; the minimum is 1 replica"), warnings);
        FromZero::No
    }

    /// Returns the time without requests after which the gateway scales to zero.
    fn idle_timeout(&self) -> Result<Duration, PlanError> {
        let Some(text) = self.owner.annotations.get(labels::IDLE_TIMEOUT) else { return Ok(DEFAULT_IDLE_TIMEOUT) };
        text.parse().map_err(|error| {
            let message = format!("metadata.annotations[{}]: {error}", labels::IDLE_TIMEOUT);
            PlanError::new(code::error::INVALID_ANNOTATION, message)
        })
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
