//! Flags of the upstream endpoint picker (EPP) that existing manifests set. A flag without a counterpart is ignored with a
//! warning if that is safe, and rejected if ignoring it would leave metrics unprotected or unread.

use anyhow::Result;

use crate::output;
use crate::report::errors::error_with_hint;

#[derive(clap::Args)]
pub(crate) struct CompatibilityArgs {
    /// Log warnings (0), state changes (2) or errors of each request (4)
    #[arg(short = 'v', long = "v", value_name = "NUMBER", default_value_t = 2)]
    verbosity: u8,
    #[command(flatten)]
    boolean_flags: BooleanFlags,
    #[command(flatten)]
    metric_names: MetricNames,
    #[arg(long, hide = true, value_name = "DURATION")]
    refresh_metrics_interval: Option<String>,
    #[arg(long, hide = true, value_name = "DURATION")]
    refresh_prometheus_metrics_interval: Option<String>,
    #[arg(long, hide = true, value_name = "DURATION")]
    metrics_staleness_threshold: Option<String>,
    #[arg(long, hide = true)]
    zap_encoder: Option<String>,
    #[arg(long, hide = true)]
    zap_log_level: Option<String>,
    #[arg(long, hide = true)]
    zap_stacktrace_level: Option<String>,
    #[arg(long, hide = true)]
    zap_time_encoding: Option<String>,
}

/// Flags with a boolean value.
#[derive(clap::Args)]
struct BooleanFlags {
    #[arg(long, hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    tracing: Option<bool>,
    #[arg(long, hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    enable_pprof: Option<bool>,
    #[arg(long, hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    zap_devel: Option<bool>,
    #[arg(long, hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    ha_enable_leader_election: Option<bool>,
    #[arg(long, hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    enable_grpc_stream_metrics: Option<bool>,
    #[arg(long, hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    metrics_endpoint_auth: Option<bool>,
    // These are always enabled.
    #[arg(long = "health-checking", hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    _health_checking: Option<bool>,
    #[arg(long = "enable-cert-reload", hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    _enable_cert_reload: Option<bool>,
    #[arg(long = "allow-experimental-plugins", hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    _allow_experimental_plugins: Option<bool>,
}

/// Names of the engine metrics to read. The picker reads the metrics of all known engines, so each name must be one of
/// theirs.
#[derive(clap::Args)]
struct MetricNames {
    #[arg(long, hide = true)]
    total_queued_requests_metric: Option<String>,
    #[arg(long, hide = true)]
    total_running_requests_metric: Option<String>,
    #[arg(long, hide = true)]
    kv_cache_usage_percentage_metric: Option<String>,
    #[arg(long, hide = true)]
    lora_info_metric: Option<String>,
    #[arg(long, hide = true)]
    cache_info_metric: Option<String>,
}

/// Accepted metric names, in the order of the flags. An empty name disables the metric upstream and is accepted.
const KNOWN_METRICS: [&[&str]; 5] = [
    &[
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "trtllm_num_requests_waiting",
        "nv_trt_llm_request_metrics",
    ],
    &[
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "trtllm_num_requests_running",
        "nv_trt_llm_request_metrics",
    ],
    &[
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
        "trtllm_kv_cache_utilization",
        "nv_trt_llm_kv_cache_block_metrics",
    ],
    &["vllm:lora_requests_info"],
    &["vllm:cache_config_info", "sglang:cache_config_info"],
];

// === impl CompatibilityArgs ===

impl CompatibilityArgs {
    /// Returns the log filter of the verbosity.
    pub(super) fn log_filter(&self) -> &'static str {
        match self.verbosity {
            0 => "warn",
            // The crate `cluster` logs failures of watches as well.
            1..=3 => "warn,kube_runtime=error,picker=info,ostler=info",
            4 => "warn,kube_runtime=error,picker=debug,ostler=debug",
            _ => "debug",
        }
    }

    /// Prints a warning for each flag that is ignored.
    ///
    /// # Errors
    /// Fails for a flag that cannot be ignored safely.
    pub(super) fn check(&self) -> Result<()> {
        if self.boolean_flags.metrics_endpoint_auth == Some(true) {
            return Err(error_with_hint(
                "--metrics-endpoint-auth: the metrics endpoint does not support authentication",
                "set --metrics-endpoint-auth=false and restrict access with a NetworkPolicy, or set --metrics-port 0",
            ));
        }
        self.metric_names.check()?;
        for (flag, reason) in self.ignored_flags() {
            output::print_message(&format!("warning: {flag} is ignored: {reason}"));
        }
        Ok(())
    }

    /// Returns the flags that are set and ignored, each with the reason.
    fn ignored_flags(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        const SCRAPE_INTERVAL_REASON: &str =
            "the scrape interval depends on the load of the engine, and older values have less weight";
        const USE_LOG_FLAGS: &str = "use --log-format, --log-level or -v";
        let BooleanFlags {
            tracing,
            enable_pprof,
            zap_devel,
            ha_enable_leader_election,
            enable_grpc_stream_metrics,
            ..
        } = &self.boolean_flags;
        let is_enabled = |switch: &Option<bool>| *switch == Some(true);
        [
            (is_enabled(tracing), "--tracing", "tracing is not supported"),
            (is_enabled(enable_pprof), "--enable-pprof", "pprof is not supported"),
            (is_enabled(ha_enable_leader_election), "--ha-enable-leader-election", "all replicas serve requests"),
            (
                is_enabled(enable_grpc_stream_metrics),
                "--enable-grpc-stream-metrics",
                "stream metrics are not supported",
            ),
            (self.refresh_metrics_interval.is_some(), "--refresh-metrics-interval", SCRAPE_INTERVAL_REASON),
            (self.metrics_staleness_threshold.is_some(), "--metrics-staleness-threshold", SCRAPE_INTERVAL_REASON),
            (
                self.refresh_prometheus_metrics_interval.is_some(),
                "--refresh-prometheus-metrics-interval",
                "metrics are collected on each scrape",
            ),
            (is_enabled(zap_devel), "--zap-devel", USE_LOG_FLAGS),
            (self.zap_encoder.is_some(), "--zap-encoder", USE_LOG_FLAGS),
            (self.zap_log_level.is_some(), "--zap-log-level", USE_LOG_FLAGS),
            (self.zap_stacktrace_level.is_some(), "--zap-stacktrace-level", USE_LOG_FLAGS),
            (self.zap_time_encoding.is_some(), "--zap-time-encoding", USE_LOG_FLAGS),
        ]
        .into_iter()
        .filter_map(|(is_set, flag, reason)| is_set.then_some((flag, reason)))
    }
}

// === impl MetricNames ===

impl MetricNames {
    fn check(&self) -> Result<()> {
        let flags = [
            ("--total-queued-requests-metric", &self.total_queued_requests_metric),
            ("--total-running-requests-metric", &self.total_running_requests_metric),
            ("--kv-cache-usage-percentage-metric", &self.kv_cache_usage_percentage_metric),
            ("--lora-info-metric", &self.lora_info_metric),
            ("--cache-info-metric", &self.cache_info_metric),
        ];
        for ((flag, name), known) in flags.into_iter().zip(KNOWN_METRICS) {
            // The name may be followed by a label selector.
            let name = name.as_deref().and_then(|name| name.split('{').next()).unwrap_or_default();
            if !name.is_empty() && !known.contains(&name) {
                let cause = format!("{flag}: unknown metric {name:?}");
                return Err(error_with_hint(cause, format!("remove the flag; the picker reads {}", known.join(", "))));
            }
        }
        Ok(())
    }
}
