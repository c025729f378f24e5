//! Figures of a running `ostler up --demo` (start to first token, idle CPU, memory) and of the crates' own examples.
//! Printed beside their aims, never asserted.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

const SETTLE: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(30);
/// Linux counts CPU time in ticks of 10 ms wherever it matters to us.
const TICKS_PER_SECOND: f64 = 100.0;

const RUNS: usize = 5;
/// Aims, printed beside what was measured.
const FIRST_TOKEN_MS: f64 = 2000.0;
const IDLE_PERCENT: f64 = 1.0;
const RESIDENT_MIB: f64 = 80.0;

/// First the running system, then every example called `bench_…` of a crate.
pub(crate) fn run() -> Result<()> {
    process::run(&mut process::cargo(&["build", "--release", "--package", "ostler"]))?;
    let binary = target().join("release/ostler");
    start_to_first_token(&binary)?;
    idle(&binary)?;
    for (package, example) in examples()? {
        let args = ["run", "--release", "--quiet", "--package", &package, "--example", &example];
        process::run(&mut process::cargo(&args))?;
    }
    Ok(())
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// `crates/PACKAGE/examples/bench_NAME.rs`, in order.
fn examples() -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for package in std::fs::read_dir(crate::root().join("crates"))? {
        let package = package?;
        let Ok(files) = std::fs::read_dir(package.path().join("examples")) else { continue };
        for file in files {
            let path = file?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("bench_") && path.extension().is_some_and(|extension| extension == "rs") {
                found.push((package.file_name().to_string_lossy().into_owned(), name));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// `first token   median 240 ms = 0.12 of the aim (2000 ms)`.
fn print(what: &str, measured: f64, unit: &str, aim: f64) {
    println!("{what:<24} {measured:.2} {unit} = {:.2} of the aim ({aim} {unit})", measured / aim);
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
    figures.sort_by(f64::total_cmp);
    print("first token, median", figures[RUNS / 2], "ms", FIRST_TOKEN_MS);
    print("first token, worst", figures[RUNS - 1], "ms", FIRST_TOKEN_MS);
    Ok(())
}

fn idle(binary: &Path) -> Result<()> {
    let mut child = up(binary)?.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let outcome = measure_idle(&mut child);
    // As a user ends it, so that nothing of it is left.
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().ok();
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
    let before = cpu_ticks(child.id())?;
    std::thread::sleep(IDLE);
    let ticks = cpu_ticks(child.id())? - before;
    let percent = ticks / TICKS_PER_SECOND / IDLE.as_secs_f64() * 100.0;
    print("idle CPU of one core", percent, "%", IDLE_PERCENT);
    print("resident memory", resident_mib(child.id())?, "MiB", RESIDENT_MIB);
    Ok(())
}

/// With a folder of its own: a running `ostler up` of the user keeps its kubeconfig.
fn up(binary: &Path) -> Result<Command> {
    let folder = target().join("bench");
    std::fs::create_dir_all(&folder)?;
    let mut command = Command::new(binary);
    command.args(["up", "--demo", "--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--data-dir"]).arg(folder);
    Ok(command)
}

/// User plus system time, from `/proc/PID/stat`.
fn cpu_ticks(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("idle CPU is read on Linux only")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let [user, system] = [fields.get(11), fields.get(12)].map(|f| f.and_then(|f| f.parse::<f64>().ok()));
    user.zip(system).map(|(user, system)| user + system).context("unexpected /proc/PID/stat")
}

fn resident_mib(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

fn number_after(text: &str, key: &str) -> Option<f64> {
    let rest = text[text.find(key)? + key.len()..].trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}
