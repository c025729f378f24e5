//! Flags that stand in manifests of other endpoint pickers. They are taken where the meaning is the same or nothing is lost
//! without it, which is told; and refused where something would be unguarded or unread.

use anyhow::Result;

use crate::output;
use crate::report::errors::hinted;

#[derive(clap::Args)]
pub(crate) struct ElsewhereArgs {
    /// How much is logged: 0 warnings, 2 what changes, 4 each request's errors
    #[arg(short = 'v', long = "v", value_name = "NUMBER", default_value_t = 2)]
    verbosity: u8,
    #[command(flatten)]
    switches: Switches,
    #[command(flatten)]
    names: MetricNames,
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

/// What is on or off.
#[derive(clap::Args)]
struct Switches {
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
    // Always so here.
    #[arg(long = "health-checking", hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    _health_checking: Option<bool>,
    #[arg(long = "enable-cert-reload", hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    _enable_cert_reload: Option<bool>,
    #[arg(long = "allow-experimental-plugins", hide = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    _allow_experimental_plugins: Option<bool>,
}

/// How an engine calls what is read of it. All engines' names are read, so a name has to be one of them.
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

/// Series by flag; an empty name asks for none.
const SERIES: [&[&str]; 5] = [
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

impl ElsewhereArgs {
    pub(super) fn log(&self) -> &'static str {
        match self.verbosity {
            0 => "warn",
            // What kube says of a watch, `cluster` says again.
            1..=3 => "warn,kube_runtime=error,picker=info,ostler=info",
            4 => "warn,kube_runtime=error,picker=debug,ostler=debug",
            _ => "debug",
        }
    }

    /// # Errors
    /// A flag whose meaning cannot be kept.
    pub(super) fn check(&self) -> Result<()> {
        if self.switches.metrics_endpoint_auth == Some(true) {
            return Err(hinted(
                "--metrics-endpoint-auth: the metrics page asks nobody who they are",
                "set --metrics-endpoint-auth=false and guard the port with a NetworkPolicy, or --metrics-port 0",
            ));
        }
        self.names.check()?;
        for (flag, told) in self.without_effect() {
            output::tell(&format!("warning: {flag} is without effect: {told}"));
        }
        Ok(())
    }

    fn without_effect(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        const PACE: &str = "busy engines are read often, idle ones seldom, and a reading counts less as it ages";
        const LOGS: &str = "logs are lines of text on stderr; -v and OSTLER_LOG say how much";
        let Switches {
            tracing, enable_pprof, zap_devel, ha_enable_leader_election, enable_grpc_stream_metrics, ..
        } = &self.switches;
        let on = |switch: &Option<bool>| *switch == Some(true);
        [
            (on(tracing), "--tracing", "no traces are sent"),
            (on(enable_pprof), "--enable-pprof", "there are no profiles to look at"),
            (on(ha_enable_leader_election), "--ha-enable-leader-election", "every replica answers"),
            (on(enable_grpc_stream_metrics), "--enable-grpc-stream-metrics", "streams are not counted"),
            (self.refresh_metrics_interval.is_some(), "--refresh-metrics-interval", PACE),
            (self.metrics_staleness_threshold.is_some(), "--metrics-staleness-threshold", PACE),
            (
                self.refresh_prometheus_metrics_interval.is_some(),
                "--refresh-prometheus-metrics-interval",
                "the page is made when it is asked for",
            ),
            (on(zap_devel), "--zap-devel", LOGS),
            (self.zap_encoder.is_some(), "--zap-encoder", LOGS),
            (self.zap_log_level.is_some(), "--zap-log-level", LOGS),
            (self.zap_stacktrace_level.is_some(), "--zap-stacktrace-level", LOGS),
            (self.zap_time_encoding.is_some(), "--zap-time-encoding", LOGS),
        ]
        .into_iter()
        .filter_map(|(stated, flag, told)| stated.then_some((flag, told)))
    }
}

impl MetricNames {
    fn check(&self) -> Result<()> {
        let stated = [
            ("--total-queued-requests-metric", &self.total_queued_requests_metric),
            ("--total-running-requests-metric", &self.total_running_requests_metric),
            ("--kv-cache-usage-percentage-metric", &self.kv_cache_usage_percentage_metric),
            ("--lora-info-metric", &self.lora_info_metric),
            ("--cache-info-metric", &self.cache_info_metric),
        ];
        for ((flag, name), series) in stated.into_iter().zip(SERIES) {
            // Labels may follow.
            let name = name.as_deref().and_then(|name| name.split('{').next()).unwrap_or_default();
            if !name.is_empty() && !series.contains(&name) {
                let cause = format!("{flag}: {name:?} is not read here");
                return Err(hinted(cause, format!("leave it out: read are {}", series.join(", "))));
            }
        }
        Ok(())
    }
}
