//! What comes from a network: asked for only where it is not here yet, asked for again when the network fails, and told in
//! one line when it stays away. A suite is not wrong because of that.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{self, command};

/// Seconds between two tries.
const PAUSES: [u64; 3] = [2, 8, 32];

/// A Python package of one version, in a virtual environment of its own.
pub(crate) struct Package {
    /// Of `cargo xtask test --with`.
    pub(crate) suite: &'static str,
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

/// How asking for something ended.
enum Asked {
    There,
    /// Nobody was reached.
    OutOfReach,
    /// The answer, which asking again does not change.
    Refused(String),
}

// === impl Package ===

impl Package {
    /// A Python that has the package; none where it cannot be had at present.
    pub(crate) fn python(&self) -> Result<Option<PathBuf>> {
        let venv = crate::root().join(format!("target/{}-venv", self.suite));
        let python = venv.join("bin/python");
        if self.is_in(&python) {
            return Ok(Some(python));
        }
        // What an earlier run was interrupted in is made anew.
        let mut make = command("python3", &["-m", "venv", "--clear", &venv.to_string_lossy()]);
        if process::run(&mut make).is_err() {
            bail!(
                "suite {}: cannot make a virtual environment\nhint: install Python 3.9 or newer with its venv module",
                self.suite
            );
        }
        let wanted = format!("{}=={}", self.name, self.version);
        let pip = || command(&python, &["-m", "pip", "install", "--quiet", "--timeout", "60", &wanted]);
        match asked(pip, index_answered)? {
            Asked::There => Ok(Some(python)),
            Asked::OutOfReach => {
                left_out(self.suite, &wanted, "`pip config` says which index is asked");
                Ok(None)
            }
            Asked::Refused(said) => bail!(
                "suite {}: cannot install {wanted}: {said}\nhint: it comes from PyPI; `pip config` says which index is asked",
                self.suite
            ),
        }
    }

    fn is_in(&self, python: &Path) -> bool {
        let script = "import importlib.metadata as m, sys; sys.exit(m.version(sys.argv[1]) != sys.argv[2])";
        let asked = command(python, &["-c", script, self.name, self.version]).output();
        asked.is_ok_and(|answer| answer.status.success())
    }
}

/// The modules of the Go module in `folder`; false where they cannot be had at present.
pub(crate) fn go_modules(suite: &str, folder: &Path) -> Result<bool> {
    let download = || {
        let mut download = command("go", &["mod", "download"]);
        download.current_dir(folder);
        download
    };
    match asked(download, |said| said.contains("requires go >=") || said.contains("SECURITY ERROR"))? {
        Asked::There => Ok(true),
        Asked::OutOfReach => {
            left_out(suite, "its modules", "they come from $GOPROXY");
            Ok(false)
        }
        Asked::Refused(said) => bail!("suite {suite}: {said}\nhint: install Go 1.26 or newer"),
    }
}

/// Runs it until it succeeds, or is answered, or has been tried often enough.
fn asked(ask: impl Fn() -> Command, answered: impl Fn(&str) -> bool) -> Result<Asked> {
    for pause in PAUSES.iter().map(Some).chain([None]) {
        let mut command = ask();
        eprintln!("$ {}", process::line(&command));
        let output = command.output().with_context(|| format!("cannot start `{}`", process::line(&command)))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() {
            return Ok(Asked::There);
        }
        eprintln!("{said}");
        if answered(&said) {
            return Ok(Asked::Refused(said.lines().last().unwrap_or_default().to_owned()));
        }
        if let Some(seconds) = pause {
            eprintln!("… again in {seconds} s");
            std::thread::sleep(Duration::from_secs(*seconds));
        }
    }
    Ok(Asked::OutOfReach)
}

/// pip lists the versions that an index has; it has none where the index was not reached.
fn index_answered(said: &str) -> bool {
    said.contains("(from versions: ") && !said.contains("(from versions: none)")
}

fn left_out(suite: &str, what: &str, hint: &str) {
    eprintln!("suite {suite}: left out, {what} cannot be downloaded now ({hint})");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_has_other_versions_was_reached() {
        assert!(index_answered(
            "ERROR: Could not find a version that satisfies the requirement a==9 (from versions: 1, 2)"
        ));
        assert!(!index_answered(
            "ERROR: Could not find a version that satisfies the requirement a==9 (from versions: none)"
        ));
        assert!(!index_answered("ERROR: HTTPSConnectionPool: Read timed out."));
    }

    #[test]
    fn what_is_answered_is_not_asked_again() {
        let ask = || {
            let mut ask = Command::new("sh");
            ask.args(["-c", "echo no >&2; exit 1"]);
            ask
        };
        assert!(matches!(asked(ask, |said| said == "no"), Ok(Asked::Refused(said)) if said == "no"));
    }
}
