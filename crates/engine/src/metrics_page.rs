//! `/metrics` in vLLM's order and format. Metrics of the Python process and web framework are not simulated.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    metrics::{
        Histogram, MetricValues, SLEEP_OPERATION_BUCKETS,
        families::{FAMILIES, Family, MetricType},
    },
    simulator::Simulator,
    sleep::SleepLevel,
};

/// Renders all metrics of `engine` in the Prometheus text format.
pub(crate) fn render(engine: &Simulator) -> String {
    let values = engine.metrics.values();
    let mut encoder = TextEncoder { text: String::with_capacity(32 * 1024), engine, values: &values };
    for family in FAMILIES {
        encoder.write_family(family);
    }
    encoder.write_cache_config();
    encoder.write_sleep_operations();
    encoder.text
}

/// Encodes metric families in the Prometheus text format.
struct TextEncoder<'a> {
    text: String,
    engine: &'a Simulator,
    values: &'a MetricValues,
}

// Writing to a String cannot fail, so the results of `write!` are ignored.
impl TextEncoder<'_> {
    fn write_family(&mut self, family: &Family) {
        match family.kind {
            MetricType::Counter => {
                self.write_header(family.name, family.help, "counter");
                self.write_series(family, family.name, |encoder, label| {
                    encoder.values.counters.get(&(family.name, label)).copied().unwrap_or(0.0)
                });
                self.write_created(family, family.name.trim_end_matches("_total"));
            }
            MetricType::Gauge => {
                self.write_header(family.name, family.help, "gauge");
                self.write_series(family, family.name, |encoder, label| encoder.gauge_value(family.name, label));
            }
            MetricType::Histogram(bounds) => {
                self.write_header(family.name, family.help, "histogram");
                self.write_histogram(family.name, bounds);
                self.write_created(family, family.name);
            }
        }
    }

    fn write_header(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn write_series(&mut self, family: &Family, name: &str, value: impl Fn(&Self, &'static str) -> f64) {
        let (key, label_values) = family.label.unwrap_or(("", &[""]));
        for label in label_values {
            let labels = self.format_labels(family.name, key, label);
            let value = format_value(value(self, label));
            let _ = writeln!(self.text, "{name}{{{labels}}} {value}");
        }
    }

    fn write_created(&mut self, family: &Family, stem: &str) {
        let name = format!("{stem}_created");
        self.write_header(&name, family.help, "gauge");
        self.write_series(family, &name, |encoder, _| encoder.engine.started_at as f64);
    }

    fn write_histogram(&mut self, name: &str, bounds: &[f64]) {
        let histogram = self.values.histograms.get(name).cloned().unwrap_or_default();
        self.write_buckets(name, bounds, &histogram, |encoder, key, value| encoder.format_labels(name, key, value));
    }

    /// Writes the series of one histogram. `labels` returns its labels with an additional one unless the key is empty.
    fn write_buckets(
        &mut self,
        name: &str,
        bounds: &[f64],
        histogram: &Histogram,
        labels: impl Fn(&Self, &str, &str) -> String,
    ) {
        let mut cumulative = 0;
        for (index, bound) in bounds.iter().copied().chain([f64::INFINITY]).enumerate() {
            cumulative += histogram.buckets.get(index).copied().unwrap_or(0);
            let labels = labels(self, "le", &format_value(bound));
            let _ = writeln!(self.text, "{name}_bucket{{{labels}}} {}", format_value(cumulative as f64));
        }
        let labels = labels(self, "", "");
        let _ = writeln!(self.text, "{name}_count{{{labels}}} {}", format_value(histogram.count as f64));
        let _ = writeln!(self.text, "{name}_sum{{{labels}}} {}", format_value(histogram.sum));
    }

    /// Writes the metrics of sleep-mode operations, which have no labels of the engine. vLLM has them after the first
    /// operation.
    fn write_sleep_operations(&mut self) {
        let operations = &self.values.sleep_operations;
        if operations.is_empty() {
            return;
        }
        let (durations, in_flight) =
            ("vllm:sleep_mode_operation_duration_seconds", "vllm:sleep_mode_operations_in_flight");
        let help = "Duration of one sleep-mode operation.";
        self.write_header(durations, help, "histogram");
        for (operation, calls) in operations {
            self.write_buckets(durations, SLEEP_OPERATION_BUCKETS, &calls.durations, |_, key, value| match key {
                "" => format!("operation=\"{operation}\""),
                _ => format!("{key}=\"{value}\",operation=\"{operation}\""),
            });
        }
        let created = format!("{durations}_created");
        self.write_header(&created, help, "gauge");
        for (operation, calls) in operations {
            let created_at = format_value(calls.created as f64);
            let _ = writeln!(self.text, "{created}{{operation=\"{operation}\"}} {created_at}");
        }
        self.write_header(in_flight, "Sleep-mode operations currently awaited.", "gauge");
        for (operation, calls) in operations {
            let count = format_value(calls.in_flight as f64);
            let _ = writeln!(self.text, "{in_flight}{{operation=\"{operation}\"}} {count}");
        }
    }

    /// Returns the labels sorted by name, as the Python client prints them. Admission counters have no `engine` label.
    fn format_labels(&self, family: &str, key: &str, value: &str) -> String {
        let mut labels = BTreeMap::from([("model_name", self.engine.config.default_model_name())]);
        if family != "vllm:admission_rejections_total" {
            labels.insert("engine", "0");
        }
        if !key.is_empty() {
            labels.insert(key, value);
        }
        let quoted: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape_label_value(value))).collect();
        quoted.join(",")
    }

    fn gauge_value(&self, name: &str, label: &str) -> f64 {
        let batch = &self.engine.batch;
        match (name, label) {
            ("vllm:num_requests_running", _) => batch.running() as f64,
            ("vllm:num_requests_waiting", _) | ("vllm:num_requests_waiting_by_reason", "capacity") => {
                batch.waiting() as f64
            }
            ("vllm:kv_cache_usage_perc", _) => self.engine.kv_cache_usage(),
            ("vllm:engine_sleep_state", state) => {
                let current = match self.engine.sleep_mode.level() {
                    None => "awake",
                    Some(SleepLevel::Pause) => "",
                    Some(SleepLevel::OffloadWeights) => "weights_offloaded",
                    Some(SleepLevel::DiscardAll) => "discard_all",
                };
                if state == current { 1.0 } else { 0.0 }
            }
            _ => 0.0,
        }
    }

    fn write_cache_config(&mut self) {
        let config = &self.engine.config;
        self.write_header("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge");
        let _ = writeln!(
            self.text,
            "vllm:cache_config_info{{block_size=\"{}\",enable_prefix_caching=\"True\",engine=\"0\",gpu_memory_utilization=\"{}\",kv_cache_size_tokens=\"{}\",num_gpu_blocks=\"{}\"}} 1.0",
            config.block_size,
            config.gpu_memory_utilization,
            config.kv_cache_tokens(),
            config.num_gpu_blocks,
        );
    }
}

fn escape_label_value(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Formats a value as Python does: integers end in `.0`, infinity is `+Inf`.
fn format_value(value: f64) -> String {
    match value {
        _ if value == f64::INFINITY => "+Inf".to_owned(),
        _ if value.fract() == 0.0 => format!("{value:.1}"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, RequestMemory, metrics::SleepOperation, sleep::InFlightPolicy};
    use std::{collections::BTreeSet, sync::Arc};

    const RECORDED: &str = include_str!("../tests/data/metrics-idle.txt");

    /// Returns the names and labels of all series, and the TYPE lines.
    fn series_and_types(page: &str) -> BTreeSet<String> {
        let lines = page.lines().filter(|line| line.contains("vllm:") && !line.contains("# HELP"));
        lines
            .filter(|line| !line.contains("cache_config_info{") && !line.contains("lora_requests_info"))
            .map(
                |line| {
                    if line.starts_with('#') { line.to_owned() } else { line.rsplit_once(' ').unwrap().0.to_owned() }
                },
            )
            .collect()
    }

    fn simulator(config: Config) -> Arc<Simulator> {
        Simulator::new(config, RequestMemory::default(), None)
    }

    #[test]
    fn idle_engine_has_exactly_the_recorded_series() {
        let engine = simulator(Config { served_model_names: vec!["tiny".to_owned()], ..Config::new("/models/base") });
        let (actual, recorded) = (series_and_types(&render(&engine)), series_and_types(RECORDED));
        assert_eq!(actual.symmetric_difference(&recorded).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[tokio::test]
    async fn sleeping_engine_has_the_recorded_series() {
        let engine = simulator(Config { served_model_names: vec!["tiny".to_owned()], ..Config::new("/models/base") });
        let recording = engine.metrics.start_sleep_operation(SleepOperation::Sleep);
        assert!(render(&engine).contains("vllm:sleep_mode_operations_in_flight{operation=\"sleep\"} 1.0"));
        engine.fall_asleep(SleepLevel::OffloadWeights, InFlightPolicy::Abort).await;
        drop(recording);
        let (page, recorded) = (render(&engine), include_str!("../tests/data/metrics-asleep.txt"));
        let difference: Vec<_> =
            series_and_types(&page).symmetric_difference(&series_and_types(recorded)).cloned().collect();
        assert!(difference.is_empty(), "{difference:?}");
        let states = |page: &str| {
            page.lines().filter(|l| l.starts_with("vllm:engine_sleep_state{")).map(str::to_owned).collect()
        };
        let (actual, recorded): (Vec<String>, Vec<String>) = (states(&page), states(recorded));
        assert_eq!(actual, recorded);
        assert!(page.contains("vllm:sleep_mode_operation_duration_seconds_count{operation=\"sleep\"} 1.0"));
    }

    #[test]
    fn histograms_are_cumulative() {
        let engine = simulator(Config::new("m"));
        for value in [0.5, 3.0, 5000.0] {
            engine.metrics.observe("vllm:request_prompt_tokens", value);
        }
        let page = render(&engine);
        for line in [
            "vllm:request_prompt_tokens_bucket{engine=\"0\",le=\"1.0\",model_name=\"m\"} 1.0",
            "vllm:request_prompt_tokens_bucket{engine=\"0\",le=\"1000.0\",model_name=\"m\"} 2.0",
            "vllm:request_prompt_tokens_bucket{engine=\"0\",le=\"+Inf\",model_name=\"m\"} 3.0",
            "vllm:request_prompt_tokens_sum{engine=\"0\",model_name=\"m\"} 5003.5",
        ] {
            assert!(page.contains(line), "{line}");
        }
    }
}
