//! How many replicas of a component, and what moves the number.

use api::ome::{Component, InferenceServiceSpec, ScaleMetric as ApiMetric};
use decide::reason::Warning;
use serde_json::{Value, json};

use crate::code;
use crate::topology::{Autoscalers, Disruption, Owner, Replicas, ScaleMetric, Scaler};

/// Utilization at which components scale that state no target, in percent of the request.
const UTILIZATION: u32 = 80;
/// Requests, or requests a second, for which one replica is, where nobody states them: upstream's.
const THRESHOLD: u32 = 10;

/// What a component's numbers follow from.
pub(super) struct Scaling<'a> {
    pub owner: &'a Owner,
    pub spec: &'a InferenceServiceSpec,
    pub runtime: &'a Component,
    pub service: &'a Component,
    /// `engine`, `decoder` or `router`.
    pub component: &'static str,
    /// Name of the replica set; its Pods' names begin with it.
    pub workload: String,
    /// As launch lines show it; its metrics are what a query asks for.
    pub engine: Option<&'static str>,
    pub autoscalers: Autoscalers,
}

impl Scaling<'_> {
    /// The service's own numbers win over the runtime's; a service that fixes `min` above the runtime's `max` lifts it.
    /// What needs an autoscaler that is not there is told (`AutoscalerUnavailable`) and left at the least number that
    /// serves.
    pub(super) fn replicas(&self, warnings: &mut Vec<Warning>) -> Replicas {
        let count = |value: Option<i32>| value.map(|value| value.max(0).unsigned_abs());
        let min = count(self.service.min_replicas.or(self.runtime.min_replicas)).unwrap_or(1);
        let max = count(self.service.max_replicas.or(self.runtime.max_replicas)).unwrap_or(min).max(min).max(1);
        let target = count(self.service.scale_target.or(self.runtime.scale_target));
        let metric = self.service.scale_metric.or(self.runtime.scale_metric).unwrap_or_default();
        let by_use = |metric| Ok(Scaler::Utilization { metric, target: target.unwrap_or(UTILIZATION) });
        let scaler = match metric {
            ApiMetric::Cpu => by_use(ScaleMetric::Cpu),
            ApiMetric::Memory => by_use(ScaleMetric::Memory),
            ApiMetric::Concurrency | ApiMetric::Rps => self.by_query(metric, target),
        };
        let (min, least) = (self.least(min, &scaler, warnings), min.max(1));
        match scaler {
            Ok(scaler) => Replicas { min, max: max.max(min), scaler },
            Err(why) => {
                if max > least {
                    self.unavailable(format!("{why}: {least} replicas, not scaled up to {max}"), warnings);
                }
                Replicas::fixed(least)
            }
        }
    }

    /// What drains leave: the service's word over the runtime's, one Pod away at a time where nobody says anything.
    pub(super) fn disruption(&self) -> Disruption {
        let stated = |component: &Component| {
            let least = component.min_available.clone().map(Disruption::MinAvailable);
            least.or_else(|| component.max_unavailable.clone().map(Disruption::MaxUnavailable))
        };
        stated(self.service).or_else(|| stated(self.runtime)).unwrap_or(Disruption::MaxUnavailable(json!(1)))
    }

    /// No engine counts requests while none runs: only a query of the user's own can wake the first one.
    fn least(&self, min: u32, scaler: &Result<Scaler, String>, warnings: &mut Vec<Warning>) -> u32 {
        let wakes = matches!(scaler, Ok(Scaler::Prometheus { .. })) && self.keda("customPromQuery").is_some();
        if min > 0 || wakes {
            return min;
        }
        let told = match self.autoscalers {
            Autoscalers::Resources => "minReplicas 0 needs KEDA or an activator to wake it; one replica stays",
            Autoscalers::Keda => {
                "minReplicas 0 needs scaleMetric concurrency or rps and a kedaConfig.customPromQuery that counts requests while nothing runs; one replica stays"
            }
        };
        self.unavailable(told.to_owned(), warnings);
        1
    }

    /// KEDA by a count of requests, or why that is not possible.
    fn by_query(&self, metric: ApiMetric, target: Option<u32>) -> Result<Scaler, String> {
        let name = if metric == ApiMetric::Rps { "rps" } else { "concurrency" };
        if self.autoscalers == Autoscalers::Resources {
            return Err(format!("scaleMetric {name} needs KEDA"));
        }
        let text = |field: &str| self.keda(field).as_ref().and_then(Value::as_str).map(str::to_owned);
        let server = text("promServerAddress").ok_or_else(|| {
            format!("scaleMetric {name} needs kedaConfig.promServerAddress, the Prometheus that KEDA asks")
        })?;
        let query = text("customPromQuery").or_else(|| self.query(metric)).ok_or_else(|| {
            format!("scaleMetric {name} needs kedaConfig.customPromQuery: what this engine counts is not known")
        })?;
        let stated = text("scalingThreshold").filter(|_| target.is_none());
        let threshold = stated.unwrap_or_else(|| target.unwrap_or(THRESHOLD).to_string());
        Ok(Scaler::Prometheus { server, query, threshold })
    }

    /// What the Pods of this replica set count, by the names that their engine gives it.
    fn query(&self, metric: ApiMetric) -> Option<String> {
        let pods = format!("{{namespace=\"{}\",pod=~\"{}-.*\"}}", self.owner.namespace, self.workload);
        let (counters, served): (&[&str], &str) = match self.engine? {
            "vllm" => (&["vllm:num_requests_running", "vllm:num_requests_waiting"], "vllm:request_success_total"),
            "sglang" => (&["sglang:num_running_reqs", "sglang:num_queue_reqs"], "sglang:num_requests_total"),
            _ => return None,
        };
        Some(match metric {
            ApiMetric::Rps => format!("sum(rate({served}{pods}[1m]))"),
            _ => counters.iter().map(|counter| format!("sum({counter}{pods})")).collect::<Vec<_>>().join(" + "),
        })
    }

    /// A field of `kedaConfig`: of the service's component, the service, or the runtime.
    fn keda(&self, field: &str) -> Option<Value> {
        let all = [&self.service.keda_config, &self.spec.keda_config, &self.runtime.keda_config];
        all.into_iter().flatten().map(|config| &config[field]).find(|value| !value.is_null()).cloned()
    }

    fn unavailable(&self, message: String, warnings: &mut Vec<Warning>) {
        let message = format!("{}: {message}", self.component);
        warnings.push(Warning::new(code::warning::AUTOSCALER_UNAVAILABLE, message));
    }
}
