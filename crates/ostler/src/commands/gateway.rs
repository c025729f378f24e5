//! `ostler gateway`: runs the built-in gateway against a Kubernetes cluster.

mod trace;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use picker::{ApiKeys, EndpointPickerService, ServingCertificate};
use tokio_util::sync::CancellationToken;

use super::access_log::AccessLogArgs;
use super::control_fields::ControlFieldArgs;
use super::objective_window::ObjectiveWindowArgs;
use super::peers::PeerArgs;
use super::request_memory;
use super::session_header::SessionHeaderArgs;
use super::time_limit::TimeLimit;
use crate::background_tasks::BackgroundTasks;
use crate::connect::{self, ConnectArgs};
use crate::exit::Exit;
use crate::gateway_debug::DEFAULT_METRICS_ADDRESS;
use crate::listener;
use crate::report::errors::error_with_hint;
use crate::shutdown::shutdown_token;

/// Run the gateway against a Kubernetes cluster
///
/// Serves the OpenAI API for the models of all pools.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    command: Option<GatewayCommand>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(clap::Subcommand)]
enum GatewayCommand {
    Trace(trace::TraceArgs),
}

#[derive(clap::Args)]
struct ServerArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Listen on this address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Serve metrics on this address
    ///
    /// `ostler gateway trace` and `ostler explain` read from it, but only on the loopback interface of the gateway.
    #[arg(long, value_name = "HOST:PORT", default_value = DEFAULT_METRICS_ADDRESS)]
    metrics: SocketAddr,
    /// Complete requests for at most this long after SIGTERM; 0 means no limit
    ///
    /// The gateway closes its listener at once. The grace period of its Pod must be longer. A second signal ends it immediately.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    drain_timeout: TimeLimit,
    /// Hold at most this amount of request bodies in memory; further requests wait
    ///
    /// Headers may have a quarter as much in addition. The memory limit of the Pod must be larger than both together.
    #[arg(long, value_name = "QUANTITY", default_value = "256Mi", value_parser = request_memory::of_gateway)]
    request_memory: usize,
    /// Name the selected endpoint in response headers
    ///
    /// Every response has the headers `x-ostler-endpoint`, `x-ostler-pod` and `x-ostler-decision`. They show addresses and names of
    /// Pods to clients.
    #[arg(long)]
    debug_headers: bool,
    /// Serve HTTPS with tls.crt and tls.key of this directory
    ///
    /// The files are reloaded when they change. Probes of the Pod need `scheme: HTTPS`.
    #[arg(long, value_name = "DIR")]
    cert_path: Option<PathBuf>,
    /// Require one of the API keys in the files of this directory
    ///
    /// The directory is a mounted Secret. The first line of each file is a key or `sha256:HEX`, its hash; further lines are the
    /// names of the models that it gives access to, NAMESPACE/MODEL or MODEL, by default all. Clients send `Authorization: Bearer KEY`, which is not forwarded. The files
    /// are reloaded when they change.
    #[arg(long, value_name = "DIR")]
    api_keys: Option<PathBuf>,
    /// Name the models of this namespace without it
    ///
    /// Requests that address no pool name the models of other namespaces NAMESPACE/MODEL.
    #[arg(long, value_name = "NAMESPACE", default_value = picker::DEFAULT_NAMESPACE)]
    default_namespace: String,
    #[command(flatten)]
    sessions: SessionHeaderArgs,
    #[command(flatten)]
    objectives: ObjectiveWindowArgs,
    /// Serve the Gateways of GatewayClasses with this controller name
    ///
    /// Gateway processes with different options, such as HTTP and HTTPS, need different names: each reports the status of these Gateways
    /// and their HTTPRoutes.
    #[arg(long, value_name = "NAME", default_value = picker::CONTROLLER_NAME)]
    controller_name: String,
    #[command(flatten)]
    control_fields: ControlFieldArgs,
    #[command(flatten)]
    access_log: AccessLogArgs,
    /// Create an InferencePool for each BackendPool, with this Service as endpoint picker
    ///
    /// HTTPRoutes of other gateways can then point at the pool. The Service is in the namespace of the pool; `{pool}` in NAME is the name
    /// of the pool, and the default port is 9002. Run `ostler picker --pool-name POOL` behind it. All gateways of a cluster need the same
    /// value. By default, no InferencePools are created.
    #[arg(long, value_name = "NAME[:PORT]")]
    endpoint_picker_service: Option<EndpointPickerService>,
    #[command(flatten)]
    peers: PeerArgs,
}

impl GatewayArgs {
    /// Returns whether the command runs the gateway, instead of querying one.
    pub(crate) fn runs_gateway(&self) -> bool {
        self.command.is_none()
    }
}

impl ServerArgs {
    fn certificate(&self) -> Result<Option<Arc<ServingCertificate>>> {
        let Some(directory) = &self.cert_path else { return Ok(None) };
        let certificate = ServingCertificate::from_directory(directory).map_err(|error| {
            error_with_hint(error.to_string(), "--cert-path requires a directory with tls.crt and tls.key")
        })?;
        Ok(Some(Arc::new(certificate)))
    }

    fn api_keys(&self) -> Result<Option<Arc<ApiKeys>>> {
        let Some(directory) = &self.api_keys else { return Ok(None) };
        let keys = ApiKeys::from_directory(directory).map_err(|error| {
            error_with_hint(error.to_string(), "--api-keys requires a directory with one file per API key")
        })?;
        Ok(Some(Arc::new(keys)))
    }
}

/// Spawns the tasks that reload certificate and API keys.
fn spawn_reload(
    tasks: &mut BackgroundTasks,
    certificate: Option<Arc<ServingCertificate>>,
    api_keys: Option<Arc<ApiKeys>>,
    shutdown: &CancellationToken,
) {
    if let Some(certificate) = certificate {
        let shutdown = shutdown.clone();
        tasks.spawn("serving certificate", async move {
            certificate.reload_on_change(shutdown).await;
            Ok::<_, Infallible>(())
        });
    }
    if let Some(api_keys) = api_keys {
        let shutdown = shutdown.clone();
        tasks.spawn("API keys", async move {
            api_keys.reload_on_change(shutdown).await;
            Ok::<_, Infallible>(())
        });
    }
}

pub(super) async fn run(args: GatewayArgs) -> Result<Exit> {
    match args.command {
        Some(GatewayCommand::Trace(trace)) => trace::run(trace).await,
        None => run_gateway(args.server).await,
    }
}

async fn run_gateway(args: ServerArgs) -> Result<Exit> {
    let (certificate, api_keys) = (args.certificate()?, args.api_keys()?);
    let (access_log, _access_log_guard) = args.access_log.open()?.unzip();
    let client = connect::client(&args.connect).await?;
    let listener = listener::bind(args.listen, "--listen").await?;
    let metrics = listener::bind(args.metrics, "--metrics").await?;
    let peers = args.peers.bind().await?;
    tracing::info!(address = %listener.local_addr()?, "gateway is listening");
    let scheduler = picker::Scheduler::new(picker::SchedulingPolicy::default(), fastrand::u64(..));
    let scheduler = scheduler.with_default_namespace(args.default_namespace).with_request_memory(args.request_memory);
    let scheduler = scheduler.with_access_log(access_log);
    let scheduler = Arc::new(scheduler.with_objective_window(args.objectives.objective_window));
    let shutdown = shutdown_token()?;
    let mut tasks = BackgroundTasks::new(shutdown.clone());
    // Requests that wait for an engine observe its start also while the gateway drains.
    let drained = CancellationToken::new();
    let watch_options = picker::WatchOptions {
        serves_tls: certificate.is_some(),
        controller_name: args.controller_name,
        endpoint_picker_service: args.endpoint_picker_service,
        ..picker::WatchOptions::new(Arc::new(cluster::SystemClock))
    };
    tasks.spawn("pools", picker::watch_pools(client, Arc::clone(&scheduler), watch_options, drained.clone()));
    let options = picker::GatewayOptions {
        request_memory: args.request_memory,
        drain_timeout: args.drain_timeout.duration(),
        debug_headers: args.debug_headers,
        certificate: certificate.clone(),
        api_keys: api_keys.clone(),
        control_fields: args.control_fields.control_fields(),
        session_header: args.sessions.session_header,
    };
    tasks.spawn("metrics", picker::serve_metrics(metrics, Arc::clone(&scheduler), shutdown.clone()));
    spawn_reload(&mut tasks, certificate, api_keys, &shutdown);
    if let Some((listener, options)) = peers {
        // A replica that drains still uses the engines.
        tasks.spawn("peers", picker::exchange_with_peers(listener, Arc::clone(&scheduler), options, drained.clone()));
    }
    let (serve, drained) = (picker::serve_gateway(listener, scheduler, options, shutdown), drained.drop_guard());
    tasks.spawn("gateway", async move {
        let _drained = drained;
        serve.await
    });
    tasks.run().await?;
    Ok(Exit::Success)
}
