//! Benchmark of the operator with 2,000 services, 10,000 Pods and 500 nodes on the embedded API server, in two processes
//! connected over HTTPS.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::directories::{example, output_directory, target_directory};
use super::measured_process::{MeasuredProcess, cpu_seconds, peak_mib, resident_mib};
use super::options::Options;
use super::results::{parse_results, print_result};
use super::server::Server;

const METRICS_PORT: u16 = 26_799;
/// Targets, printed with the results.
const TARGET_RECONCILE_P99_MS: f64 = 100.0;
const TARGET_WRITE_FACTOR: f64 = 1.1;
const TARGET_OPERATOR_MIB: f64 = 200.0;
/// Time for the operator to fill its caches.
const SETTLE_TIME: Duration = Duration::from_secs(5);

struct Sizes {
    services: usize,
    unmanaged_pods: usize,
    nodes: usize,
    /// Length of the phase `quiet`.
    idle_seconds: usize,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let size = options.size;
    let sizes = Sizes {
        services: size.scale(2000),
        unmanaged_pods: size.scale(8000),
        nodes: size.scale(500),
        idle_seconds: size.choose(60, 5),
    };
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
    let cpu_percent = (cpu_seconds(operator.pid())? - cpu_before) / sizes.idle_seconds as f64 * 100.0;
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
    let mut command = Command::new(example("scale"));
    command.arg(&server.kubeconfig).arg(name);
    for (name, value) in [
        ("services", sizes.services),
        ("unmanaged_pods", sizes.unmanaged_pods),
        ("nodes", sizes.nodes),
        ("metrics", usize::from(METRICS_PORT)),
        ("seconds", sizes.idle_seconds),
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
