//! `ostler picker`: the endpoint picker of one InferencePool, against any Kubernetes cluster.

mod elsewhere;

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use api::duration::Duration;
use picker::endpoint_picker::{EndpointPicker, Face, PoolGroup, Tls, serve, serve_metrics, watch};
use picker::{Policy, PoolKey, policy_file};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::interrupted;
use crate::connect::{self, ConnectArgs};
use crate::files;
use crate::output;
use crate::report::errors::hinted;
use elsewhere::ElsewhereArgs;

/// Flags are named as those of other endpoint pickers, so that one can take the place of another.
#[derive(clap::Args)]
#[command(after_help = RIGHTS)]
pub(crate) struct PickerArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// InferencePool to pick from
    #[arg(long, value_name = "NAME")]
    pool_name: String,
    /// Namespace of the pool; otherwise $NAMESPACE, or the context's
    #[arg(long, value_name = "NAME")]
    pool_namespace: Option<String>,
    /// API group of the pool: inference.networking.k8s.io, or inference.networking.x-k8s.io of older clusters
    #[arg(long, value_name = "GROUP", default_value = "inference.networking.k8s.io", hide_default_value = true)]
    pool_group: PoolGroup,
    /// EndpointPickerConfig; otherwise queue, KV cache and prefix decide
    #[arg(long, value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// The same as text
    #[arg(long, value_name = "YAML", conflicts_with = "config_file")]
    config_text: Option<String>,
    /// Address to listen on; otherwise all addresses inside a Pod, 127.0.0.1 elsewhere
    #[arg(long)]
    address: Option<IpAddr>,
    /// Port where gateways ask
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    grpc_port: u16,
    /// Port where probes ask
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    grpc_health_port: u16,
    /// Port of the metrics page; 0 is none
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// Whether gateways ask over TLS
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    secure_serving: bool,
    /// Folder with tls.crt and tls.key, read again when they are renewed; otherwise a certificate is made here
    #[arg(long, value_name = "FOLDER")]
    cert_path: Option<PathBuf>,
    /// Time after SIGTERM in which requests are still taken, while health says no
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    drain_timeout: Duration,
    #[command(flatten)]
    elsewhere: ElsewhereArgs,
}

const RIGHTS: &str = "\
In the pool's namespace it lists and watches pods, and inferencepools of the pool's group; it writes nothing.";

impl PickerArgs {
    /// What is logged where `OSTLER_LOG` says nothing.
    pub(crate) fn log(&self) -> &'static str {
        self.elsewhere.log()
    }

    fn address(&self) -> IpAddr {
        let in_pod = env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        self.address.unwrap_or(IpAddr::V4(if in_pod { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST }))
    }

    fn namespace(&self, of_context: String) -> String {
        let stated = self.pool_namespace.clone().or_else(|| env::var("NAMESPACE").ok());
        stated.filter(|name| !name.is_empty()).unwrap_or(of_context)
    }

    fn tls(&self) -> Result<Option<Arc<Tls>>> {
        let tls = match (self.secure_serving, &self.cert_path) {
            (false, _) => return Ok(None),
            (true, None) => Tls::self_signed()?,
            (true, Some(folder)) => Tls::from_folder(folder)
                .map_err(|error| hinted(error.to_string(), "--cert-path names a folder with tls.crt and tls.key"))?,
        };
        Ok(Some(Arc::new(tls)))
    }

    /// What the configuration says; what it asks for in vain is told.
    fn policy(&self) -> Result<Policy> {
        let name = match (&self.config_file, &self.config_text) {
            (Some(file), _) => file.display().to_string(),
            (None, Some(_)) => "--config-text".to_owned(),
            (None, None) => String::new(),
        };
        let text = match &self.config_file {
            Some(file) => files::text_of(file)?,
            None => self.config_text.clone().unwrap_or_default(),
        };
        let read = policy_file::read(&text).map_err(|error| hinted(format!("{name}: {error}"), error.hint()))?;
        for warning in read.warnings {
            output::tell(&format!("warning: {name}: {warning}"));
        }
        Ok(read.policy)
    }
}

pub(super) async fn run(args: PickerArgs) -> Result<ExitCode> {
    args.elsewhere.check()?;
    let (policy, tls) = (args.policy()?, args.tls()?);
    let connection = connect::connect(&args.connect).await?;
    let address = args.address();
    let picks = bind(address, args.grpc_port, "--grpc-port").await?;
    let health = bind(address, args.grpc_health_port, "--grpc-health-port").await?;
    let page = match args.metrics_port {
        0 => None,
        port => Some(bind(address, port, "--metrics-port").await?),
    };
    let pool = PoolKey { namespace: args.namespace(connection.namespace), name: args.pool_name };
    let picker = Arc::new(EndpointPicker::new(pool, policy, fastrand::u64(..)));
    tracing::info!(pool = %picker.pool, address = %picks.local_addr()?, tls = tls.is_some(), "picking");
    let stop = drained(Arc::clone(&picker), args.drain_timeout)?;
    let watching = tokio::spawn(watch(connection.client, args.pool_group, Arc::clone(&picker), stop.clone()));
    let probed = tokio::spawn(serve(health, Face::Health, Arc::clone(&picker), stop.clone()));
    if let Some(page) = page {
        tokio::spawn(serve_metrics(page, Arc::clone(&picker), stop.clone()));
    }
    if let Some(tls) = tls.clone() {
        let stop = stop.clone();
        tokio::spawn(async move { tls.keep_fresh(stop).await });
    }
    serve(picks, Face::Picks(tls), picker, stop).await?;
    probed.await??;
    watching.await?;
    Ok(ExitCode::SUCCESS)
}

/// Cancelled when the drain that a signal begins is over.
fn drained(picker: Arc<EndpointPicker>, drain: Duration) -> Result<CancellationToken> {
    let (asked, stop) = (interrupted()?, CancellationToken::new());
    let over = stop.clone();
    tokio::spawn(async move {
        asked.cancelled().await;
        picker.drain();
        tokio::time::sleep(drain.0).await;
        over.cancel();
    });
    Ok(stop)
}

async fn bind(address: IpAddr, port: u16, flag: &str) -> Result<TcpListener> {
    let address = SocketAddr::new(address, port);
    TcpListener::bind(address).await.map_err(|error| {
        hinted(
            format!("cannot listen on {address}: {error}"),
            format!("choose another port with {flag}, or an --address"),
        )
    })
}
