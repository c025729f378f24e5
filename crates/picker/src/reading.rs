//! What engines say of themselves: the few series that scheduling needs, taken from a metrics page without a tree.

use std::collections::BTreeSet;

/// The gauges of one engine. What a page does not say is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gauges {
    /// Requests that wait at the engine.
    pub waiting: Option<f64>,
    /// Requests the engine works on.
    pub running: Option<f64>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_usage: Option<f64>,
    pub adapters: Option<Adapters>,
}

/// LoRA adapters of one engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adapters {
    /// Adapters the engine can hold at a time.
    pub slots: usize,
    pub running: BTreeSet<String>,
    pub waiting: BTreeSet<String>,
}

/// Reads the names of vLLM, SGLang, TensorRT-LLM and Triton (Prometheus text). Engines inside one process (`engine="0"`, `engine="1"`) add up;
/// of their KV usage the highest counts.
pub fn read(page: &str) -> Gauges {
    let mut gauges = Gauges::default();
    let mut newest = f64::NEG_INFINITY;
    for line in page.lines() {
        let Some((name, labels, value)) = sample(line) else { continue };
        match name {
            "vllm:num_requests_waiting" | "sglang:num_queue_reqs" | "trtllm_num_requests_waiting" => {
                add(&mut gauges.waiting, value);
            }
            "vllm:num_requests_running" | "sglang:num_running_reqs" | "trtllm_num_requests_running" => {
                add(&mut gauges.running, value);
            }
            "nv_trt_llm_request_metrics" => match label(labels, "request_type") {
                Some("waiting") => add(&mut gauges.waiting, value),
                Some("scheduled") => add(&mut gauges.running, value),
                _ => {}
            },
            "vllm:kv_cache_usage_perc"
            | "vllm:gpu_cache_usage_perc"
            | "sglang:token_usage"
            | "trtllm_kv_cache_utilization" => fuller(&mut gauges.kv_usage, value),
            "nv_trt_llm_kv_cache_block_metrics" if label(labels, "kv_cache_block_type") == Some("fraction") => {
                fuller(&mut gauges.kv_usage, value);
            }
            // The value is the time the series was written; old ones stay on the page.
            "vllm:lora_requests_info" if value > newest => {
                newest = value;
                gauges.adapters = Some(adapters(labels));
            }
            _ => {}
        }
    }
    gauges
}

/// How the names begin that are looked at at all.
const ENGINES: [&str; 4] = ["vllm:", "sglang:", "trtllm_", "nv_trt_llm_"];

/// Name, labels (without braces) and value of one line.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    if !ENGINES.iter().any(|engine| line.starts_with(engine)) {
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

fn add(sum: &mut Option<f64>, value: f64) {
    *sum = Some(sum.unwrap_or(0.0) + value.max(0.0));
}

fn fuller(usage: &mut Option<f64>, value: f64) {
    *usage = Some(usage.unwrap_or(0.0).max(value.clamp(0.0, 1.0)));
}

fn adapters(labels: &str) -> Adapters {
    let names = |key| {
        let listed = label(labels, key).unwrap_or_default().split(',');
        listed.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    Adapters {
        slots: label(labels, "max_lora").and_then(|value| value.parse().ok()).unwrap_or(0),
        running: names("running_lora_adapters"),
        waiting: names("waiting_lora_adapters"),
    }
}

fn label<'a>(labels: &'a str, key: &str) -> Option<&'a str> {
    let begins = |at: usize| at == 0 || labels.as_bytes()[at - 1] == b',';
    let found = labels.match_indices(key).find(|(at, _)| begins(*at) && labels[at + key.len()..].starts_with("=\""))?;
    labels[found.0 + key.len() + 2..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    // spec: GW-26
    #[test]
    fn a_page_of_a_real_engine() {
        let gauges = read(include_str!("../../engine/tests/data/metrics-loaded.txt"));
        assert_eq!((gauges.waiting, gauges.running), (Some(16.0), Some(8.0)));
        assert!((gauges.kv_usage.unwrap() - 0.046_920_821).abs() < 1e-6);
        // The newest of three series: nothing is loaded any more.
        assert_eq!(gauges.adapters, Some(Adapters { slots: 1, ..Adapters::default() }));
    }

    #[rstest]
    #[case::nothing("", Gauges::default())]
    #[case::no_labels("vllm:num_requests_waiting 3", Gauges { waiting: Some(3.0), ..Gauges::default() })]
    #[case::two_engines("vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} 4",
        Gauges { running: Some(7.0), ..Gauges::default() })]
    #[case::sglang("sglang:num_queue_reqs{model_name=\"m\"} 2.0\nsglang:token_usage{model_name=\"m\"} 0.5",
        Gauges { waiting: Some(2.0), kv_usage: Some(0.5), ..Gauges::default() })]
    #[case::sglang_running("sglang:num_running_reqs{tp_rank=\"0\"} 5", Gauges { running: Some(5.0), ..Gauges::default() })]
    #[case::tensorrt("trtllm_num_requests_waiting 1\ntrtllm_num_requests_running 2\ntrtllm_kv_cache_utilization 0.25",
        Gauges { waiting: Some(1.0), running: Some(2.0), kv_usage: Some(0.25), ..Gauges::default() })]
    #[case::triton("nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 4\n\
        nv_trt_llm_request_metrics{request_type=\"scheduled\"} 6\nnv_trt_llm_request_metrics{request_type=\"max\"} 9\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.5",
        Gauges { waiting: Some(4.0), running: Some(6.0), kv_usage: Some(0.5), ..Gauges::default() })]
    #[case::garbage(
        "vllm:num_requests_waiting{\nvllm:kv_cache_usage_perc NaN\nvllm:num_requests_running x\n# vllm:a 1",
        Gauges::default()
    )]
    fn pages(#[case] page: &str, #[case] expect: Gauges) {
        assert_eq!(read(page), expect);
    }

    #[test]
    fn adapters_are_those_of_the_newest_series() {
        let page = "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"a,b\",waiting_lora_adapters=\"c\"} 20.5\n\
            vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"z\",waiting_lora_adapters=\"\"} 3.5";
        let expect = Adapters { slots: 2, running: names(&["a", "b"]), waiting: names(&["c"]) };
        assert_eq!(read(page).adapters, Some(expect));
    }
}
