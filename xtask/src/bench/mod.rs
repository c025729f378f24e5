//! Benchmarks. Results are printed with their targets, or next to those of another server, but not asserted.

mod directories;
mod examples;
mod gateway;
mod launcher;
mod load;
mod measured_process;
mod options;
mod requester;
mod results;
mod scale;
mod scheduling;
mod server;
mod simulation;
mod up;

use anyhow::{Result, bail};

use crate::process::{self, cargo};
use options::Options;

const USAGE: &str = "usage: cargo xtask bench [up | requester | launcher | examples | gateway | latency | load | scale | scheduling | simulation] [--half | --small] [--beside DIR]";

/// A benchmark and the programs that it runs.
struct Benchmark {
    name: &'static str,
    /// Package and target of each program, for example `("embedded", "--example", "serve")`.
    programs: Vec<(String, &'static str, String)>,
    run: fn(&Options) -> Result<()>,
}

/// Runs the benchmark named by the first argument, or all.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut benchmarks = benchmarks()?;
    let options = match arguments {
        [name, options @ ..] if !name.starts_with('-') => {
            benchmarks.retain(|benchmark| benchmark.name == *name);
            if benchmarks.is_empty() {
                bail!("unknown benchmark {name:?}\n{USAGE}");
            }
            options
        }
        options => options,
    };
    let options = Options::parse(options)?;
    build(&benchmarks)?;
    for benchmark in &benchmarks {
        println!("# {}", benchmark.name);
        (benchmark.run)(&options)?;
    }
    Ok(())
}

fn benchmarks() -> Result<Vec<Benchmark>> {
    let example = |package: &str, name: &str| (package.to_owned(), "--example", name.to_owned());
    let ostler = || ("ostler".to_owned(), "--bin", "ostler".to_owned());
    let (serve, load) = (example("embedded", "serve"), example("embedded", "load"));
    let gateway_load = example("picker", "gateway_load");
    let functions = examples::list()?.iter().map(|(package, name)| example(package, name)).collect();
    Ok(vec![
        Benchmark { name: "up", programs: vec![ostler()], run: up::run },
        Benchmark { name: "requester", programs: vec![ostler()], run: requester::run },
        Benchmark { name: "launcher", programs: vec![ostler()], run: launcher::run },
        Benchmark { name: "examples", programs: functions, run: examples::run },
        Benchmark {
            name: "gateway",
            programs: vec![ostler(), serve.clone(), load.clone(), gateway_load],
            run: gateway::run,
        },
        Benchmark {
            name: "latency",
            programs: vec![ostler(), serve.clone(), example("picker", "gateway_load"), example("picker", "scheduling")],
            run: gateway::run_latency,
        },
        Benchmark { name: "load", programs: vec![serve.clone(), load], run: load::run },
        Benchmark { name: "scale", programs: vec![ostler(), serve, example("operator", "scale")], run: scale::run },
        Benchmark { name: "scheduling", programs: vec![example("picker", "scheduling")], run: scheduling::run },
        Benchmark { name: "simulation", programs: vec![example("simulation", "run_seeds")], run: simulation::run },
    ])
}

/// Builds the programs of the benchmarks with one command, because separate builds would compile shared dependencies
/// with different features.
fn build(benchmarks: &[Benchmark]) -> Result<()> {
    let mut arguments = vec!["build", "--release"];
    for (package, kind, name) in benchmarks.iter().flat_map(|benchmark| &benchmark.programs) {
        arguments.extend(["--package", package, *kind, name]);
    }
    process::run(&mut cargo(&arguments))
}
