//! Figures, printed beside their aims or beside another program's, never asserted.

mod load;
mod process;
mod scale;
mod server;
mod up;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::process::{cargo, run as must};

const USAGE: &str =
    "usage: cargo xtask bench [up | examples | load [--beside FOLDER] [--small] | scale [--small | --half]]";

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
        other => bail!("no bench {other:?}\n{USAGE}"),
    }
}

/// Every example called `bench_…` of a crate.
fn examples() -> Result<()> {
    for (package, example) in found()? {
        must(&mut cargo(&["run", "--release", "--quiet", "--package", &package, "--example", &example]))?;
    }
    Ok(())
}

/// `crates/PACKAGE/examples/bench_NAME.rs`, in order.
fn found() -> Result<Vec<(String, String)>> {
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

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// A folder for what a bench writes.
fn folder(name: &str) -> Result<PathBuf> {
    let folder = target().join("bench").join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// `first token   median 240 ms = 0.12 of the aim (2000 ms)`.
fn print(what: &str, measured: f64, unit: &str, aim: f64) {
    println!("{what:<28} {measured:.2} {unit} = {:.2} of the aim ({aim} {unit})", measured / aim);
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
