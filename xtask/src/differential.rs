//! Differential tests of the embedded cluster against real Kubernetes binaries, which the tests start.

use std::path::Path;

use anyhow::Result;

use crate::process::{self, ignored_test};

/// Runs the differential tests with the binaries in `directory`: recorded requests against kube-apiserver, random request
/// sequences against both servers, and Pod scheduling against kube-scheduler.
pub(crate) fn run(directory: &Path) -> Result<()> {
    for name in ["differential::live", "differential::random::live", "scheduling::live"] {
        process::run(ignored_test(name).env("OSTLER_REALCLUSTER", directory))?;
    }
    Ok(())
}
