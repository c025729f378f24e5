//! Benchmarks. Results are printed with their targets, or next to those of another server, but not asserted.

mod directories;
mod load;
mod measured_process;
mod results;
mod scale;
mod server;
mod up;

use anyhow::{Result, bail};

use crate::process::{self, cargo};
use crate::workspace;

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
    for package in std::fs::read_dir(workspace::root().join("crates"))? {
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
