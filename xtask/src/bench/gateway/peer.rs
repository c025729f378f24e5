//! Gateways under measurement.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::super::measured_process::{self, MeasuredProcess};
use super::backends::Backends;

/// Time for a gateway to answer its first request.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time of one attempt, and the delay between attempts.
const ATTEMPT: Duration = Duration::from_millis(200);

/// A running gateway.
pub(super) struct Peer {
    pub(super) name: String,
    /// Address for clients.
    pub(super) address: SocketAddr,
    /// The process whose CPU time is measured.
    measured: MeasuredProcess,
    /// Processes between the clients and `measured`.
    _others: Vec<MeasuredProcess>,
}

/// Starts a process of a gateway with its output in the file `NAME.log`.
pub(super) fn start_process(backends: &Backends, name: &str, command: &mut Command) -> Result<MeasuredProcess> {
    MeasuredProcess::start(command, &backends.directory.join(name).with_extension("log"))
}

/// Writes a configuration and returns its path as text.
pub(super) fn write_config(backends: &Backends, file: &str, content: &str) -> Result<String> {
    let path = backends.directory.join(file);
    std::fs::write(&path, content)?;
    Ok(path.display().to_string())
}

/// Returns the loopback address with `port`.
pub(super) fn loopback(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

// === impl Peer ===

impl Peer {
    /// Returns a gateway at `port`, of which the CPU time of `measured` counts.
    pub(super) fn new(name: &str, port: u16, measured: MeasuredProcess, others: Vec<MeasuredProcess>) -> Self {
        Self { name: name.to_owned(), address: loopback(port), measured, _others: others }
    }

    /// Returns the user plus system CPU time of the measured process.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        measured_process::cpu_seconds(self.measured.pid())
    }

    pub(super) fn peak_mib(&self) -> Result<f64> {
        measured_process::peak_mib(self.measured.pid())
    }

    pub(super) fn resident_mib(&self) -> Result<f64> {
        measured_process::resident_mib(self.measured.pid())
    }

    /// Waits until the gateway forwards requests.
    pub(super) fn wait_until_ready(&self, backends: &Backends) -> Result<()> {
        let start = Instant::now();
        let mut reason = "it accepts no connections".to_owned();
        while start.elapsed() < START_TIMEOUT {
            if TcpStream::connect_timeout(&self.address, ATTEMPT).is_ok() {
                match backends.send_requests(self.address, 200, ATTEMPT) {
                    Ok(_) => return Ok(()),
                    Err(error) => reason = error.to_string(),
                }
            }
            std::thread::sleep(ATTEMPT);
        }
        bail!("{} is not ready: {reason}\nhint: see the logs in {}", self.name, backends.directory.display())
    }
}
