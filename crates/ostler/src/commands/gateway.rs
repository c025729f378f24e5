//! `ostler gateway`: runs the built-in gateway against a Kubernetes cluster.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use tokio::net::TcpListener;

use super::{bind_error, shutdown_token};
use crate::connect::{self, ConnectArgs};

#[derive(clap::Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Listen on this address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

pub(super) async fn run(args: GatewayArgs) -> Result<ExitCode> {
    let client = connect::client(&args.connect).await?;
    let listener = TcpListener::bind(args.listen).await.map_err(|error| bind_error(args.listen, "--listen", &error))?;
    tracing::info!(address = %listener.local_addr()?, "gateway is listening");
    let pools = Arc::new(picker::Datastore::new(fastrand::u64(..)));
    let shutdown = shutdown_token()?;
    let watch = tokio::spawn(picker::watch_backend_pools(client, Arc::clone(&pools), shutdown.clone()));
    picker::serve_gateway(listener, pools, shutdown).await?;
    watch.await?;
    Ok(ExitCode::SUCCESS)
}
