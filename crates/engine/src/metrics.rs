//! `/metrics` in vLLM's names. Process and web framework metrics of Python are not imitated.

mod families;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
};

use crate::simulator::Simulator;
use families::{FAMILIES, Family, Kind};

/// What has been counted since the start.
pub(crate) struct Metrics(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    /// Counters by family and value of the extra label (empty without one).
    counters: BTreeMap<(&'static str, &'static str), f64>,
    histograms: BTreeMap<&'static str, Histogram>,
}

#[derive(Default, Clone)]
struct Histogram {
    /// Observations per bucket, not cumulative; the last one is `+Inf`.
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    /// A prompt of `prompt` tokens was computed, `cached` of them from the cache.
    pub(crate) fn prefilled(&self, prompt: usize, cached: usize) {
        let (all, hits) = (prompt as f64, cached as f64);
        for (name, label, value) in [
            ("vllm:prompt_tokens_total", "", all),
            ("vllm:prefix_cache_queries_total", "", all),
            ("vllm:prefix_cache_hits_total", "", hits),
            ("vllm:prompt_tokens_cached_total", "", hits),
            ("vllm:prompt_tokens_cached_by_source_total", "device", hits),
            ("vllm:prompt_tokens_by_source_total", "local_cache_hit", hits),
            ("vllm:prompt_tokens_by_source_total", "local_compute", all - hits),
        ] {
            self.add(name, label, value);
        }
        self.observe("vllm:request_prefill_kv_computed_tokens", all - hits);
    }

    /// One token was generated.
    pub(crate) fn generated(&self) {
        self.add("vllm:generation_tokens_total", "", 1.0);
    }

    /// A request ended for `reason`.
    pub(crate) fn succeeded(&self, reason: &'static str) {
        self.add("vllm:request_success_total", reason, 1.0);
    }

    /// One observation of a histogram; unknown names are not kept.
    pub(crate) fn observe(&self, name: &'static str, value: f64) {
        let Some(bounds) = FAMILIES.iter().find(|family| family.name == name).and_then(Family::bounds) else { return };
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = counted.histograms.entry(name).or_default();
        histogram.buckets.resize(bounds.len() + 1, 0);
        let bucket = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        histogram.buckets[bucket] += 1;
        histogram.count += 1;
        histogram.sum += value;
    }

    fn add(&self, name: &'static str, label: &'static str, value: f64) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counted.counters.entry((name, label)).or_default() += value;
    }
}

impl Family {
    fn bounds(&self) -> Option<&'static [f64]> {
        match self.kind {
            Kind::Histogram(bounds) => Some(bounds),
            Kind::Counter | Kind::Gauge => None,
        }
    }
}

/// The whole page.
pub(crate) fn page(engine: &Simulator) -> String {
    let counted = engine.metrics.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut page = Page { text: String::with_capacity(32 * 1024), engine, counted: &counted };
    for family in FAMILIES {
        page.family(family);
    }
    page.cache_config();
    page.text
}

struct Page<'a> {
    text: String,
    engine: &'a Simulator,
    counted: &'a Counted,
}

// Writing to a String cannot fail; the results of `write!` are dropped for that reason.
impl Page<'_> {
    fn family(&mut self, family: &Family) {
        match family.kind {
            Kind::Counter => {
                self.head(family.name, family.help, "counter");
                self.series(family, family.name, |page, label| {
                    page.counted.counters.get(&(family.name, label)).copied().unwrap_or(0.0)
                });
                self.created(family, family.name.trim_end_matches("_total"));
            }
            Kind::Gauge => {
                self.head(family.name, family.help, "gauge");
                self.series(family, family.name, |page, label| page.gauge(family.name, label));
            }
            Kind::Histogram(bounds) => {
                self.head(family.name, family.help, "histogram");
                self.histogram(family.name, bounds);
                self.created(family, family.name);
            }
        }
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn series(&mut self, family: &Family, name: &str, value: impl Fn(&Self, &'static str) -> f64) {
        let (key, values) = family.by.unwrap_or(("", &[""]));
        for label in values {
            let labels = self.labels(family.name, key, label);
            let value = number(value(self, label));
            let _ = writeln!(self.text, "{name}{{{labels}}} {value}");
        }
    }

    fn created(&mut self, family: &Family, stem: &str) {
        let name = format!("{stem}_created");
        self.head(&name, family.help, "gauge");
        self.series(family, &name, |page, _| page.engine.started as f64);
    }

    fn histogram(&mut self, name: &str, bounds: &[f64]) {
        let histogram = self.counted.histograms.get(name).cloned().unwrap_or_default();
        let mut sum = 0;
        for (at, bound) in bounds.iter().copied().chain([f64::INFINITY]).enumerate() {
            sum += histogram.buckets.get(at).copied().unwrap_or(0);
            let labels = self.labels(name, "le", &number(bound));
            let _ = writeln!(self.text, "{name}_bucket{{{labels}}} {}", number(sum as f64));
        }
        let labels = self.labels(name, "", "");
        let _ = writeln!(self.text, "{name}_count{{{labels}}} {}", number(histogram.count as f64));
        let _ = writeln!(self.text, "{name}_sum{{{labels}}} {}", number(histogram.sum));
    }

    /// Labels sorted by name, as the Python client prints them. Admission counters carry no engine.
    fn labels(&self, family: &str, key: &str, value: &str) -> String {
        let mut labels = BTreeMap::from([("model_name", self.engine.config.base_name())]);
        if family != "vllm:admission_rejections_total" {
            labels.insert("engine", "0");
        }
        if !key.is_empty() {
            labels.insert(key, value);
        }
        let quoted: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        quoted.join(",")
    }

    fn gauge(&self, name: &str, label: &str) -> f64 {
        let batch = &self.engine.batch;
        match (name, label) {
            ("vllm:num_requests_running", _) => batch.running() as f64,
            ("vllm:num_requests_waiting", _) | ("vllm:num_requests_waiting_by_reason", "capacity") => {
                batch.waiting() as f64
            }
            ("vllm:kv_cache_usage_perc", _) => self.engine.kv_cache_usage(),
            ("vllm:engine_sleep_state", "awake") => 1.0,
            _ => 0.0,
        }
    }

    fn cache_config(&mut self) {
        let config = &self.engine.config;
        self.head("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge");
        let _ = writeln!(
            self.text,
            "vllm:cache_config_info{{block_size=\"{}\",enable_prefix_caching=\"True\",engine=\"0\",kv_cache_size_tokens=\"{}\",num_gpu_blocks=\"{}\"}} 1.0",
            config.block_size,
            config.block_size * config.kv_blocks,
            config.kv_blocks,
        );
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Python's notation: whole numbers carry `.0`, infinity is `+Inf`.
fn number(value: f64) -> String {
    match value {
        _ if value == f64::INFINITY => "+Inf".to_owned(),
        _ if value.fract() == 0.0 => format!("{value:.1}"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use std::collections::BTreeSet;

    const RECORDED: &str = include_str!("../tests/data/metrics-idle.txt");

    /// Names with label names of every series, and the TYPE lines.
    fn shape(page: &str) -> BTreeSet<String> {
        let ours = page.lines().filter(|line| line.contains("vllm:") && !line.contains("# HELP"));
        ours.filter(|line| !line.contains("cache_config_info{") && !line.contains("lora_requests_info"))
            .map(
                |line| {
                    if line.starts_with('#') { line.to_owned() } else { line.rsplit_once(' ').unwrap().0.to_owned() }
                },
            )
            .collect()
    }

    #[test]
    fn an_idle_page_has_exactly_the_recorded_series() {
        let engine = Simulator::new(Config { served_names: vec!["tiny".to_owned()], ..Config::new("/models/base") });
        let (ours, recorded) = (shape(&page(&engine)), shape(RECORDED));
        assert_eq!(ours.symmetric_difference(&recorded).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn histograms_are_cumulative() {
        let engine = Simulator::new(Config::new("m"));
        for value in [0.5, 3.0, 5000.0] {
            engine.metrics.observe("vllm:request_prompt_tokens", value);
        }
        let page = page(&engine);
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
