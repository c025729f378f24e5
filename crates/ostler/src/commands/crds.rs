//! `ostler crds`: prints the CustomResourceDefinitions as YAML for `kubectl apply -f -`.

use anyhow::Result;

use crate::exit::Exit;
use crate::output;

pub(super) fn run() -> Result<Exit> {
    let mut text = String::new();
    for crd in api::crds() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd)?);
    }
    output::print(&text)?;
    Ok(Exit::Success)
}
