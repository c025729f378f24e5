//! A child process with a log file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Timeout of every wait, in seconds; generous because a loaded host may take minutes.
pub const TIMEOUT_SECONDS: u64 = 600;
/// Polling interval.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A child process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

// === impl Process ===

impl Process {
    /// Starts `command` and writes stdout and stderr to `LOGS/NAME.log`.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(name: &str, command: &mut Command, logs: &Path) -> Result<Self> {
        std::fs::create_dir_all(logs)?;
        let log = logs.join(format!("{name}.log"));
        let file = std::fs::File::create(&log)?;
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn();
        Ok(Self { name: name.to_owned(), child: child.with_context(|| format!("failed to start {name}"))?, log })
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output so far.
    #[must_use]
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Polls `ready` until it returns true; `description` names the expected state in errors.
    ///
    /// # Errors
    /// The process exited, or the wait timed out. The error contains the last lines of output.
    pub async fn wait_until(&mut self, description: &str, mut ready: impl AsyncFnMut() -> bool) -> Result<()> {
        let start = Instant::now();
        while !ready().await {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} exited with {status} before {description}: {}", self.name, self.last_lines());
            }
            if start.elapsed() > Duration::from_secs(TIMEOUT_SECONDS) {
                bail!(
                    "{}: timed out waiting for {description} after {TIMEOUT_SECONDS} s: {}",
                    self.name,
                    self.last_lines()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Waits until `address` accepts connections.
    ///
    /// # Errors
    /// The process exited, or the wait timed out.
    pub async fn wait_until_listening(&mut self, address: SocketAddr) -> Result<()> {
        self.wait_until("listener", async || tokio::net::TcpStream::connect(address).await.is_ok()).await
    }

    /// Sends SIGTERM and waits for the exit.
    ///
    /// # Errors
    /// The process does not exit in time.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        if let (Ok(None), Ok(raw_pid)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let pid = rustix::process::Pid::from_raw(raw_pid).context("invalid process id")?;
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        self.wait_for_exit().await
    }

    /// Sends SIGKILL and waits for the exit.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits for the process to exit.
    ///
    /// # Errors
    /// The process does not exit in time.
    pub async fn wait_for_exit(&mut self) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > Duration::from_secs(TIMEOUT_SECONDS) {
                bail!("timed out waiting for {} to exit", self.name);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn last_lines(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
