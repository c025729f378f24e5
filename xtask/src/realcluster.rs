//! The suite against a real control plane. It is run where somebody has built one, and never built here.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::process;
use crate::{differential, suites};

/// What the tests start.
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
/// Whose manifests they apply, by the binary that was built from it.
const SOURCES: [(&str, &str); 2] = [("lws", "sigs.k8s.io/lws"), ("volcano-scheduler", "volcano.sh/volcano")];

/// Answers of the API server, then the journeys of the operator. What is missing is told in one line.
pub(crate) fn run() -> Result<()> {
    let folder = folder();
    let missing = missing(&folder);
    if !missing.is_empty() {
        eprintln!(
            "suite realcluster: left out, {} not built in {} (OSTLER_REALCLUSTER names another folder)",
            missing.join(", "),
            folder.display()
        );
        return Ok(());
    }
    differential::run(&folder)?;
    let mut journeys = suites::ostler_suite("realcluster::journeys");
    process::run(journeys.arg("--nocapture").env("OSTLER_REALCLUSTER", &folder))
}

fn folder() -> PathBuf {
    let cache = || std::env::home_dir().unwrap_or_default().join(".cache/ostler/realcluster");
    std::env::var_os("OSTLER_REALCLUSTER").map_or_else(cache, PathBuf::from)
}

fn missing(folder: &Path) -> Vec<String> {
    let binaries =
        BINARIES.iter().filter(|name| !folder.join("bin").join(name).is_file()).map(|name| (*name).to_owned());
    let version = |name: &str| std::fs::read_to_string(folder.join("stamps").join(name)).unwrap_or_default();
    let source = |(name, module): &&(&str, &str)| modules().join(format!("{module}@{}", version(name).trim()));
    let sources =
        SOURCES.iter().filter(|one| !source(one).is_dir()).map(|(_, module)| format!("the source of {module}"));
    binaries.chain(sources).collect()
}

/// Go's own rule for where it keeps modules.
fn modules() -> PathBuf {
    let named = |name| std::env::var_os(name).map(PathBuf::from);
    let home = || std::env::home_dir().unwrap_or_default().join("go");
    named("GOMODCACHE").unwrap_or_else(|| named("GOPATH").unwrap_or_else(home).join("pkg/mod"))
}
