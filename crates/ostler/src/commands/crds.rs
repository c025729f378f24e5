//! `ostler crds`: prints the CustomResourceDefinitions as YAML for `kubectl apply -f -`.

use std::process::ExitCode;

use anyhow::Result;

use crate::output;

pub(super) fn run() -> Result<ExitCode> {
    let mut text = String::new();
    for crd in api::crds() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd)?);
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
