//! Metrics of an engine.

use std::fmt::Write as _;

/// Returns metrics as vLLM's: the gauges that schedulers read, after `buckets` lines of a histogram.
pub(crate) fn metrics_page(model: &str, buckets: u16) -> String {
    let mut page = String::new();
    for index in 0..buckets {
        let bound = f64::from(index) / 100.0;
        let _ = writeln!(
            page,
            "vllm:request_time_per_output_token_seconds_bucket{{engine=\"0\",le=\"{bound}\",model_name=\"{model}\"}} 0.0"
        );
    }
    for gauge in ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"] {
        let _ = writeln!(page, "# TYPE vllm:{gauge} gauge\nvllm:{gauge}{{engine=\"0\",model_name=\"{model}\"}} 0.0");
    }
    page
}
