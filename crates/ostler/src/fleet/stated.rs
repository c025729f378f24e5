//! Nodes as a person states them on a command line: shorthand, a file of it, or Node manifests.

use std::path::Path;

use anyhow::Result;
use api::manifest::{self, Document, ManifestError};
use serde_json::Value;

use super::Entry;
use crate::files;
use crate::gpus::Gpus;
use crate::report::errors::hinted;

/// Node objects, and the accelerators of this machine where it is one of them.
pub(crate) fn read(stated: &Path) -> Result<(Vec<Value>, Gpus)> {
    let shown = stated.display().to_string();
    // What is no file can only be shorthand; a path that is wrong is told as a path.
    let is_file = stated.exists() || shown.contains(['/', '.']);
    let text = if is_file { files::text_of(stated)? } else { shown.clone() };
    let (nodes, gpus) = if text.contains("kind:") {
        (manifest::read(&shown, &text)?.into_iter().map(node).collect::<Result<Vec<_>>>()?, Gpus::default())
    } else {
        let hint = "`this` is this machine; simulated nodes are written `8×H100-80G ×2`; one group per line or comma";
        let source = if is_file { shown.as_str() } else { "--nodes" };
        let entries = super::parse(&text).map_err(|error| hinted(format!("{source}: {error}"), hint))?;
        let here = entries.contains(&Entry::ThisMachine);
        let gpus = if here { Gpus::discover() } else { Gpus::default() };
        (super::nodes(&entries, &gpus), gpus)
    };
    if nodes.is_empty() {
        return Err(hinted(format!("{shown}: no nodes"), "write one group per line, for example `8×H100-80G ×2`"));
    }
    Ok((nodes, gpus))
}

fn node(document: Document) -> Result<Value> {
    if document.is("v1", "Node") && !document.name().is_empty() {
        return Ok(document.value);
    }
    let cause = "not a Node with a name".to_owned();
    let hint = Some("--nodes takes Node manifests or shorthand; other objects go to -f".to_owned());
    Err(ManifestError { cause, hint, ..document.error() }.into())
}
