//! Suites that run against other people's parts. A part that is missing fails its suite and says how to get it; what comes
//! from a network that is away leaves it out, with one line.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::downloads::Package;
use crate::process::{self, cargo};
use crate::{clients, realcluster};

const OPENAI: Package = Package { suite: "openai", name: "openai", version: "3.54.0" };

pub(crate) fn run(names: &str) -> Result<()> {
    for name in names.split(',') {
        match name {
            "client-go" => clients::client_go()?,
            "corpus" => corpus()?,
            "kubectl" => kubectl()?,
            "openai" => openai()?,
            "python" => clients::python()?,
            "realcluster" => realcluster::run()?,
            "vllm" => vllm()?,
            other => {
                bail!("unknown suite {other:?}; one of client-go, corpus, kubectl, openai, python, realcluster, vllm")
            }
        }
    }
    Ok(())
}

/// Reads every manifest of other projects, lints those of our kinds, and plans with upstream's runtimes and models.
fn corpus() -> Result<()> {
    let folder =
        std::env::var_os("OSTLER_CORPUS").map_or_else(|| crate::root().join("../shared/corpus"), PathBuf::from);
    if !folder.is_dir() {
        bail!(
            "suite corpus: no folder {}\nhint: set OSTLER_CORPUS to a folder of Kubernetes manifests",
            folder.display()
        );
    }
    let folder = folder.canonicalize()?;
    let lint = ["test", "--package", "api", "--test", "corpus", "--", "--ignored"];
    let plan = ["test", "--package", "ostler", "--test", "it", "--", "--ignored", "corpus::"];
    process::run(cargo(&lint).env("OSTLER_CORPUS", &folder))?;
    process::run(cargo(&plan).env("OSTLER_CORPUS", &folder))
}

/// The journeys of a user with `kubectl`, for every version that is found at the same time.
fn kubectl() -> Result<()> {
    let found = kubectls();
    if found.is_empty() {
        bail!(
            "suite kubectl: none of version 1.29 or newer on PATH\nhint: install kubectl, or name binaries in OSTLER_KUBECTL (separated by `:`)"
        );
    }
    let names: Vec<_> = found.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy()).collect();
    eprintln!("suite kubectl: {}", names.join(", "));
    process::run(ostler_suite("kubectl::journeys").env("OSTLER_KUBECTL", std::env::join_paths(found)?))
}

fn kubectls() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("OSTLER_KUBECTL") {
        return std::env::split_paths(&named).collect();
    }
    let mut found = Vec::new();
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        // Some distributions link one dispatcher on PATH and keep the versions beside it.
        let Ok(kubectl) = folder.join("kubectl").canonicalize() else { continue };
        let beside = kubectl.parent().map(versions_in).unwrap_or_default();
        found.extend(if beside.is_empty() { vec![kubectl] } else { beside });
        break;
    }
    found
}

/// `kubectl.1.29`, `kubectl.1.30`, … of `folder`.
fn versions_in(folder: &Path) -> Vec<PathBuf> {
    const OLDEST: u32 = 29;
    let is_supported = |name: &str| {
        name.strip_prefix("kubectl.1.").and_then(|minor| minor.parse().ok()).is_some_and(|minor: u32| minor >= OLDEST)
    };
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_supported(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The Python `openai` client, in a virtual environment of its own.
fn openai() -> Result<()> {
    let Some(python) = OPENAI.python()? else { return Ok(()) };
    process::run(ostler_suite("suites::openai").env("OSTLER_PYTHON", python))
}

/// One manifest with a real engine: the vLLM of `$OSTLER_VLLM` or of PATH, on this machine's processors.
fn vllm() -> Result<()> {
    let named = std::env::var_os("OSTLER_VLLM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&path).map(|folder| folder.join("vllm")).find(|program| program.is_file());
    let Some(vllm) = named.or_else(on_path).filter(|program| program.is_file()) else {
        bail!(
            "suite vllm: no `vllm` on PATH or in OSTLER_VLLM\nhint: install vLLM for processors in a Python environment (about 6 GB) and name its `bin/vllm`"
        );
    };
    eprintln!("suite vllm: {}", vllm.display());
    process::run(ostler_suite("vllm::a_real_engine_answers").env("OSTLER_VLLM", vllm))
}

pub(crate) fn ostler_suite(name: &str) -> std::process::Command {
    cargo(&["test", "--package", "ostler", "--test", "it", "--", "--ignored", "--exact", name])
}
