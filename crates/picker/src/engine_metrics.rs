//! Parses the engine metrics that scheduling needs from the Prometheus text format, in one pass over its lines.

use std::collections::BTreeSet;

use api::inference::ModelServer;

/// Metrics of one engine. Metrics that the engine does not expose are `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EngineMetrics {
    /// Number of queued requests.
    pub(crate) waiting: Option<f64>,
    /// Number of queued requests for which the engine has no capacity; others wait for a LoRA slot or for a remote KV cache.
    pub(crate) waiting_for_capacity: Option<f64>,
    /// Number of running requests.
    pub(crate) running: Option<f64>,
    /// Fraction of the KV cache in use, 0 to 1.
    pub(crate) kv_cache_usage: Option<f64>,
    /// Number of tokens that the prefix cache may contain, 0 if it is disabled.
    pub(crate) prefix_cache_tokens: Option<f64>,
    /// Name of the base model, if the engine labels its metrics with it.
    pub(crate) base_model: Option<String>,
    /// LoRA adapters.
    pub(crate) lora_adapters: Option<LoraAdapters>,
    /// Whether the engine sleeps: it accepts requests and does not respond.
    pub(crate) is_asleep: bool,
}

/// State of the LoRA adapters of one engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LoraAdapters {
    /// Maximum number of loaded adapters.
    pub(crate) slots: usize,
    /// Adapters with running requests.
    pub(crate) running: BTreeSet<String>,
    /// Adapters with queued requests.
    pub(crate) waiting: BTreeSet<String>,
}

// === impl EngineMetrics ===

impl EngineMetrics {
    /// Returns how many requests run, and how many wait because the engine can run no more; `None` if that is unknown.
    pub(crate) fn capacity(&self) -> Option<(usize, usize)> {
        // An engine that reports after each batch of embeddings runs nothing at that time.
        let running = self.running.filter(|running| *running > 0.0 || self.waiting == Some(0.0))?;
        let waits_for_slot = |adapters: &LoraAdapters| !adapters.waiting.is_subset(&adapters.running);
        let waiting = match self.waiting_for_capacity {
            Some(waiting) => waiting,
            None if self.lora_adapters.as_ref().is_some_and(waits_for_slot) => return None,
            None => self.waiting?,
        };
        Some((running as usize, waiting as usize))
    }
}

/// Parses the metrics of `model_server`; those of any model server if the page contains none of it. For several engines in one
/// process (`engine="0"`, `engine="1"`), returns the sums of their requests and the maximum of their KV cache usage.
pub(crate) fn parse_metrics(text: &str, model_server: ModelServer) -> EngineMetrics {
    let metrics = parse_series(text, &[metric_prefix(model_server)]);
    if metrics == EngineMetrics::default() { parse_series(text, &METRIC_PREFIXES) } else { metrics }
}

/// Parses the metrics whose names have one of `prefixes`.
fn parse_series(text: &str, prefixes: &[&str]) -> EngineMetrics {
    let mut metrics = EngineMetrics::default();
    let mut newest_timestamp = f64::NEG_INFINITY;
    let (mut tokens_per_block, mut blocks) = (None, None);
    for line in text.lines() {
        let Some((name, labels, value)) = parse_sample(line, prefixes) else { continue };
        match name {
            "vllm:num_requests_waiting" | "sglang:num_queue_reqs" | "trtllm_num_requests_waiting" => {
                add_to_sum(&mut metrics.waiting, value);
            }
            "vllm:num_requests_waiting_by_reason" if label_value(labels, "reason") == Some("capacity") => {
                add_to_sum(&mut metrics.waiting_for_capacity, value);
            }
            "vllm:num_requests_running" | "sglang:num_running_reqs" | "trtllm_num_requests_running" => {
                add_to_sum(&mut metrics.running, value);
                metrics.base_model = label_value(labels, "model_name").map(str::to_owned);
            }
            "nv_trt_llm_request_metrics" => match label_value(labels, "request_type") {
                Some("waiting") => add_to_sum(&mut metrics.waiting, value),
                Some("scheduled") => add_to_sum(&mut metrics.running, value),
                _ => {}
            },
            "vllm:kv_cache_usage_perc"
            | "vllm:gpu_cache_usage_perc"
            | "sglang:token_usage"
            | "trtllm_kv_cache_utilization" => update_max(&mut metrics.kv_cache_usage, value),
            "nv_trt_llm_kv_cache_block_metrics" if label_value(labels, "kv_cache_block_type") == Some("fraction") => {
                update_max(&mut metrics.kv_cache_usage, value);
            }
            "vllm:cache_config_info" | "sglang:cache_config_info" => {
                if let Some(tokens) = parse_cache_config(labels) {
                    add_to_sum(&mut metrics.prefix_cache_tokens, tokens);
                }
            }
            "trtllm_kv_cache_tokens_per_block" => tokens_per_block = Some(value),
            "trtllm_kv_cache_max_blocks" => blocks = Some(value),
            "nv_trt_llm_kv_cache_block_metrics" => match label_value(labels, "kv_cache_block_type") {
                Some("tokens_per") => tokens_per_block = Some(value),
                Some("max") => blocks = Some(value),
                _ => {}
            },
            // The value is the timestamp of the series; engines continue to expose outdated series.
            "vllm:lora_requests_info" if value > newest_timestamp => {
                newest_timestamp = value;
                metrics.lora_adapters = Some(parse_lora_adapters(labels));
            }
            "vllm:engine_sleep_state" => {
                let is_awake_series = label_value(labels, "sleep_state") == Some("awake");
                metrics.is_asleep |= is_awake_series == (value == 0.0);
            }
            _ => {}
        }
    }
    let tokens = tokens_per_block.zip(blocks).map(|(tokens, blocks)| tokens * blocks);
    metrics.prefix_cache_tokens = metrics.prefix_cache_tokens.or(tokens);
    metrics
}

/// Returns how many tokens the prefix cache with these labels may contain.
fn parse_cache_config(labels: &str) -> Option<f64> {
    if label_value(labels, "enable_prefix_caching") == Some("False") {
        return Some(0.0);
    }
    let label = |key| label_value(labels, key)?.parse::<f64>().ok().filter(|value| value.is_finite());
    let blocks = || Some(label("num_gpu_blocks").or(label("num_pages"))? * label("block_size").or(label("page_size"))?);
    // The tokens of models whose layers have caches of different kinds are not a multiple of those of a block.
    label("kv_cache_size_tokens").or_else(blocks)
}

/// Prefixes of the parsed metric names.
const METRIC_PREFIXES: [&str; 4] = ["vllm:", "sglang:", "trtllm_", "nv_trt_llm_"];

/// Returns the prefix of the metrics of a model server.
fn metric_prefix(model_server: ModelServer) -> &'static str {
    let [vllm, sglang, trtllm, triton] = METRIC_PREFIXES;
    match model_server {
        ModelServer::Vllm => vllm,
        ModelServer::Sglang => sglang,
        ModelServer::Trtllm => trtllm,
        ModelServer::Triton => triton,
    }
}

/// Returns the name, the labels (without braces) and the value of one line.
fn parse_sample<'a>(line: &'a str, prefixes: &[&str]) -> Option<(&'a str, &'a str, f64)> {
    if !prefixes.iter().any(|prefix| line.starts_with(prefix)) {
        return None;
    }
    let (name, labels, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, rest) = rest.rsplit_once('}')?;
            (name, labels, rest)
        }
        None => {
            let (name, rest) = line.split_once(' ')?;
            (name, "", rest)
        }
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some((name, labels, value))
}

fn add_to_sum(sum: &mut Option<f64>, value: f64) {
    *sum = Some(sum.unwrap_or(0.0) + value.max(0.0));
}

fn update_max(usage: &mut Option<f64>, value: f64) {
    *usage = Some(usage.unwrap_or(0.0).max(value.clamp(0.0, 1.0)));
}

fn parse_lora_adapters(labels: &str) -> LoraAdapters {
    let names = |key| {
        let listed = label_value(labels, key).unwrap_or_default().split(',');
        listed.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    LoraAdapters {
        slots: label_value(labels, "max_lora").and_then(|value| value.parse().ok()).unwrap_or(0),
        running: names("running_lora_adapters"),
        waiting: names("waiting_lora_adapters"),
    }
}

fn label_value<'a>(labels: &'a str, key: &str) -> Option<&'a str> {
    let is_name_start = |index: usize| index == 0 || labels.as_bytes()[index - 1] == b',';
    let is_label = |index: usize| is_name_start(index) && labels[index + key.len()..].starts_with("=\"");
    let (index, _) = labels.match_indices(key).find(|(index, _)| is_label(*index))?;
    labels[index + key.len() + 2..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const VLLM: ModelServer = ModelServer::Vllm;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    // spec: GW-26
    #[test]
    fn parses_vllm_metrics() {
        let metrics = parse_metrics(include_str!("../../engine/tests/data/metrics-loaded.txt"), VLLM);
        assert_eq!((metrics.waiting, metrics.running), (Some(16.0), Some(8.0)));
        assert_eq!(metrics.waiting_for_capacity, Some(16.0));
        assert_eq!(metrics.prefix_cache_tokens, Some(131_072.0));
        assert!((metrics.kv_cache_usage.unwrap() - 0.046_920_821).abs() < 1e-6);
        // According to the newest of three series, no adapter is loaded.
        assert_eq!(metrics.lora_adapters, Some(LoraAdapters { slots: 1, ..LoraAdapters::default() }));
    }

    #[rstest]
    #[case::reported(Some(3.0), Some(2.0), None, &[], Some((3, 2)))]
    #[case::idle(Some(0.0), Some(0.0), None, &[], Some((0, 0)))]
    #[case::between_batches(Some(0.0), Some(9.0), None, &[], None)]
    #[case::remote_kv_cache(Some(3.0), Some(2.0), Some(0.0), &[], Some((3, 0)))]
    #[case::lora_slots(Some(3.0), Some(2.0), None, &["c"], None)]
    #[case::running_adapter(Some(3.0), Some(2.0), None, &["a"], Some((3, 2)))]
    #[case::lora_slots_by_reason(Some(3.0), Some(2.0), Some(1.0), &["c"], Some((3, 1)))]
    #[case::unknown(None, Some(2.0), None, &[], None)]
    fn waiting_requests_show_that_an_engine_is_full(
        #[case] running: Option<f64>,
        #[case] waiting: Option<f64>,
        #[case] waiting_for_capacity: Option<f64>,
        #[case] waiting_adapters: &[&str],
        #[case] expect: Option<(usize, usize)>,
    ) {
        let adapters = LoraAdapters { slots: 2, running: names(&["a"]), waiting: names(waiting_adapters) };
        let lora_adapters = Some(adapters);
        let metrics =
            EngineMetrics { running, waiting, waiting_for_capacity, lora_adapters, ..EngineMetrics::default() };
        assert_eq!(metrics.capacity(), expect);
    }

    #[rstest]
    #[case::empty("", EngineMetrics::default())]
    #[case::no_labels("vllm:num_requests_waiting 3", EngineMetrics { waiting: Some(3.0), ..EngineMetrics::default() })]
    #[case::two_engines("vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} 4",
        EngineMetrics { running: Some(7.0), ..EngineMetrics::default() })]
    #[case::sglang("sglang:num_queue_reqs{model_name=\"m\"} 2.0\nsglang:token_usage{model_name=\"m\"} 0.5",
        EngineMetrics { waiting: Some(2.0), kv_cache_usage: Some(0.5), ..EngineMetrics::default() })]
    #[case::sglang_running("sglang:num_running_reqs{tp_rank=\"0\"} 5", EngineMetrics { running: Some(5.0), ..EngineMetrics::default() })]
    #[case::tensorrt("trtllm_num_requests_waiting 1\ntrtllm_num_requests_running 2\ntrtllm_kv_cache_utilization 0.25",
        EngineMetrics { waiting: Some(1.0), running: Some(2.0), kv_cache_usage: Some(0.25), ..EngineMetrics::default() })]
    #[case::triton("nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 4\n\
        nv_trt_llm_request_metrics{request_type=\"scheduled\"} 6\nnv_trt_llm_request_metrics{request_type=\"max\"} 9\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.5",
        EngineMetrics { waiting: Some(4.0), running: Some(6.0), kv_cache_usage: Some(0.5), ..EngineMetrics::default() })]
    #[case::invalid_lines(
        "vllm:num_requests_waiting{\nvllm:kv_cache_usage_perc NaN\nvllm:num_requests_running x\n# vllm:a 1",
        EngineMetrics::default()
    )]
    // spec: GW-26
    fn parses_metrics(#[case] text: &str, #[case] expect: EngineMetrics) {
        assert_eq!(parse_metrics(text, VLLM), expect);
    }

    #[rstest]
    #[case::vllm(
        "vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"True\",num_gpu_blocks=\"100\"} 1",
        Some(1_600.0)
    )]
    #[case::hybrid(
        "vllm:cache_config_info{block_size=\"16\",kv_cache_size_tokens=\"900\",num_gpu_blocks=\"100\"} 1",
        Some(900.0)
    )]
    #[case::two_engines(
        "vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1\"} 1\n\
        vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"2\"} 1",
        Some(48.0)
    )]
    #[case::disabled(
        "vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"False\",num_gpu_blocks=\"100\"} 1",
        Some(0.0)
    )]
    #[case::starting("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1", None)]
    #[case::sglang("sglang:cache_config_info{num_pages=\"10\",page_size=\"64\"} 1", Some(640.0))]
    #[case::tensorrt("trtllm_kv_cache_tokens_per_block 32\ntrtllm_kv_cache_max_blocks 10", Some(320.0))]
    #[case::triton(
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 64\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 10",
        Some(640.0)
    )]
    #[case::one_of_two("trtllm_kv_cache_max_blocks 10", None)]
    fn parses_size_of_the_prefix_cache(#[case] text: &str, #[case] expect: Option<f64>) {
        assert_eq!(parse_metrics(text, VLLM).prefix_cache_tokens, expect);
    }

    /// A proxy may add the metrics of other processes to the page of an engine.
    // spec: GW-26
    #[rstest]
    #[case(ModelServer::Vllm, 1.0)]
    #[case(ModelServer::Sglang, 2.0)]
    #[case(ModelServer::Trtllm, 3.0)]
    #[case(ModelServer::Triton, 4.0)]
    fn metrics_of_other_model_servers_are_ignored(#[case] model_server: ModelServer, #[case] waiting: f64) {
        let page = "vllm:num_requests_waiting 1\nsglang:num_queue_reqs 2\ntrtllm_num_requests_waiting 3\n\
            nv_trt_llm_request_metrics{request_type=\"waiting\"} 4";
        assert_eq!(parse_metrics(page, model_server).waiting, Some(waiting));
        assert_eq!(parse_metrics("sglang:num_queue_reqs 5", model_server).waiting, Some(5.0), "none of its metrics");
    }

    #[rstest]
    #[case::awake(1, 0, 0, false)]
    #[case::weights_offloaded(0, 1, 0, true)]
    #[case::weights_discarded(0, 0, 1, true)]
    fn finds_sleeping_engines(#[case] awake: u8, #[case] offloaded: u8, #[case] discarded: u8, #[case] expect: bool) {
        let text = format!(
            "vllm:engine_sleep_state{{engine=\"0\",model_name=\"tiny\",sleep_state=\"awake\"}} {awake}.0\n\
             vllm:engine_sleep_state{{engine=\"0\",model_name=\"tiny\",sleep_state=\"weights_offloaded\"}} {offloaded}.0\n\
             vllm:engine_sleep_state{{engine=\"0\",model_name=\"tiny\",sleep_state=\"discard_all\"}} {discarded}.0\n"
        );
        assert_eq!(parse_metrics(&text, VLLM).is_asleep, expect);
    }

    #[test]
    fn uses_newest_lora_series() {
        let text = "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"a,b\",waiting_lora_adapters=\"c\"} 20.5\n\
            vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"z\",waiting_lora_adapters=\"\"} 3.5";
        let expect = LoraAdapters { slots: 2, running: names(&["a", "b"]), waiting: names(&["c"]) };
        assert_eq!(parse_metrics(text, VLLM).lora_adapters, Some(expect));
    }
}
