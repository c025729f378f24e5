//! Flags of the requester of a dual pod.

use std::net::IpAddr;
use std::time::Duration;

use actuation::RequesterOptions;
use clap::ArgAction;

/// Report the accelerators of a dual pod and the readiness of its engine
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
    pub list: bool,
}

// === impl RequesterArgs ===

impl RequesterArgs {
    /// Returns the options of the requester.
    pub(crate) fn options(self) -> RequesterOptions {
        RequesterOptions {
            address: self.address,
            probes_port: self.probes_port,
            spi_port: self.spi_port,
            metrics_port: self.metrics_port,
            debug_port: self.debug_port,
            mock_accelerators: self.mock_gpus,
            hold: self.hold,
            grace_period: Duration::from_secs(self.grace_period),
        }
    }
}
