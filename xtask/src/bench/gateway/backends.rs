//! Simulated engines, the API server that lists them, and the load generator.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::super::directories::example;
use super::super::measured_process::MeasuredProcess;
use super::super::results::parse_results;
use super::super::server::Server;

/// Port of the engines, each of which has an address of its own.
const PORT: u16 = 26_800;

/// Number of engines under load.
pub(super) const ENGINES: u8 = 3;

/// Everything that the gateways need.
pub(super) struct Backends {
    /// Directory for configurations and logs.
    pub(super) directory: PathBuf,
    /// Binary of the gateway and the picker under measurement.
    pub(super) ostler: PathBuf,
    server: Server,
    /// Directory with further CustomResourceDefinitions.
    definitions: Option<PathBuf>,
    kind: EngineKind,
    engines: Option<MeasuredProcess>,
}

/// How engines respond.
#[derive(Clone, Copy)]
pub(super) enum EngineKind {
    /// At once.
    Instant,
    /// In the time that an accelerator needs.
    Simulated,
}

/// Results of the load generator.
pub(super) struct LoadResults {
    pub(super) requests: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

// === impl Backends ===

impl Backends {
    /// Starts the engines and an API server with their pool, and with the CustomResourceDefinitions in `definitions`.
    pub(super) fn start(
        directory: &Path,
        ostler: PathBuf,
        definitions: Option<PathBuf>,
        kind: EngineKind,
    ) -> Result<Self> {
        let server = Server::embedded()?;
        let mut backends = Self { directory: directory.to_owned(), ostler, server, definitions, kind, engines: None };
        backends.restart_engines()?;
        backends.create_pool(ENGINES)?;
        Ok(backends)
    }

    /// Starts the engines with empty caches.
    pub(super) fn restart_engines(&mut self) -> Result<()> {
        // Their addresses are free once they are terminated.
        self.engines = None;
        let mut command = match self.kind {
            EngineKind::Instant => Command::new(example("gateway_load")),
            EngineKind::Simulated => Command::new(example("scheduling")),
        };
        match self.kind {
            EngineKind::Instant => command.args(["engines", &format!("0.0.0.0:{PORT}")]),
            EngineKind::Simulated => command.args(["engines", &PORT.to_string(), &ENGINES.to_string()]),
        };
        self.engines = Some(MeasuredProcess::start(&mut command, &self.directory.join("engines.log"))?);
        Ok(())
    }

    /// Returns the kubeconfig of the API server.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.server.kubeconfig
    }

    /// Returns the addresses of the engines under load.
    pub(super) fn engines() -> Vec<SocketAddr> {
        (1..=ENGINES).map(|number| SocketAddr::from(([127, 1, 0, number], PORT))).collect()
    }

    /// Creates the pool and its first `engines` endpoints.
    pub(super) fn create_pool(&self, engines: u8) -> Result<()> {
        let mut command = Command::new(example("gateway_load"));
        command.arg("setup").arg(self.kubeconfig()).args([PORT.to_string(), engines.to_string()]);
        command.args(&self.definitions);
        output(&mut command).map(|_| ())
    }

    /// Sends requests to the gateway at `address`.
    pub(super) fn send_requests(&self, address: SocketAddr, bytes: usize, duration: Duration) -> Result<LoadResults> {
        let mut command = Command::new(example("gateway_load"));
        let seconds = duration.as_secs_f64().to_string();
        command.args(["requests", &address.to_string(), &bytes.to_string(), &seconds]);
        let results = parse_results(&output(&mut command)?);
        let result = |name: &str| {
            let found = results.iter().find(|(result, _)| result == name);
            found.map(|(_, value)| *value).with_context(|| format!("the load generator printed no {name}"))
        };
        Ok(LoadResults { requests: result("requests")?, p50_ms: result("p50_ms")?, p99_ms: result("p99_ms")? })
    }
}

/// Runs a command and returns its standard output.
pub(super) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().context("failed to run the load generator")?;
    if !output.status.success() {
        bail!("{}: {}", crate::process::format_command(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}
