//! Downloads of test dependencies. Existing files are reused, network failures are retried, and a suite is skipped if
//! its dependencies remain unavailable.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{self, command};
use crate::workspace;

/// Delays between attempts, in seconds.
const RETRY_DELAYS: [u64; 3] = [2, 8, 32];

/// A version of a Python package, installed in a separate virtual environment.
pub(crate) struct Package {
    /// Suite of `cargo xtask test --with` that requires the package.
    pub(crate) suite: &'static str,
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

/// Result of a download.
enum DownloadOutcome {
    Complete,
    /// The server is unreachable.
    Unreachable,
    /// The server responded with an error that a retry does not resolve.
    Failed(String),
}

// === impl Package ===

impl Package {
    /// Returns a Python interpreter with the package; `None` if the package index is unreachable.
    pub(crate) fn python(&self) -> Result<Option<PathBuf>> {
        let venv = workspace::root().join(format!("target/{}-venv", self.suite));
        let python = venv.join("bin/python");
        if self.is_installed(&python) {
            return Ok(Some(python));
        }
        // `--clear` replaces an incomplete environment of an interrupted run.
        let mut create = command("python3", &["-m", "venv", "--clear", &venv.to_string_lossy()]);
        if process::run(&mut create).is_err() {
            bail!(
                "suite {}: failed to create a virtual environment\nhint: install Python 3.9 or newer with its venv module",
                self.suite
            );
        }
        let requirement = format!("{}=={}", self.name, self.version);
        let pip = || command(&python, &["-m", "pip", "install", "--quiet", "--timeout", "60", &requirement]);
        match download(pip, is_index_error)? {
            DownloadOutcome::Complete => Ok(Some(python)),
            DownloadOutcome::Unreachable => {
                report_skipped(self.suite, &requirement, "`pip config list` shows the configured index");
                Ok(None)
            }
            DownloadOutcome::Failed(error) => bail!(
                "suite {}: failed to install {requirement}: {error}\nhint: `pip config list` shows the configured package index",
                self.suite
            ),
        }
    }

    fn is_installed(&self, python: &Path) -> bool {
        let script = "import importlib.metadata as m, sys; sys.exit(m.version(sys.argv[1]) != sys.argv[2])";
        let output = command(python, &["-c", script, self.name, self.version]).output();
        output.is_ok_and(|output| output.status.success())
    }
}

/// Downloads the dependencies of the Go module in `directory`; returns false if the module proxy is unreachable.
pub(crate) fn go_modules(suite: &str, directory: &Path) -> Result<bool> {
    let go_mod_download = || {
        let mut command = command("go", &["mod", "download"]);
        command.current_dir(directory);
        command
    };
    match download(go_mod_download, |stderr| stderr.contains("requires go >=") || stderr.contains("SECURITY ERROR"))? {
        DownloadOutcome::Complete => Ok(true),
        DownloadOutcome::Unreachable => {
            report_skipped(suite, "its Go modules", "set GOPROXY to use another module proxy");
            Ok(false)
        }
        DownloadOutcome::Failed(error) => bail!("suite {suite}: {error}\nhint: install Go 1.26 or newer"),
    }
}

/// Runs a download command until it succeeds, fails with a permanent error, or exhausts its retries.
fn download(
    create_command: impl Fn() -> Command,
    is_permanent_error: impl Fn(&str) -> bool,
) -> Result<DownloadOutcome> {
    for delay in RETRY_DELAYS.iter().map(Some).chain([None]) {
        let mut command = create_command();
        eprintln!("$ {}", process::format_command(&command));
        let output =
            command.output().with_context(|| format!("failed to start `{}`", process::format_command(&command)))?;
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() {
            return Ok(DownloadOutcome::Complete);
        }
        eprintln!("{stderr}");
        if is_permanent_error(&stderr) {
            return Ok(DownloadOutcome::Failed(stderr.lines().last().unwrap_or_default().to_owned()));
        }
        if let Some(seconds) = delay {
            eprintln!("retrying in {seconds} s");
            std::thread::sleep(Duration::from_secs(*seconds));
        }
    }
    Ok(DownloadOutcome::Unreachable)
}

/// Reports whether pip reached the index: its error then lists the available versions.
fn is_index_error(stderr: &str) -> bool {
    stderr.contains("(from versions: ") && !stderr.contains("(from versions: none)")
}

fn report_skipped(suite: &str, dependency: &str, hint: &str) {
    eprintln!("suite {suite}: skipped: {dependency} cannot be downloaded ({hint})");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_errors_of_a_reachable_index() {
        assert!(is_index_error(
            "ERROR: Could not find a version that satisfies the requirement a==9 (from versions: 1, 2)"
        ));
        assert!(!is_index_error(
            "ERROR: Could not find a version that satisfies the requirement a==9 (from versions: none)"
        ));
        assert!(!is_index_error("ERROR: HTTPSConnectionPool: Read timed out."));
    }

    #[test]
    fn does_not_retry_permanent_errors() {
        let create_command = || {
            let mut command = Command::new("sh");
            command.args(["-c", "echo no >&2; exit 1"]);
            command
        };
        assert!(
            matches!(download(create_command, |stderr| stderr == "no"), Ok(DownloadOutcome::Failed(error)) if error == "no")
        );
    }
}
