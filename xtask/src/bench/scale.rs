//! The operator over 2,000 services, 10,000 Pods and 500 nodes, on the embedded API server: two processes, HTTPS between
//! them.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::process::{Running, cpu_seconds, peak_mib, resident_mib};
use super::server::Server;
use super::{folder, print, target};
use crate::process::{cargo, run as must};

const METRICS: u16 = 26_799;
/// Aims, printed beside what was measured.
const RECONCILE_P99_MS: f64 = 100.0;
const TIMES_IDEAL: f64 = 1.1;
const OPERATOR_MIB: f64 = 200.0;
/// The operator has read everything.
const SETTLE: Duration = Duration::from_secs(5);
const QUIET_S: usize = 60;

struct Sizes {
    services: usize,
    strangers: usize,
    nodes: usize,
}

// === impl Sizes ===

impl Sizes {
    fn divided(&self, by: usize) -> Sizes {
        Sizes { services: self.services / by, strangers: self.strangers / by, nodes: self.nodes / by }
    }
}

pub(super) fn run(words: &[&str]) -> Result<()> {
    let full = Sizes { services: 2000, strangers: 8000, nodes: 500 };
    let sizes = match words {
        [] => full,
        ["--half"] => full.divided(2),
        ["--small"] => full.divided(10),
        other => bail!("bench scale: {other:?}?\nhint: --small divides the sizes by ten, --half by two"),
    };
    // At once: apart, each would build the libraries that they share with other features.
    const PACKAGES: [&str; 6] = ["--package", "ostler", "--package", "embedded", "--package", "operator"];
    const PROGRAMS: [&str; 6] = ["--bin", "ostler", "--example", "serve", "--example", "scale"];
    let _ = (PACKAGES, PROGRAMS, cargo(&[]), must);
    let server = Server::embedded()?;
    phase(&server, "furnish", &sizes)?;
    let operator = operator(&server)?;
    std::thread::sleep(SETTLE);
    println!("{:<28} {:.0} MiB", "operator before any service", resident_mib(operator.pid())?);
    let mut figures = Vec::new();
    for name in ["rollout", "edits", "flips", "cordon"] {
        let used = cpu_seconds(operator.pid())?;
        figures.extend(phase(&server, name, &sizes)?);
        let (used, mib) = (cpu_seconds(operator.pid())? - used, resident_mib(operator.pid())?);
        println!("{:<28} {used:.1} s, then {mib:.0} MiB resident", format!("operator CPU in {name}"));
    }
    let used = cpu_seconds(operator.pid())?;
    figures.extend(phase(&server, "quiet", &sizes)?);
    let used = (cpu_seconds(operator.pid())? - used) / QUIET_S as f64 * 100.0;
    figures.push(("quiet_cpu_percent".to_owned(), used));
    figures.push(("operator_peak_mib".to_owned(), peak_mib(operator.pid())?));
    figures.push(("server_mib".to_owned(), server.resident_mib()?));
    for (name, value) in &figures {
        println!("{name:<28} {value:.2}");
    }
    let of = |wanted: &str| figures.iter().find(|(name, _)| name == wanted).map_or(f64::NAN, |(_, value)| *value);
    print("an edit, p99", of("edit_p99_ms"), "ms", RECONCILE_P99_MS);
    print("a Pod's change, p99", of("flip_p99_ms"), "ms", RECONCILE_P99_MS);
    print("writes, times the ideal", of("writes_times_ideal"), "", TIMES_IDEAL);
    print("operator, resident", resident_mib(operator.pid())?, "MiB", OPERATOR_MIB);
    Ok(())
}

fn operator(server: &Server) -> Result<Running> {
    let mut command = Command::new(target().join("release/ostler"));
    command.args(["operator", "--leader-elect", "false", "--metrics", &format!("127.0.0.1:{METRICS}"), "--kubeconfig"]);
    command.arg(&server.kubeconfig);
    Running::start(&mut command, &folder("scale")?.join("operator.log"))
}

fn phase(server: &Server, name: &str, sizes: &Sizes) -> Result<Vec<(String, f64)>> {
    let mut command = Command::new(target().join("release/examples/scale"));
    command.arg(&server.kubeconfig).arg(name);
    for (name, value) in [
        ("services", sizes.services),
        ("strangers", sizes.strangers),
        ("nodes", sizes.nodes),
        ("metrics", usize::from(METRICS)),
        ("seconds", QUIET_S),
        ("edits", sizes.services / 10),
        ("flips", sizes.services / 20),
    ] {
        command.arg(format!("{name}={value}"));
    }
    let output = command.output().context("scale")?;
    if !output.status.success() {
        bail!("scale {name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(super::server::figures(&output.stdout))
}
