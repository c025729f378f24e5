//! The suite against a real Kubernetes control plane, whose binaries must be built beforehand.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{differential, process};

/// Binaries that the tests start.
const BINARIES: [&str; 9] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "lws",
    "volcano-scheduler",
    "volcano-controller-manager",
    "volcano-webhook-manager",
];
/// Go modules whose manifests the tests apply, by the binary built from them.
const MANIFEST_MODULES: [(&str, &str); 2] = [("lws", "sigs.k8s.io/lws"), ("volcano-scheduler", "volcano.sh/volcano")];

/// Runs the differential tests, then the end-to-end tests of the operator. Skips the suite if a dependency is missing.
pub(crate) fn run() -> Result<()> {
    let directory = directory();
    let missing = missing_dependencies(&directory);
    if !missing.is_empty() {
        eprintln!(
            "suite realcluster: skipped: not found in {}: {} (set OSTLER_REALCLUSTER to use another directory)",
            directory.display(),
            missing.join(", ")
        );
        return Ok(());
    }
    differential::run(&directory)?;
    let run = |test| process::run(process::ignored_test(test).arg("--nocapture").env("OSTLER_REALCLUSTER", &directory));
    run("realcluster::journeys")?;
    if !is_on_path("kubectl") {
        eprintln!("suite realcluster: the commands of deploy/README.md are skipped: no kubectl on PATH");
        return Ok(());
    }
    run("realcluster::readme::deploy_readme_is_followed_word_by_word")
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn directory() -> PathBuf {
    let default = || std::env::home_dir().unwrap_or_default().join(".cache/ostler/realcluster");
    std::env::var_os("OSTLER_REALCLUSTER").map_or_else(default, PathBuf::from)
}

fn missing_dependencies(directory: &Path) -> Vec<String> {
    let binaries =
        BINARIES.iter().filter(|name| !directory.join("bin").join(name).is_file()).map(|name| (*name).to_owned());
    let version = |name: &str| std::fs::read_to_string(directory.join("stamps").join(name)).unwrap_or_default();
    let source_directory =
        |(name, module): &&(&str, &str)| go_module_cache().join(format!("{module}@{}", version(name).trim()));
    let sources = MANIFEST_MODULES
        .iter()
        .filter(|entry| !source_directory(entry).is_dir())
        .map(|(_, module)| format!("sources of {module}"));
    binaries.chain(sources).collect()
}

/// Returns the Go module cache, resolved as in the go command.
fn go_module_cache() -> PathBuf {
    let from_env = |name| std::env::var_os(name).map(PathBuf::from);
    let home = || std::env::home_dir().unwrap_or_default().join("go");
    from_env("GOMODCACHE").unwrap_or_else(|| from_env("GOPATH").unwrap_or_else(home).join("pkg/mod"))
}
