//! Metric families of vLLM 0.32 as recorded: names, help texts, labels and buckets.

/// A metric family.
pub(crate) struct Family {
    /// Name of the family and of its series, for counters with the suffix `_total`.
    pub(crate) name: &'static str,
    /// Text of the HELP line.
    pub(crate) help: &'static str,
    /// Type of the family.
    pub(crate) kind: MetricType,
    /// A label in addition to `engine` and `model_name`, and its values.
    pub(crate) label: Option<(&'static str, &'static [&'static str])>,
}

/// Prometheus type of a metric family.
pub(crate) enum MetricType {
    /// A sum since the start.
    Counter,
    /// A current value.
    Gauge,
    /// Upper bounds of the buckets without `+Inf`.
    Histogram(&'static [f64]),
}

// === impl Family ===

impl Family {
    /// Returns the upper bounds of a histogram's buckets.
    pub(crate) fn bounds(&self) -> Option<&'static [f64]> {
        match self.kind {
            MetricType::Histogram(bounds) => Some(bounds),
            MetricType::Counter | MetricType::Gauge => None,
        }
    }
}

const TOKEN_BUCKETS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
const ITERATION_TOKEN_BUCKETS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const CHOICE_COUNT_BUCKETS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
const TTFT_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const TOKEN_LATENCY_BUCKETS: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const REQUEST_LATENCY_BUCKETS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const PREEMPTION_BUCKETS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];

/// Families in vLLM's order, without `cache_config_info` and `lora_requests_info`.
pub(crate) const FAMILIES: &[Family] = &[
    Family {
        name: "vllm:estimated_flops_per_gpu_total",
        help: "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:estimated_read_bytes_per_gpu_total",
        help: "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:estimated_write_bytes_per_gpu_total",
        help: "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:num_requests_running",
        help: "Number of requests in model execution batches.",
        kind: MetricType::Gauge,
        label: None,
    },
    Family {
        name: "vllm:num_requests_waiting",
        help: "Number of requests waiting to be processed.",
        kind: MetricType::Gauge,
        label: None,
    },
    Family {
        name: "vllm:num_requests_waiting_by_reason",
        help: "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
        kind: MetricType::Gauge,
        label: Some(("reason", &["capacity", "deferred"])),
    },
    Family {
        name: "vllm:engine_sleep_state",
        help: "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        kind: MetricType::Gauge,
        label: Some(("sleep_state", &["awake", "weights_offloaded", "discard_all"])),
    },
    Family {
        name: "vllm:kv_cache_usage_perc",
        help: "KV-cache usage. 1 means 100 percent usage.",
        kind: MetricType::Gauge,
        label: None,
    },
    Family {
        name: "vllm:prefix_cache_queries_total",
        help: "Prefix cache queries, in terms of number of queried tokens.",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:prefix_cache_hits_total",
        help: "Prefix cache hits, in terms of number of cached tokens.",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:external_prefix_cache_queries_total",
        help: "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:external_prefix_cache_hits_total",
        help: "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:mm_cache_queries_total",
        help: "Multi-modal cache queries, in terms of number of queried items.",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:mm_cache_hits_total",
        help: "Multi-modal cache hits, in terms of number of cached items.",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:num_preemptions_total",
        help: "Cumulative number of preemption from the engine.",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:prompt_tokens_total",
        help: "Number of prefill tokens processed.",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:prompt_tokens_by_source_total",
        help: "Number of prompt tokens by source.",
        kind: MetricType::Counter,
        label: Some(("source", &["local_compute", "local_cache_hit", "external_kv_transfer"])),
    },
    Family {
        name: "vllm:prompt_tokens_cached_total",
        help: "Number of cached prompt tokens (local + external).",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:prompt_tokens_cached_by_source_total",
        help: "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        kind: MetricType::Counter,
        label: Some(("source", &["device", "host", "p2p", "disk", "external_unspecified"])),
    },
    Family {
        name: "vllm:generation_tokens_total",
        help: "Number of generation tokens processed.",
        kind: MetricType::Counter,
        label: None,
    },
    Family {
        name: "vllm:request_success_total",
        help: "Count of successfully processed requests.",
        kind: MetricType::Counter,
        label: Some(("finished_reason", &["stop", "length", "abort", "error", "repetition"])),
    },
    Family {
        name: "vllm:admission_rejections_total",
        help: "Number of admission attempts rejected by a queue limit, by reason.",
        kind: MetricType::Counter,
        label: Some(("reason", &["max_num_queued_reqs", "max_num_queued_tokens"])),
    },
    Family {
        name: "vllm:request_prompt_tokens",
        help: "Number of prefill tokens processed.",
        kind: MetricType::Histogram(TOKEN_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_generation_tokens",
        help: "Number of generation tokens processed.",
        kind: MetricType::Histogram(TOKEN_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:iteration_tokens_total",
        help: "Histogram of number of tokens per engine_step.",
        kind: MetricType::Histogram(ITERATION_TOKEN_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_max_num_generation_tokens",
        help: "Histogram of maximum number of requested generation tokens.",
        kind: MetricType::Histogram(TOKEN_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_params_n",
        help: "Histogram of the n request parameter.",
        kind: MetricType::Histogram(CHOICE_COUNT_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_params_max_tokens",
        help: "Histogram of the max_tokens request parameter.",
        kind: MetricType::Histogram(TOKEN_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:time_to_first_token_seconds",
        help: "Histogram of time to first token in seconds.",
        kind: MetricType::Histogram(TTFT_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:inter_token_latency_seconds",
        help: "Histogram of inter-token latency in seconds.",
        kind: MetricType::Histogram(TOKEN_LATENCY_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_time_per_output_token_seconds",
        help: "Histogram of time_per_output_token_seconds per request.",
        kind: MetricType::Histogram(TOKEN_LATENCY_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:e2e_request_latency_seconds",
        help: "Histogram of e2e request latency in seconds.",
        kind: MetricType::Histogram(REQUEST_LATENCY_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_queue_time_seconds",
        help: "Histogram of time spent in WAITING phase for request.",
        kind: MetricType::Histogram(REQUEST_LATENCY_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_inference_time_seconds",
        help: "Histogram of time spent in RUNNING phase for request.",
        kind: MetricType::Histogram(REQUEST_LATENCY_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_prefill_time_seconds",
        help: "Histogram of time spent in PREFILL phase for request.",
        kind: MetricType::Histogram(REQUEST_LATENCY_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_decode_time_seconds",
        help: "Histogram of time spent in DECODE phase for request.",
        kind: MetricType::Histogram(REQUEST_LATENCY_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_num_preemptions",
        help: "Histogram of the number of times a request was preempted.",
        kind: MetricType::Histogram(PREEMPTION_BUCKETS),
        label: None,
    },
    Family {
        name: "vllm:request_prefill_kv_computed_tokens",
        help: "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        kind: MetricType::Histogram(TOKEN_BUCKETS),
        label: None,
    },
];
