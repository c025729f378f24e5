//! Benchmark of `ostler up --demo`: time to first token, idle CPU and memory.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::directories::{output_directory, target_directory};
use super::measured_process::{cpu_seconds, resident_mib, terminate};
use super::options::Options;
use super::results::{median, print_result};

const SETTLE_TIME: Duration = Duration::from_secs(5);
/// Targets, printed with the results.
const TARGET_FIRST_TOKEN_MS: f64 = 2000.0;
const TARGET_IDLE_PERCENT: f64 = 1.0;
const TARGET_RESIDENT_MIB: f64 = 80.0;

pub(super) fn run(options: &Options) -> Result<()> {
    let binary = target_directory().join("release/ostler");
    measure_first_token(&binary, options.size.choose(5, 1))?;
    run_idle(&binary, Duration::from_secs(options.size.choose(30, 3)))
}

fn measure_first_token(binary: &Path, runs: usize) -> Result<()> {
    let mut samples = Vec::new();
    for _ in 0..runs {
        let output = up(binary)?.args(["--once", "-o", "json"]).output().context("ostler up")?;
        if !output.status.success() {
            bail!("ostler up --demo --once: {}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        samples.push(number_after(&text, "\"startToFirstTokenMs\":").context("the output has no startToFirstTokenMs")?);
    }
    let worst = samples.iter().copied().fold(f64::NAN, f64::max);
    print_result("first token, median", median(samples), "ms", TARGET_FIRST_TOKEN_MS);
    print_result("first token, worst", worst, "ms", TARGET_FIRST_TOKEN_MS);
    Ok(())
}

fn run_idle(binary: &Path, time: Duration) -> Result<()> {
    let mut child = up(binary)?.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let result = measure_idle(&mut child, time);
    // SIGTERM lets `ostler up` clean up its processes.
    terminate(child.id());
    let status = child.wait()?;
    result?;
    if !status.success() {
        bail!("ostler up exited with {status} after SIGTERM");
    }
    Ok(())
}

fn measure_idle(child: &mut Child, time: Duration) -> Result<()> {
    let stdout = child.stdout.take().context("stdout is not captured")?;
    let mut lines = BufReader::new(stdout).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("Ctrl-C"))).context("the demo exited early")??;
    std::thread::sleep(SETTLE_TIME);
    let cpu_before = cpu_seconds(child.id())?;
    std::thread::sleep(time);
    let cpu_used = cpu_seconds(child.id())? - cpu_before;
    print_result("idle CPU of one core", cpu_used / time.as_secs_f64() * 100.0, "%", TARGET_IDLE_PERCENT);
    print_result("resident memory", resident_mib(child.id())?, "MiB", TARGET_RESIDENT_MIB);
    Ok(())
}

/// Creates the command with a separate data directory, so that it does not affect a running `ostler up` of the user.
fn up(binary: &Path) -> Result<Command> {
    let mut command = Command::new(binary);
    command.args(["up", "--demo", "--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--data-dir"]);
    command.arg(output_directory("up")?);
    Ok(command)
}

/// Returns the number after the first `key` in `text`.
fn number_after(text: &str, key: &str) -> Option<f64> {
    let rest = text[text.find(key)? + key.len()..].trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}
