//! Project tasks. Depends on no crate of ours, so that it builds in seconds.
//!
//! `cargo xtask test`            everything the README promises; needs this repository and Rust only
//! `cargo xtask test --with S,S` suites that need somebody else's part: client-go, corpus, kubectl, openai, python, realcluster, vllm
//! `cargo xtask lint`            rustfmt and clippy
//! `cargo xtask bench`           figures of a running `ostler up`, then every `crates/*/examples/bench_*.rs`
//! `cargo xtask bench load`      load on the embedded API server, beside a kube-apiserver with `--beside FOLDER`
//! `cargo xtask bench scale`     the operator over a large cluster
//! `cargo xtask spec`            which rows of docs/conformance have a test

mod bench;
mod clients;
mod differential;
mod downloads;
mod lint;
mod process;
mod realcluster;
mod spec;
mod suites;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask test [--with client-go,corpus,kubectl,openai,python,realcluster,vllm] | lint | bench [load|scale] | spec";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Vec<String>) -> Result<()> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["test"] => test::all(),
        ["test", "--with", names] => suites::run(names),
        ["lint"] => lint::run(),
        ["bench", options @ ..] => bench::run(options),
        ["spec"] => spec::write(),
        [] => bail!("no task given\n{USAGE}"),
        other => bail!("unknown task {other:?}\n{USAGE}"),
    }
}

/// The folder that holds the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map_or(manifest.clone(), PathBuf::from)
}
