//! `ostler crds`: our custom resource definitions as YAML, ready for `kubectl apply -f -`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

pub(super) fn run() -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for crd in api::crds() {
        writeln!(out, "---\n{}", serde_saphyr::to_string(&crd)?.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}
