//! Custom resource definitions. The resources of a definition are served before its condition `Established` becomes
//! visible.
//!
//! Conversion between versions changes only `apiVersion` (`strategy: None`). Conversion webhooks are not supported.

mod accepted_names;

use std::sync::Arc;

use apimachinery::object;
use serde_json::Value;

use crate::core::Core;
use crate::resources::definition::{self, STORAGE};
use crate::resources::{Registry, Resource, custom_resources};
use crate::write::{self, Committed, Proposal, Subresource, WriteOptions, WriteRequest};

/// Updates `acceptedNames` and the conditions of a definition, and serves its resources once it is established.
pub(crate) fn reconcile_status(core: &Core, name: &str) -> Option<Committed> {
    let resource = core.registry().by_name(STORAGE)?;
    let options = WriteOptions { manager: "kube-apiserver".to_owned(), ..WriteOptions::default() };
    let request =
        WriteRequest { resource: &resource, subresource: Subresource::Status, namespace: "", options: &options };
    let propose = |current: Option<&Value>| {
        let mut definition = current.cloned().unwrap_or_default();
        let status = accepted_names::naming_status(core, &definition, &object::format_time(core.now()));
        object::members(&mut definition).insert("status".to_owned(), status);
        Ok(Proposal::Update(definition))
    };
    match write::modify(core, &request, name, &propose) {
        Ok(result) => {
            if definition::is_established(&result.object) {
                install(core, &result.object);
            }
            result.committed
        }
        Err(error) => {
            tracing::warn!(name, %error, "failed to update the status of a custom resource definition");
            None
        }
    }
}

/// Rebuilds the registry from the stored definitions that are established. Returns the other definitions, whose status
/// has to be reconciled.
pub(crate) fn reload_registry(core: &Core) -> Vec<Arc<Value>> {
    let (established, others): (Vec<_>, Vec<_>) =
        core.list(STORAGE).into_iter().partition(|definition| definition::is_established(definition));
    core.update_registry(|registry| {
        *registry = Registry::builtin();
        for definition in &established {
            custom_resources(definition).for_each(|resource| registry.insert(resource));
        }
    });
    others
}

/// Updates the served resources to those of the current definition.
fn install(core: &Core, definition: &Value) {
    let resources: Vec<Resource> = custom_resources(definition).collect();
    core.update_registry(|registry| {
        registry.remove(object::name(definition));
        for resource in resources {
            registry.insert(resource);
        }
    });
}

/// Stops serving the resources of a definition.
pub(crate) fn uninstall(core: &Core, definition: &Value) {
    core.update_registry(|registry| registry.remove(object::name(definition)));
}
