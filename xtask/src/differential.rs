//! The embedded server beside a real kube-apiserver, which the test starts from its binaries.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::process::{self, cargo};

/// What the test starts.
const BINARIES: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];

/// The scripts of requests against a living kube-apiserver, which must answer as recorded.
pub(crate) fn run() -> Result<()> {
    let folder = folder();
    if let Some(missing) = BINARIES.iter().find(|name| !folder.join(name).is_file()) {
        bail!(
            "suite realcluster: no {missing} in {}\nhint: set OSTLER_KUBERNETES to a folder with {}",
            folder.display(),
            BINARIES.join(", ")
        );
    }
    let test = ["test", "--package", "embedded", "--test", "it", "--", "--ignored", "--exact", "differential::live"];
    process::run(cargo(&test).env("OSTLER_KUBERNETES", &folder))
}

fn folder() -> PathBuf {
    let cache = || std::env::home_dir().unwrap_or_default().join(".cache/ostler/realcluster/bin");
    std::env::var_os("OSTLER_KUBERNETES").map_or_else(cache, PathBuf::from)
}
