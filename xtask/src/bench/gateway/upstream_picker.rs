//! The endpoint picker (EPP) of the Gateway API Inference Extension behind Envoy.

use std::process::Command;

use anyhow::Result;

use super::backends::Backends;
use super::envoy;
use super::peer::{self, Peer};
use crate::epp::Epp;

pub(super) const NAME: &str = "EPP 1.5.0 behind Envoy";

const ENVOY_PORT: u16 = 26_807;
const PICKER_PORT: u16 = 26_808;
const HEALTH_PORT: u16 = 26_809;
const METRICS_PORT: u16 = 26_810;

/// Returns the picker, or `None` if it cannot be built. With `small`, it is not built: that takes minutes.
pub(super) fn find(small: bool) -> Option<Epp> {
    let epp = if small { Epp::built() } else { Epp::build() };
    epp.inspect_err(|error| eprintln!("{NAME}: skipped: {error:#}")).ok()
}

/// Starts the picker without a configuration: with queue, KV cache and prefix scorers. Returns `None` if Envoy cannot be
/// downloaded.
pub(super) fn start(backends: &Backends, picker: &Epp) -> Result<Option<Peer>> {
    let Some(envoy) = envoy::start_before_picker(backends, ENVOY_PORT, PICKER_PORT)? else { return Ok(None) };
    let mut command = Command::new(&picker.program);
    command.env("KUBECONFIG", backends.kubeconfig());
    command.args(["--pool-name", "pool", "--pool-namespace", "default", "--secure-serving=false"]);
    command.args(["--metrics-endpoint-auth=false", "--tracing=false", "--zap-log-level=error"]);
    for (flag, port) in
        [("--grpc-port", PICKER_PORT), ("--grpc-health-port", HEALTH_PORT), ("--metrics-port", METRICS_PORT)]
    {
        command.args([flag, &port.to_string()]);
    }
    let picker = peer::start_process(backends, "epp", &mut command)?;
    Ok(Some(Peer::new(NAME, ENVOY_PORT, picker, vec![envoy])))
}
