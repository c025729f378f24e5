//! The native gateway, and the endpoint picker behind Envoy.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::super::directories::target_directory;
use super::backends::Backends;
use super::envoy;
use super::peer::{self, Peer};
use crate::process::{self, cargo};

pub(super) const GATEWAY: &str = "ostler gateway";
pub(super) const PICKER: &str = "ostler picker behind Envoy";

const GATEWAY_PORT: u16 = 26_803;
const PICKER_ENVOY_PORT: u16 = 26_804;
const PICKER_PORT: u16 = 26_805;
const PICKER_HEALTH_PORT: u16 = 26_806;

/// Returns the binary as it is released, which is built if necessary: the other gateways are optimized as well. With `small`, the one
/// that was built for all benchmarks.
pub(super) fn binary(small: bool) -> Result<PathBuf> {
    let profile = if small { "release" } else { "dist" };
    if !small {
        process::run(&mut cargo(&["build", "--profile", profile, "--package", "ostler"]))?;
    }
    Ok(target_directory().join(profile).join("ostler"))
}

/// Starts the native gateway with its default policy.
pub(super) fn start_gateway(backends: &Backends) -> Result<Peer> {
    let mut command = ostler("gateway", backends);
    command.args(["--listen", &peer::loopback(GATEWAY_PORT).to_string(), "--metrics", &peer::loopback(0).to_string()]);
    Ok(Peer::new(GATEWAY, GATEWAY_PORT, peer::start_process(backends, "gateway", &mut command)?, Vec::new()))
}

/// Starts the endpoint picker with its default policy and an Envoy; returns `None` if Envoy cannot be downloaded.
pub(super) fn start_picker(backends: &Backends) -> Result<Option<Peer>> {
    let Some(envoy) = envoy::start_before_picker(backends, PICKER_ENVOY_PORT, PICKER_PORT)? else { return Ok(None) };
    let mut command = ostler("picker", backends);
    command.args(["--pool-name", "pool", "--pool-namespace", "default", "--secure-serving=false"]);
    command.args(["--grpc-port", &PICKER_PORT.to_string(), "--grpc-health-port", &PICKER_HEALTH_PORT.to_string()]);
    command.args(["--metrics-port", "0"]);
    let picker = peer::start_process(backends, "picker", &mut command)?;
    Ok(Some(Peer::new(PICKER, PICKER_ENVOY_PORT, picker, vec![envoy])))
}

fn ostler(subcommand: &str, backends: &Backends) -> Command {
    let mut command = Command::new(&backends.ostler);
    command.arg(subcommand).arg("--kubeconfig").arg(backends.kubeconfig());
    command
}
