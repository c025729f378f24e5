//! `ostler picker`: runs the endpoint picker of an InferencePool against a Kubernetes cluster.

mod compatibility;

use std::convert::Infallible;
use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use api::Duration;
use cluster::NamespacedName;
use picker::{
    EndpointPicker, ListenerRole, ParsedConfig, PoolGroup, ServingCertificate, exchange_with_peers, parse_config,
    serve_grpc, serve_metrics, watch_inference_pool,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::access_log::AccessLogArgs;
use super::control_fields::ControlFieldArgs;
use super::objective_window::ObjectiveWindowArgs;
use super::peers::PeerArgs;
use super::request_memory;
use super::session_header::SessionHeaderArgs;
use crate::background_tasks::BackgroundTasks;
use crate::connect::{self, ConnectArgs};
use crate::exit::Exit;
use crate::files;
use crate::output;
use crate::report::errors::error_with_hint;
use crate::shutdown::shutdown_token;
use compatibility::CompatibilityArgs;

// The flags have the names of the upstream endpoint picker (EPP), so that `ostler picker` can replace it.
#[derive(clap::Args)]
#[command(after_help = PERMISSIONS)]
pub(crate) struct PickerArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Pick endpoints of this InferencePool
    #[arg(long, value_name = "NAME")]
    pool_name: String,
    /// Read the pool from this namespace [default: $NAMESPACE, or that of the context]
    #[arg(long, value_name = "NAME")]
    pool_namespace: Option<String>,
    /// Read the pool from this API group [default: inference.networking.k8s.io]
    ///
    /// Older clusters serve inference.networking.x-k8s.io.
    #[arg(long, value_name = "GROUP", default_value = "inference.networking.k8s.io", hide_default_value = true)]
    pool_group: PoolGroup,
    /// Read the EndpointPickerConfig from this file
    ///
    /// By default, the endpoint with the lowest cost in tokens (queued, running and uncached) is selected.
    #[arg(long, value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Use this EndpointPickerConfig, as YAML text
    #[arg(long, value_name = "YAML", conflicts_with = "config_file")]
    config_text: Option<String>,
    /// Listen on this address [default: all addresses in a Pod, otherwise 127.0.0.1]
    #[arg(long)]
    address: Option<IpAddr>,
    /// Serve ext_proc on this port
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    grpc_port: u16,
    /// Serve gRPC health checks on this port
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    grpc_health_port: u16,
    /// Serve metrics on this port; 0 disables metrics
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// Serve ext_proc over TLS
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    secure_serving: bool,
    /// Read tls.crt and tls.key from this directory [default: self-signed certificate]
    ///
    /// The files are reloaded when they change.
    #[arg(long, value_name = "DIR")]
    cert_path: Option<PathBuf>,
    /// Serve requests for this time after SIGTERM while health checks fail
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    drain_timeout: Duration,
    /// Hold at most this amount of request bodies in memory; further requests wait
    ///
    /// Headers may have a quarter as much in addition. The memory limit of the Pod must be larger than both together.
    #[arg(long, value_name = "QUANTITY", default_value = "256Mi", value_parser = request_memory::of_picker)]
    request_memory: usize,
    #[command(flatten)]
    access_log: AccessLogArgs,
    #[command(flatten)]
    sessions: SessionHeaderArgs,
    #[command(flatten)]
    objectives: ObjectiveWindowArgs,
    #[command(flatten)]
    control_fields: ControlFieldArgs,
    #[command(flatten)]
    peers: PeerArgs,
    #[command(flatten)]
    compatibility: CompatibilityArgs,
}

const PERMISSIONS: &str = "\
Required permissions: list and watch pods and inferencepools in the namespace of the pool. Use cases have effect with the same
permissions on llmusecases, llmusecasesets and backendpools.";

impl PickerArgs {
    /// Returns the log filter of `-v`.
    pub(crate) fn default_log_filter(&self) -> &'static str {
        self.compatibility.log_filter()
    }

    fn address(&self) -> IpAddr {
        let is_in_pod = env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        self.address.unwrap_or(IpAddr::V4(if is_in_pod { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST }))
    }

    fn namespace(&self, context_namespace: String) -> String {
        let namespace = self.pool_namespace.clone().or_else(|| env::var("NAMESPACE").ok());
        namespace.filter(|name| !name.is_empty()).unwrap_or(context_namespace)
    }

    fn tls(&self) -> Result<Option<Arc<ServingCertificate>>> {
        let tls = match (self.secure_serving, &self.cert_path) {
            (false, _) => return Ok(None),
            (true, None) => ServingCertificate::self_signed()?,
            (true, Some(directory)) => ServingCertificate::from_directory(directory).map_err(|error| {
                error_with_hint(error.to_string(), "--cert-path requires a directory with tls.crt and tls.key")
            })?,
        };
        Ok(Some(Arc::new(tls)))
    }

    /// Reads the configuration. Warnings are printed to standard error.
    fn config(&self) -> Result<ParsedConfig> {
        let source = match (&self.config_file, &self.config_text) {
            (Some(file), _) => file.display().to_string(),
            (None, Some(_)) => "--config-text".to_owned(),
            (None, None) => String::new(),
        };
        let text = match &self.config_file {
            Some(file) => files::read_text(file)?,
            None => self.config_text.clone().unwrap_or_default(),
        };
        let config =
            parse_config(&text).map_err(|error| error_with_hint(format!("{source}: {error}"), error.hint()))?;
        for warning in &config.warnings {
            output::print_message(&format!("warning: {source}: {warning}"));
        }
        Ok(config)
    }
}

pub(super) async fn run(args: PickerArgs) -> Result<Exit> {
    args.compatibility.check()?;
    let (config, tls) = (args.config()?, args.tls()?);
    let (access_log, _access_log_guard) = args.access_log.open()?.unzip();
    let connection = connect::connect(&args.connect).await?;
    let address = args.address();
    let ext_proc = bind(address, args.grpc_port, "--grpc-port").await?;
    let health = bind(address, args.grpc_health_port, "--grpc-health-port").await?;
    let metrics = match args.metrics_port {
        0 => None,
        port => Some(bind(address, port, "--metrics-port").await?),
    };
    let peers = args.peers.bind().await?;
    let pool = NamespacedName { namespace: args.namespace(connection.namespace), name: args.pool_name };
    let config_file = args.config_file.as_deref().map(Path::display).map(tracing::field::display);
    tracing::info!(config_file, warnings = config.warnings.len(), "configuration accepted");
    let picker = EndpointPicker::new(pool, config.policy, args.request_memory, fastrand::u64(..));
    let picker = picker.with_objective_window(args.objectives.objective_window).with_access_log(access_log);
    let picker = picker.with_session_header(args.sessions.session_header);
    let picker = Arc::new(picker.with_control_fields(args.control_fields.control_fields()));
    tracing::info!(pool = %picker.pool, address = %ext_proc.local_addr()?, tls = tls.is_some(), "endpoint picker is listening");
    let shutdown = shutdown_after_drain(Arc::clone(&picker), args.drain_timeout)?;
    let mut tasks = BackgroundTasks::new(shutdown.clone());
    let watch = watch_inference_pool(connection.client, args.pool_group, Arc::clone(&picker), shutdown.clone());
    tasks.spawn("InferencePool", watch);
    tasks.spawn("health checks", serve_grpc(health, ListenerRole::Health, Arc::clone(&picker), shutdown.clone()));
    if let Some(metrics) = metrics {
        tasks.spawn("metrics", serve_metrics(metrics, Arc::clone(picker.scheduler()), shutdown.clone()));
    }
    if let Some((listener, options)) = peers {
        let scheduler = Arc::clone(picker.scheduler());
        tasks.spawn("peers", exchange_with_peers(listener, scheduler, options, shutdown.clone()));
    }
    if let Some(tls) = tls.clone() {
        let shutdown = shutdown.clone();
        tasks.spawn("serving certificate", async move {
            tls.reload_on_change(shutdown).await;
            Ok::<_, Infallible>(())
        });
    }
    tasks.spawn("ext_proc", serve_grpc(ext_proc, ListenerRole::ExtProc(tls), picker, shutdown));
    tasks.run().await?;
    Ok(Exit::Success)
}

/// Returns a token that is cancelled `drain` after a signal. The signal makes the health checks fail.
fn shutdown_after_drain(picker: Arc<EndpointPicker>, drain: Duration) -> Result<CancellationToken> {
    let (signal, shutdown) = (shutdown_token()?, CancellationToken::new());
    let token = shutdown.clone();
    tokio::spawn(async move {
        signal.cancelled().await;
        picker.drain();
        tokio::time::sleep(drain.0).await;
        token.cancel();
    });
    Ok(shutdown)
}

async fn bind(address: IpAddr, port: u16, flag: &str) -> Result<TcpListener> {
    let address = SocketAddr::new(address, port);
    TcpListener::bind(address).await.map_err(|error| {
        error_with_hint(
            format!("cannot listen on {address}: {error}"),
            format!("choose another port with {flag}, or another --address"),
        )
    })
}
