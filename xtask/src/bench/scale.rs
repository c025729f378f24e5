//! Benchmark of the operator with 2,000 services, 10,000 Pods and 500 nodes on the embedded API server, in two processes
//! connected over HTTPS.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::directories::{output_directory, target_directory};
use super::measured_process::{MeasuredProcess, cpu_seconds, peak_mib, resident_mib};
use super::results::{parse_results, print_result};
use super::server::Server;
use crate::process::{self, cargo};

const METRICS_PORT: u16 = 26_799;
/// Targets, printed with the results.
const TARGET_RECONCILE_P99_MS: f64 = 100.0;
const TARGET_WRITE_FACTOR: f64 = 1.1;
const TARGET_OPERATOR_MIB: f64 = 200.0;
/// Time for the operator to fill its caches.
const SETTLE_TIME: Duration = Duration::from_secs(5);
const IDLE_SECONDS: usize = 60;

struct Sizes {
    services: usize,
    unmanaged_pods: usize,
    nodes: usize,
}

// === impl Sizes ===

impl Sizes {
    fn divided(&self, divisor: usize) -> Sizes {
        Sizes {
            services: self.services / divisor,
            unmanaged_pods: self.unmanaged_pods / divisor,
            nodes: self.nodes / divisor,
        }
    }
}

pub(super) fn run(arguments: &[&str]) -> Result<()> {
    let full_size = Sizes { services: 2000, unmanaged_pods: 8000, nodes: 500 };
    let sizes = match arguments {
        [] => full_size,
        ["--half"] => full_size.divided(2),
        ["--small"] => full_size.divided(10),
        unexpected => bail!(
            "bench scale: unexpected arguments {unexpected:?}\nhint: use --small to divide the sizes by 10, or --half to divide them by 2"
        ),
    };
    // Build all programs with one command, because separate builds would compile shared dependencies with different
    // features.
    const PACKAGES: [&str; 6] = ["--package", "ostler", "--package", "embedded", "--package", "operator"];
    const PROGRAMS: [&str; 6] = ["--bin", "ostler", "--example", "serve", "--example", "scale"];
    process::run(&mut cargo(&[&["build", "--release"], PACKAGES.as_slice(), PROGRAMS.as_slice()].concat()))?;
    let server = Server::embedded()?;
    run_phase(&server, "setup", &sizes)?;
    let operator = start_operator(&server)?;
    std::thread::sleep(SETTLE_TIME);
    println!("{:<28} {:.0} MiB", "operator before any service", resident_mib(operator.pid())?);
    let mut results = Vec::new();
    for name in ["rollout", "edits", "flips", "cordon"] {
        let cpu_before = cpu_seconds(operator.pid())?;
        results.extend(run_phase(&server, name, &sizes)?);
        let (cpu, mib) = (cpu_seconds(operator.pid())? - cpu_before, resident_mib(operator.pid())?);
        println!("{:<28} {cpu:.1} s, then {mib:.0} MiB resident", format!("operator CPU in {name}"));
    }
    let cpu_before = cpu_seconds(operator.pid())?;
    results.extend(run_phase(&server, "quiet", &sizes)?);
    let cpu_percent = (cpu_seconds(operator.pid())? - cpu_before) / IDLE_SECONDS as f64 * 100.0;
    results.push(("quiet_cpu_percent".to_owned(), cpu_percent));
    results.push(("operator_peak_mib".to_owned(), peak_mib(operator.pid())?));
    results.push(("server_mib".to_owned(), server.resident_mib()?));
    for (name, value) in &results {
        println!("{name:<28} {value:.2}");
    }
    let result = |metric: &str| results.iter().find(|(name, _)| name == metric).map_or(f64::NAN, |(_, value)| *value);
    print_result("spec change, p99", result("edit_p99_ms"), "ms", TARGET_RECONCILE_P99_MS);
    print_result("Pod change, p99", result("flip_p99_ms"), "ms", TARGET_RECONCILE_P99_MS);
    print_result("writes, factor of minimum", result("writes_times_ideal"), "", TARGET_WRITE_FACTOR);
    print_result("operator, resident memory", resident_mib(operator.pid())?, "MiB", TARGET_OPERATOR_MIB);
    Ok(())
}

fn start_operator(server: &Server) -> Result<MeasuredProcess> {
    let mut command = Command::new(target_directory().join("release/ostler"));
    command.args([
        "operator",
        "--leader-elect",
        "false",
        "--metrics",
        &format!("127.0.0.1:{METRICS_PORT}"),
        "--kubeconfig",
    ]);
    command.arg(&server.kubeconfig);
    MeasuredProcess::start(&mut command, &output_directory("scale")?.join("operator.log"))
}

fn run_phase(server: &Server, name: &str, sizes: &Sizes) -> Result<Vec<(String, f64)>> {
    let mut command = Command::new(target_directory().join("release/examples/scale"));
    command.arg(&server.kubeconfig).arg(name);
    for (name, value) in [
        ("services", sizes.services),
        ("unmanaged_pods", sizes.unmanaged_pods),
        ("nodes", sizes.nodes),
        ("metrics", usize::from(METRICS_PORT)),
        ("seconds", IDLE_SECONDS),
        ("edits", sizes.services / 10),
        ("flips", sizes.services / 20),
    ] {
        command.arg(format!("{name}={value}"));
    }
    let output = command.output().context("failed to run the scale example")?;
    if !output.status.success() {
        bail!("scale {name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(parse_results(&output.stdout))
}
