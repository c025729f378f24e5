//! `ostler picker`: the endpoint picker of one InferencePool, against any Kubernetes cluster.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use picker::endpoint_picker::{EndpointPicker, Face, self_signed, serve, watch};
use picker::{Policy, PoolKey, policy_file};
use tokio::net::TcpListener;

use super::interrupted;
use crate::connect::{self, ConnectArgs};
use crate::files;
use crate::report::errors::hinted;

/// Flags are named as those of other endpoint pickers, so that one can take the place of another.
#[derive(clap::Args)]
pub(crate) struct PickerArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// InferencePool to pick from
    #[arg(long, value_name = "NAME")]
    pool_name: String,
    /// Namespace of the pool; otherwise the context's
    #[arg(long, value_name = "NAME")]
    pool_namespace: Option<String>,
    /// EndpointPickerConfig; otherwise queue, KV cache and prefix decide
    #[arg(long, value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// Port where gateways ask
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    grpc_port: u16,
    /// Port where probes ask
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    grpc_health_port: u16,
    /// Whether gateways ask over TLS, with a certificate made here
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    secure_serving: bool,
}

pub(super) async fn run(args: PickerArgs) -> Result<ExitCode> {
    let policy = policy(args.config_file.as_deref())?;
    let connection = connect::connect(&args.connect).await?;
    let namespace = args.pool_namespace.unwrap_or(connection.namespace);
    let picks = bind(args.address, args.grpc_port, "--grpc-port").await?;
    let health = bind(args.address, args.grpc_health_port, "--grpc-health-port").await?;
    let tls = args.secure_serving.then(self_signed).transpose()?;
    let picker = EndpointPicker::new(PoolKey { namespace, name: args.pool_name }, policy, fastrand::u64(..));
    let (picker, stop) = (Arc::new(picker), interrupted()?);
    tracing::info!(pool = %picker.pool, address = %picks.local_addr()?, "picking");
    let watching = tokio::spawn(watch(connection.client, Arc::clone(&picker), stop.clone()));
    let probed = tokio::spawn(serve(health, Face::Health, Arc::clone(&picker), stop.clone()));
    serve(picks, Face::Picks(tls), picker, stop).await?;
    probed.await??;
    watching.await?;
    Ok(ExitCode::SUCCESS)
}

fn policy(file: Option<&Path>) -> Result<Policy> {
    let text = file.map(files::text_of).transpose()?.unwrap_or_default();
    policy_file::read(&text).map_err(|error| {
        let name = file.map_or_else(String::new, |file| format!("{}: ", file.display()));
        hinted(format!("{name}{error}"), "correct the configuration, or leave --config-file out")
    })
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
