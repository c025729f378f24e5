//! A running program: its output goes to a file, and it ends with its value.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How long anything is waited for. What comes is never late: it ends the wait, on a loaded machine after minutes.
pub const SECONDS: u64 = 600;
/// Between two looks at what has no way to tell.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// One running program.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

// === impl Process ===

impl Process {
    /// Starts `command`; stdout and stderr go to `LOGS/NAME.log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &str, command: &mut Command, logs: &Path) -> Result<Self> {
        std::fs::create_dir_all(logs)?;
        let log = logs.join(format!("{name}.log"));
        let out = std::fs::File::create(&log)?;
        let child = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn();
        Ok(Self { name: name.to_owned(), child: child.with_context(|| format!("cannot start {name}"))?, log })
    }

    /// The process's number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until `ready`; an end of the process is an error with its last lines.
    ///
    /// # Errors
    /// It ended, or takes too long.
    pub async fn until(&mut self, what: &str, mut ready: impl AsyncFnMut() -> bool) -> Result<()> {
        let began = Instant::now();
        while !ready().await {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status} before {what}: {}", self.name, self.last_lines());
            }
            if began.elapsed() > Duration::from_secs(SECONDS) {
                bail!("{}: no {what} after {SECONDS} s: {}", self.name, self.last_lines());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Waits until something listens at `address`.
    ///
    /// # Errors
    /// It ended, or takes too long.
    pub async fn listens(&mut self, address: SocketAddr) -> Result<()> {
        self.until("listener", async || tokio::net::TcpStream::connect(address).await.is_ok()).await
    }

    /// Asks it to end (SIGTERM), and waits.
    ///
    /// # Errors
    /// It does not end.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        if let (Ok(None), Ok(number)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let number = rustix::process::Pid::from_raw(number).context("process number")?;
            rustix::process::kill_process(number, rustix::process::Signal::TERM)?;
        }
        self.ended().await
    }

    /// Ends it at once (SIGKILL).
    ///
    /// # Errors
    /// The system's.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() > Duration::from_secs(SECONDS) {
                bail!("{} does not end", self.name);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn last_lines(&self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
