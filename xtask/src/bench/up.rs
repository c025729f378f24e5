//! A running `ostler up --demo`: start to first token, idle CPU, memory.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::process::{cpu_seconds, resident_mib, terminate};
use super::{folder, median, print, target};
use crate::process;

const SETTLE: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(30);

const RUNS: usize = 5;
/// Aims, printed beside what was measured.
const FIRST_TOKEN_MS: f64 = 2000.0;
const IDLE_PERCENT: f64 = 1.0;
const RESIDENT_MIB: f64 = 80.0;

pub(super) fn run() -> Result<()> {
    process::run(&mut process::cargo(&["build", "--release", "--package", "ostler"]))?;
    let binary = target().join("release/ostler");
    start_to_first_token(&binary)?;
    idle(&binary)
}

fn start_to_first_token(binary: &Path) -> Result<()> {
    let mut figures = Vec::new();
    for _ in 0..RUNS {
        let output = up(binary)?.args(["--once", "-o", "json"]).output().context("ostler up")?;
        if !output.status.success() {
            bail!("ostler up --demo --once: {}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        figures.push(number_after(&text, "\"startToFirstTokenMs\":").context("no startToFirstTokenMs in the answer")?);
    }
    let worst = figures.iter().copied().fold(f64::NAN, f64::max);
    print("first token, median", median(figures), "ms", FIRST_TOKEN_MS);
    print("first token, worst", worst, "ms", FIRST_TOKEN_MS);
    Ok(())
}

fn idle(binary: &Path) -> Result<()> {
    let mut child = up(binary)?.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let outcome = measure_idle(&mut child);
    // As a user ends it, so that nothing of it is left.
    terminate(child.id());
    let status = child.wait()?;
    outcome?;
    if !status.success() {
        bail!("ostler up ended with {status} after SIGTERM");
    }
    Ok(())
}

fn measure_idle(child: &mut Child) -> Result<()> {
    let stdout = child.stdout.take().context("no stdout")?;
    let mut lines = BufReader::new(stdout).lines();
    lines.find(|line| line.as_ref().is_ok_and(|l| l.contains("Ctrl-C"))).context("the demo ended early")??;
    std::thread::sleep(SETTLE);
    let before = cpu_seconds(child.id())?;
    std::thread::sleep(IDLE);
    let used = cpu_seconds(child.id())? - before;
    print("idle CPU of one core", used / IDLE.as_secs_f64() * 100.0, "%", IDLE_PERCENT);
    print("resident memory", resident_mib(child.id())?, "MiB", RESIDENT_MIB);
    Ok(())
}

/// With a folder of its own: a running `ostler up` of the user keeps its kubeconfig.
fn up(binary: &Path) -> Result<Command> {
    let mut command = Command::new(binary);
    command.args(["up", "--demo", "--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--data-dir"]);
    command.arg(folder("up")?);
    Ok(command)
}

fn number_after(text: &str, key: &str) -> Option<f64> {
    let rest = text[text.find(key)? + key.len()..].trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}
