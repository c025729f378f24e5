//! Routers that are distributed as Python packages, with their default number of threads.

use std::process::Command;

use anyhow::Result;

use super::backends::Backends;
use super::peer::{self, Peer};
use crate::download::Package;

pub(super) const SGLANG: &str = "sglang-router, cache-aware";
pub(super) const VLLM: &str = "vllm-router, round robin";

const SGLANG_PACKAGE: Package = Package { suite: "sglang-router", name: "sglang-router", version: "0.3.2" };
const VLLM_PACKAGE: Package = Package { suite: "vllm-router", name: "vllm-router", version: "0.1.17" };

const SGLANG_PORT: u16 = 26_811;
const VLLM_PORT: u16 = 26_812;
const METRICS_PORT_OFFSET: u16 = 10;

/// Starts sglang's router with the policy that considers cached prefixes; returns `None` if it cannot be downloaded.
pub(super) fn start_sglang(backends: &Backends) -> Result<Option<Peer>> {
    start(backends, SGLANG, &SGLANG_PACKAGE, "cache_aware", SGLANG_PORT)
}

/// Starts vLLM's router; returns `None` if it cannot be downloaded.
pub(super) fn start_vllm(backends: &Backends) -> Result<Option<Peer>> {
    start(backends, VLLM, &VLLM_PACKAGE, "round_robin", VLLM_PORT)
}

fn start(backends: &Backends, name: &str, package: &Package, policy: &str, port: u16) -> Result<Option<Peer>> {
    let Some(python) = package.python()? else { return Ok(None) };
    let engines = Backends::engines();
    let mut command = Command::new(&python);
    command.args(["-m", &format!("{}.launch_router", package.name.replace('-', "_"))]);
    command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--policy", policy, "--log-level", "error"]);
    command.args(["--prometheus-port", &(port + METRICS_PORT_OFFSET).to_string(), "--prometheus-host", "127.0.0.1"]);
    command.arg("--worker-urls").args(engines.iter().map(|engine| format!("http://{engine}")));
    let process = peer::start_process(backends, package.name, &mut command)?;
    let name = name.replacen(package.name, &format!("{} {}", package.name, package.version), 1);
    Ok(Some(Peer::new(&name, port, process, Vec::new())))
}
