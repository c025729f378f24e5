//! Times to first token in real time: gateways in front of simulated engines.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::super::directories::{example, output_directory};
use super::super::options::{Options, Size};
use super::super::results::parse_results;
use super::backends::{Backends, ENGINES, EngineKind, output};
use super::peer::Peer;
use super::{ostler, peers, upstream_picker};

/// Workloads of the simulation that fit the engines, which answer briefly and load no adapters.
const WORKLOADS: [&str; 5] = ["multi-turn chat", "shared-prefix RAG", "long documents", "bursts", "mixed prompt sizes"];

/// Number of engines for which the rates of the workloads were chosen.
const SIMULATED_ENGINES: f64 = 8.0;

/// Time until all gateways know that the engines have restarted.
const RESTART_TIME: Duration = Duration::from_secs(5);

/// Sends each workload to each gateway in turn, to engines that have cached nothing.
pub(in super::super) fn run(options: &Options) -> Result<()> {
    let small = options.size == Size::Small;
    let directory = output_directory("latency")?;
    let upstream = upstream_picker::find(small);
    let definitions = upstream.as_ref().map(|picker| picker.definitions.clone());
    let mut backends = Backends::start(&directory, ostler::binary(small)?, definitions, EngineKind::Simulated)?;
    let peers = peers::start_selectors(&backends, upstream.as_ref())?;
    let names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
    let mut table = format!("| workload | {} |\n|---{}|\n", names.join(" | "), "|---".repeat(names.len()));
    let workloads = if small { &WORKLOADS[1..2] } else { &WORKLOADS };
    for workload in workloads {
        write!(table, "| {workload} |")?;
        for peer in &peers {
            backends.restart_engines()?;
            std::thread::sleep(RESTART_TIME);
            let results = replay(peer, workload, options.size.choose(40, 5))?;
            eprintln!("{:<28} {workload}: {results:?}", peer.name);
            let result = |name: &str| results.iter().find(|(result, _)| result == name).map(|(_, value)| *value);
            let value = |name: &str| result(name).with_context(|| format!("the replay printed no {name}"));
            write!(table, " {:.0} ({:.0})", value("p99_ms")?, value("p50_ms")?)?;
            if value("failures")? > 0.0 {
                write!(table, ", {} of {} failed", value("failures")?, value("failures")? + value("requests")?)?;
            }
            table.push_str(" |");
        }
        table.push('\n');
    }
    print!("P99 (P50) of the time to first token in ms\n\n{table}");
    Ok(())
}

/// Sends the requests of a workload for this number of seconds. Returns the results by name.
fn replay(peer: &Peer, workload: &str, seconds: u32) -> Result<Vec<(String, f64)>> {
    let rate = f64::from(ENGINES) / SIMULATED_ENGINES;
    let mut command = Command::new(example("scheduling"));
    command.args(["replay", &peer.address.to_string(), workload, &seconds.to_string(), &rate.to_string(), "1"]);
    Ok(parse_results(&output(&mut command)?))
}
