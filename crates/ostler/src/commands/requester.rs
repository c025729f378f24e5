//! `ostler requester`: runs in the Pod that requests the accelerators of a dual pod.

use std::net::IpAddr;
use std::time::Duration;

use actuation::{Accelerator, RequesterDaemon, RequesterOptions, list_accelerators};
use anyhow::{Result, anyhow};
use clap::ArgAction;

use crate::exit::Exit;
use crate::output;
use crate::report::errors::error_with_hint;
use crate::shutdown::shutdown_token;

/// Run the requester of a dual pod: report its accelerators and the readiness of its engine
///
/// The requester is the container `inference-server` of a Pod that requests accelerators. It reports their UUIDs, from
/// NVIDIA_VISIBLE_DEVICES, nvidia-smi or /proc/driver/nvidia, to a controller of dual pods, which runs the engine in another
/// Pod. After SIGTERM it runs until the controller releases it, or until a second before the grace period ends.
#[derive(clap::Args)]
pub(crate) struct RequesterArgs {
    /// Port of the readiness probe `/ready`
    #[arg(long, value_name = "PORT", env = "PROBES_PORT", default_value_t = 8080)]
    probes_port: u16,
    /// Port of the interface for the controller
    #[arg(long, value_name = "PORT", env = "SPI_PORT", default_value_t = 8081)]
    spi_port: u16,
    /// Port of `/metrics` [default: not served]
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,
    /// Port of `/debug/state` [default: not served]
    #[arg(long, value_name = "PORT")]
    debug_port: Option<u16>,
    /// Listen on this IP address
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    address: IpAddr,
    /// After SIGTERM, wait for the controller; false for controllers that never release
    #[arg(long, action = ArgAction::Set, value_name = "BOOL", default_value_t = true)]
    hold: bool,
    /// terminationGracePeriodSeconds of the Pod
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace_period: u64,
    /// Report these UUIDs instead of the accelerators of the container, for tests
    #[arg(long, value_name = "UUID,…", value_delimiter = ',')]
    mock_gpus: Option<Vec<String>>,
    /// Print index and UUID of each accessible accelerator, and exit
    #[arg(long)]
    list: bool,
}

pub(super) async fn run(args: RequesterArgs) -> Result<Exit> {
    if args.list {
        return list().await;
    }
    let daemon = RequesterDaemon::bind(RequesterOptions {
        address: args.address,
        probes_port: args.probes_port,
        spi_port: args.spi_port,
        metrics_port: args.metrics_port,
        debug_port: args.debug_port,
        mock_accelerators: args.mock_gpus,
        hold: args.hold,
        grace_period: Duration::from_secs(args.grace_period),
    });
    let hint = "choose other ports with --probes-port, --spi-port, --metrics-port and --debug-port";
    let daemon = daemon.await.map_err(|error| error_with_hint(error.to_string(), hint.to_owned()))?;
    let addresses: Vec<String> = daemon.addresses()?.iter().map(ToString::to_string).collect();
    tracing::info!(addresses = addresses.join(","), "requester is listening");
    daemon.run(shutdown_token()?).await?;
    Ok(Exit::Success)
}

async fn list() -> Result<Exit> {
    let found = list_accelerators().await.map_err(|error| anyhow!("no accelerators found: {error}"))?;
    let line = |accelerator: &Accelerator| {
        let index = accelerator.index.map_or_else(|| "-".to_owned(), |index| index.to_string());
        format!("{index}, {}\n", accelerator.uuid)
    };
    output::print(&found.iter().map(line).collect::<String>())?;
    Ok(Exit::Success)
}
