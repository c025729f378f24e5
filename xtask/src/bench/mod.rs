//! Benchmarks. Results are printed with their targets, or next to those of another server, but not asserted.

mod load;
mod measured_process;
mod scale;
mod server;
mod up;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::process::{self, cargo};

const USAGE: &str =
    "usage: cargo xtask bench [up | examples | load [--beside DIR] [--small] | scale [--small | --half]]";

pub(crate) fn run(args: &[&str]) -> Result<()> {
    match args {
        [] => {
            up::run()?;
            examples()
        }
        ["up"] => up::run(),
        ["examples"] => examples(),
        ["load", options @ ..] => load::run(options),
        ["scale", options @ ..] => scale::run(options),
        unknown => bail!("unknown benchmark {unknown:?}\n{USAGE}"),
    }
}

/// Runs all examples with the name `bench_*`.
fn examples() -> Result<()> {
    for (package, example) in bench_examples()? {
        process::run(&mut cargo(&["run", "--release", "--quiet", "--package", &package, "--example", &example]))?;
    }
    Ok(())
}

/// Returns package and name of all `crates/PACKAGE/examples/bench_*.rs`, sorted.
fn bench_examples() -> Result<Vec<(String, String)>> {
    let mut examples = Vec::new();
    for package in std::fs::read_dir(crate::root().join("crates"))? {
        let package = package?;
        let Ok(files) = std::fs::read_dir(package.path().join("examples")) else { continue };
        for file in files {
            let path = file?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("bench_") && path.extension().is_some_and(|extension| extension == "rs") {
                examples.push((package.file_name().to_string_lossy().into_owned(), name));
            }
        }
    }
    examples.sort();
    Ok(examples)
}

/// Returns the target directory of cargo.
fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// Creates and returns the output directory of a benchmark.
fn output_directory(name: &str) -> Result<PathBuf> {
    let directory = target_directory().join("bench").join(name);
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// Prints a result with its target: `first token, median   240.00 ms = 0.12 × target (2000 ms)`.
fn print_result(name: &str, value: f64, unit: &str, target: f64) {
    println!("{name:<28} {value:.2} {unit} = {:.2} × target ({target} {unit})", value / target);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
