//! The embedded server beside a real kube-apiserver, which the test starts from its binaries.

use std::path::Path;

use anyhow::Result;

use crate::process::{self, cargo};

/// The scripts of requests against a living kube-apiserver of `folder`, which must answer as recorded; then
/// random sequences, which both must answer alike; then Pods that a kube-scheduler must put where ours does.
pub(crate) fn run(folder: &Path) -> Result<()> {
    for name in ["differential::live", "differential::random::live", "scheduling::live"] {
        let test = ["test", "--package", "embedded", "--test", "it", "--", "--ignored", "--exact", name];
        process::run(cargo(&test).env("OSTLER_REALCLUSTER", folder))?;
    }
    Ok(())
}
