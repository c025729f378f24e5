//! Processes under measurement: CPU time and memory from `/proc`, terminated with SIGTERM.

use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// Clock ticks per second (`USER_HZ`), 100 on all supported Linux platforms.
const TICKS_PER_SECOND: f64 = 100.0;

/// A child process that is terminated when dropped.
pub(super) struct MeasuredProcess(Child);

// === impl MeasuredProcess ===

impl MeasuredProcess {
    /// Starts a process with its output in the file `log`.
    pub(super) fn start(command: &mut Command, log: &std::path::Path) -> Result<Self> {
        let file = std::fs::File::create(log).with_context(|| log.display().to_string())?;
        let command = command.stdout(file.try_clone()?).stderr(file).stdin(Stdio::null());
        Ok(Self(command.spawn().with_context(|| command.get_program().to_string_lossy().into_owned())?))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Terminates the process and waits for it.
    pub(super) fn stop(&mut self) -> Result<ExitStatus> {
        terminate(self.pid());
        Ok(self.0.wait()?)
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        self.stop().ok();
    }
}

/// Sends SIGTERM.
pub(super) fn terminate(pid: u32) {
    Command::new("kill").args(["-TERM", &pid.to_string()]).stderr(Stdio::null()).status().ok();
}

/// Returns user plus system CPU time in seconds, from `/proc/PID/stat`.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).context("CPU time can be measured on Linux only")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let [user, system] =
        [fields.get(11), fields.get(12)].map(|field| field.and_then(|field| field.parse::<f64>().ok()));
    let ticks = user.zip(system).map(|(user, system)| user + system).context("unexpected format of /proc/PID/stat")?;
    Ok(ticks / TICKS_PER_SECOND)
}

/// Returns the resident memory in MiB.
pub(super) fn resident_mib(pid: u32) -> Result<f64> {
    status_mib(pid, "VmRSS:")
}

/// Returns the peak resident memory in MiB.
pub(super) fn peak_mib(pid: u32) -> Result<f64> {
    status_mib(pid, "VmHWM:")
}

fn status_mib(pid: u32, field: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .with_context(|| format!("/proc/{pid}/status has no {field}"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
