//! Benchmarks of single functions: all `crates/PACKAGE/examples/bench_*.rs`, or directories of this name.

use std::process::Command;

use anyhow::Result;

use super::directories::example;
use super::options::{Options, Size};
use crate::process;
use crate::workspace;

/// Returns package and name of all examples, sorted.
pub(super) fn list() -> Result<Vec<(String, String)>> {
    let mut examples = Vec::new();
    for package in std::fs::read_dir(workspace::root().join("crates"))? {
        let package = package?;
        let Ok(files) = std::fs::read_dir(package.path().join("examples")) else { continue };
        for file in files {
            let path = file?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_program = path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
            if name.starts_with("bench_") && is_program {
                examples.push((package.file_name().to_string_lossy().into_owned(), name));
            }
        }
    }
    examples.sort();
    Ok(examples)
}

/// Runs all examples. They print their measurements.
pub(super) fn run(options: &Options) -> Result<()> {
    for (_, name) in list()? {
        let mut command = Command::new(example(&name));
        command.args((options.size == Size::Small).then_some("--small"));
        process::run(&mut command)?;
    }
    Ok(())
}
