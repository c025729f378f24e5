//! HAProxy from Debian with plain round robin.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::super::directories::target_directory;
use super::backends::Backends;
use super::peer::{self, Peer};

pub(super) const NAME: &str = "HAProxy";

const PORT: u16 = 26_801;

/// Debian packages of HAProxy and of the libraries that a minimal system lacks.
const PACKAGES: [&str; 4] = ["haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"];

/// An installed HAProxy.
struct Program {
    path: PathBuf,
    libraries: OsString,
}

/// Starts HAProxy; returns `None` if it is neither on `PATH` nor can be downloaded.
pub(super) fn start(backends: &Backends) -> Result<Option<Peer>> {
    let Some(program) = Program::find()? else {
        eprintln!("HAProxy: skipped: `haproxy` is not on PATH, and `apt-get download` failed");
        return Ok(None);
    };
    let config = peer::write_config(backends, "haproxy.cfg", &config())?;
    let process = peer::start_process(backends, "haproxy", program.command().args(["-db", "-f", &config]))?;
    Ok(Some(Peer::new(&format!("{NAME} {}, round robin", program.version()), PORT, process, Vec::new())))
}

fn config() -> String {
    let servers = Backends::engines().into_iter().enumerate();
    let servers: String = servers.map(|(index, address)| format!("  server engine{index} {address}\n")).collect();
    format!(
        "defaults\n  mode http\n  timeout connect 2s\n  timeout client 60s\n  timeout server 600s\n\
         frontend clients\n  bind {}\n  default_backend engines\n\
         backend engines\n  balance roundrobin\n{servers}",
        peer::loopback(PORT)
    )
}

// === impl Program ===

impl Program {
    fn find() -> Result<Option<Self>> {
        let installed = Self { path: "haproxy".into(), libraries: OsString::new() };
        if installed.runs() {
            return Ok(Some(installed));
        }
        let directory = target_directory().join("haproxy");
        let downloaded = Self::in_directory(&directory);
        if downloaded.runs() {
            return Ok(Some(downloaded));
        }
        download(&directory)?;
        Ok(Some(Self::in_directory(&directory)).filter(Self::runs))
    }

    fn in_directory(directory: &Path) -> Self {
        let libraries = directory.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        Self { path: directory.join("usr/sbin/haproxy"), libraries: libraries.into() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if !self.libraries.is_empty() {
            command.env("LD_LIBRARY_PATH", &self.libraries);
        }
        command
    }

    fn runs(&self) -> bool {
        self.command().arg("-v").output().is_ok_and(|output| output.status.success())
    }

    /// Returns the version: `2.6.12` of `HAProxy version 2.6.12-1+deb12u4 …`.
    fn version(&self) -> String {
        let output = self.command().arg("-v").output().map(|output| output.stdout).unwrap_or_default();
        let text = String::from_utf8_lossy(&output).into_owned();
        let version = text.split(' ').nth(2).unwrap_or_default();
        version.split('-').next().unwrap_or_default().to_owned()
    }
}

/// Downloads and unpacks the packages, without installing them. Other distributions lack some of the libraries, or have them
/// installed.
fn download(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    for package in PACKAGES {
        let mut download = Command::new("apt-get");
        download.args(["download", "--quiet", package]).current_dir(directory);
        eprintln!("$ {}", crate::process::format_command(&download));
        // A missing program shows when HAProxy is started.
        download.output().ok();
    }
    for entry in std::fs::read_dir(directory)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            Command::new("dpkg").arg("-x").args([&file, directory]).output().ok();
        }
    }
    Ok(())
}
