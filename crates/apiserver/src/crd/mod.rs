//! Custom resource definitions. The resources of a definition are served before its condition `Established` becomes
//! visible.
//!
//! Conversion between versions changes only `apiVersion` (`strategy: None`). Conversion webhooks are not supported.

mod accepted_names;

use std::sync::Arc;

use apimachinery::{CaughtPanic, object};
use serde_json::Value;

use crate::core::Core;
use crate::events;
use crate::resources::definition::{self, STORAGE};
use crate::transaction::Transaction;
use crate::write::{self, Committed, Proposal, Subresource, WriteOptions, WriteRequest};

/// Updates `acceptedNames` and the conditions of a definition, and serves its resources once it is established.
pub(crate) fn reconcile_status(core: &Core, name: &str) -> Option<Committed> {
    let resource = core.registry().by_name(STORAGE)?;
    let options = WriteOptions { manager: "kube-apiserver".to_owned(), ..WriteOptions::default() };
    let request =
        WriteRequest { resource: &resource, subresource: Subresource::Status, namespace: "", options: &options };
    let propose = |transaction: &Transaction<'_>, current: Option<&Value>| {
        let mut definition = current.cloned().unwrap_or_default();
        let status = accepted_names::naming_status(transaction, &definition, &object::format_time(core.now()));
        object::members(&mut definition).insert("status".to_owned(), status);
        Ok(Proposal::Update(definition))
    };
    let result = write::modify_with_reads(core, &request, name, &propose);
    if let Some(panic) = core.serve_definition(name)
        && let Some(definition) = core.get(STORAGE, "", name)
    {
        report_unserved(core, &definition, &panic);
    }
    match result {
        Ok(result) => result.committed,
        Err(error) => {
            tracing::warn!(name, %error, "failed to update the status of a custom resource definition");
            None
        }
    }
}

/// Serves the stored definitions that are established. Returns the other definitions, whose status has to be
/// reconciled.
pub(crate) fn reload_registry(core: &Core) -> Vec<Arc<Value>> {
    for (definition, panic) in core.serve_stored_definitions() {
        report_unserved(core, &definition, &panic);
    }
    core.list(STORAGE).into_iter().filter(|definition| !definition::is_established(definition)).collect()
}

fn report_unserved(core: &Core, definition: &Value, panic: &CaughtPanic) {
    let consequence = "Its resources are not served until it is changed.";
    events::report_panic(core, definition, panic, "apiextensions-apiserver", consequence);
}
