//! Processes under measurement: started quietly, looked at in `/proc`, and ended as a user ends them.

use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// Linux counts CPU time in ticks of 10 ms wherever it matters to us.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process that does not outlive this value.
pub(super) struct Running(Child);

// === impl Running ===

impl Running {
    /// With its output going to `log`.
    pub(super) fn start(command: &mut Command, log: &std::path::Path) -> Result<Self> {
        let file = std::fs::File::create(log).with_context(|| log.display().to_string())?;
        let command = command.stdout(file.try_clone()?).stderr(file).stdin(Stdio::null());
        Ok(Self(command.spawn().with_context(|| command.get_program().to_string_lossy().into_owned())?))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn stop(&mut self) -> Result<ExitStatus> {
        terminate(self.pid());
        Ok(self.0.wait()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop().ok();
    }
}

pub(super) fn terminate(pid: u32) {
    Command::new("kill").args(["-TERM", &pid.to_string()]).stderr(Stdio::null()).status().ok();
}

/// User plus system time in seconds, from `/proc/PID/stat`.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("CPU time is read on Linux only")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let [user, system] = [fields.get(11), fields.get(12)].map(|f| f.and_then(|f| f.parse::<f64>().ok()));
    let ticks = user.zip(system).map(|(user, system)| user + system).context("unexpected /proc/PID/stat")?;
    Ok(ticks / TICKS_PER_SECOND)
}

pub(super) fn resident_mib(pid: u32) -> Result<f64> {
    in_status(pid, "VmRSS:")
}

/// The most it ever had.
pub(super) fn peak_mib(pid: u32) -> Result<f64> {
    in_status(pid, "VmHWM:")
}

fn in_status(pid: u32, field: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field}"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
