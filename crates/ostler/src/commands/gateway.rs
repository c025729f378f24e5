//! `ostler gateway`: runs the built-in gateway against a Kubernetes cluster.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;

use super::request_memory;
use super::time_limit::TimeLimit;
use crate::background_tasks::BackgroundTasks;
use crate::connect::{self, ConnectArgs};
use crate::exit::Exit;
use crate::listener;
use crate::shutdown::shutdown_token;

#[derive(clap::Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Listen on this address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
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
}

pub(super) async fn run(args: GatewayArgs) -> Result<Exit> {
    let client = connect::client(&args.connect).await?;
    let listener = listener::bind(args.listen, "--listen").await?;
    tracing::info!(address = %listener.local_addr()?, "gateway is listening");
    let scheduler = Arc::new(picker::Scheduler::new(picker::SchedulingPolicy::default(), fastrand::u64(..)));
    let shutdown = shutdown_token()?;
    let mut tasks = BackgroundTasks::new(shutdown.clone());
    tasks.spawn("backend pools", picker::watch_backend_pools(client, Arc::clone(&scheduler), shutdown.clone()));
    let options = picker::GatewayOptions {
        request_memory: args.request_memory,
        drain_timeout: args.drain_timeout.duration(),
        debug_headers: args.debug_headers,
    };
    tasks.spawn("gateway", picker::serve_gateway(listener, scheduler, options, shutdown));
    tasks.run().await?;
    Ok(Exit::Success)
}
