//! Reads the value of `--nodes`: node groups in shorthand, or a file with node groups or Node manifests.

use std::path::Path;

use anyhow::Result;
use api::{Document, ManifestError, parse_manifest};
use serde_json::Value;

use crate::files;
use crate::gpus::HostAccelerators;
use crate::report::errors::error_with_hint;

/// Returns the Node objects, and the accelerators of this host if it is one of the nodes.
pub(crate) fn read(value: &Path) -> Result<(Vec<Value>, HostAccelerators)> {
    let display_name = value.display().to_string();
    // A value that looks like a path but does not exist is reported as a missing file.
    let is_file = value.exists() || display_name.contains(['/', '.']);
    let text = if is_file { files::read_text(value)? } else { display_name.clone() };
    let (nodes, accelerators) = if text.contains("kind:") {
        (
            parse_manifest(&display_name, &text)?.into_iter().map(to_node).collect::<Result<Vec<_>>>()?,
            HostAccelerators::default(),
        )
    } else {
        let hint = "write `this` for this host, `this+2×L4` for this host with simulated GPUs, or `8×H100-80G ×2` for simulated nodes, separated by commas or newlines";
        let source = if is_file { display_name.as_str() } else { "--nodes" };
        let entries = super::parse(&text).map_err(|error| error_with_hint(format!("{source}: {error}"), hint))?;
        let accelerators = super::host_accelerators(&entries);
        (super::to_nodes(&entries, &accelerators), accelerators)
    };
    if nodes.is_empty() {
        return Err(error_with_hint(
            format!("{display_name}: no nodes found"),
            "write one group per line, such as `8×H100-80G ×2`",
        ));
    }
    Ok((nodes, accelerators))
}

fn to_node(document: Document) -> Result<Value> {
    if document.is_kind("v1", "Node") && !document.name().is_empty() {
        return Ok(document.value);
    }
    let cause = "expected a Node with a name".to_owned();
    let hint = Some("--nodes accepts node groups or Node manifests; pass other objects with -f".to_owned());
    Err(ManifestError { cause, hint, ..document.manifest_error() }.into())
}
