//! Figures of a running `ostler up --demo`: start to first token, idle CPU and memory. Printed, never asserted.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

const SETTLE: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(30);
/// Linux counts CPU time in ticks of 10 ms wherever it matters to us.
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) fn run() -> Result<()> {
    process::run(&mut process::cargo(&["build", "--release", "--package", "ostler"]))?;
    let binary = crate::root().join("target/release/ostler");
    start_to_first_token(&binary)?;
    idle(&binary)
}

fn start_to_first_token(binary: &std::path::Path) -> Result<()> {
    let mut figures = Vec::new();
    for _ in 0..5 {
        let output = up(binary).args(["--once", "-o", "json"]).output().context("ostler up")?;
        if !output.status.success() {
            bail!("ostler up --demo --once: {}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        figures.push(number_after(&text, "\"startToFirstTokenMs\":").context("no startToFirstTokenMs in the answer")?);
    }
    figures.sort_by(f64::total_cmp);
    println!("start to first token   median {} ms, worst {} ms of 5 (aim < 2000)", figures[2], figures[4]);
    Ok(())
}

fn idle(binary: &std::path::Path) -> Result<()> {
    let mut child = up(binary).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let outcome = measure_idle(&mut child);
    child.kill().ok();
    child.wait().ok();
    outcome
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
    println!("idle CPU               {percent:.2} % of a core over {} s (aim < 1)", IDLE.as_secs());
    println!("resident memory        {:.1} MiB (aim < 80)", resident_mib(child.id())?);
    Ok(())
}

fn up(binary: &std::path::Path) -> Command {
    let mut command = Command::new(binary);
    command.args(["up", "--demo", "--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0"]);
    command
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
