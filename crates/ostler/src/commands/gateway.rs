//! `ostler gateway`: the native gateway, against any Kubernetes cluster.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use tokio::net::TcpListener;

use super::{bind_error, interrupted};
use crate::connect::{self, ConnectArgs};

#[derive(clap::Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

pub(super) async fn run(args: GatewayArgs) -> Result<ExitCode> {
    let client = connect::client(&args.connect).await?;
    let listener = TcpListener::bind(args.listen).await.map_err(|error| bind_error(args.listen, "--listen", &error))?;
    let pools = Arc::new(picker::Pools::new(fastrand::u64(..)));
    let stop = interrupted()?;
    let watch = tokio::spawn(picker::watch::run(client, Arc::clone(&pools), stop.clone()));
    picker::gateway::serve(listener, pools, stop).await?;
    watch.await?;
    Ok(ExitCode::SUCCESS)
}
