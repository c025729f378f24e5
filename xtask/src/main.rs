//! Project tasks. Depends on no workspace crate, so that it builds in seconds.
//!
//! `cargo xtask test`            all tests that require only this repository and Rust
//! `cargo xtask test --with S,S` suites with external dependencies: client-go, corpus, envoy, epp, kubectl, openai, python, realcluster, vllm
//! `cargo xtask lint`            rustfmt, clippy, module cycles and paths in documents
//! `cargo xtask lint modules [PACKAGE…]` only module cycles
//! `cargo xtask bench`           every benchmark; see `docs/benchmarks.md`
//! `cargo xtask spec`            updates the tests column of docs/conformance

mod bench;
mod clients;
mod differential;
mod download;
mod epp;
mod lint;
mod process;
mod realcluster;
mod spec;
mod suites;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask test [--with client-go,corpus,envoy,epp,kubectl,openai,python,realcluster,vllm] | lint [modules [PACKAGE…]] | bench [up|requester|launcher|examples|gateway|latency|load|scale|scheduling|simulation] | spec";

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
        ["lint", "modules", packages @ ..] => lint::check_modules(packages),
        ["bench", options @ ..] => bench::run(options),
        ["spec"] => spec::write(),
        [] => bail!("no task given\n{USAGE}"),
        unknown => bail!("unknown task {unknown:?}\n{USAGE}"),
    }
}
