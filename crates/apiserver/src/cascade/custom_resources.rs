//! Deletes the custom resources of a definition that is being deleted.

use apimachinery::object;
use serde_json::Value;

use super::consequence::Consequence;
use super::writes;
use crate::core::Core;
use crate::deletion::PropagationPolicy;
use crate::resources::definition::{self, CLEANUP_FINALIZER, STORAGE};
use crate::write::Committed;

/// Deletes all custom resources of the definition `name`.
pub(super) fn delete_instances(core: &Core, name: String) -> Vec<Consequence> {
    let propagation = PropagationPolicy::Background;
    let delete = |object| Consequence::Delete { resource: name.clone(), object, propagation };
    let mut consequences: Vec<Consequence> = core.list(&name).into_iter().map(delete).collect();
    consequences.push(Consequence::FinalizeDefinition { name });
    consequences
}

/// Removes the finalizer of a terminating definition if none of its custom resources remain.
pub(super) fn finalize_if_unused(core: &Core, name: &str) -> Option<Committed> {
    let definition = core.get(STORAGE, "", name)?;
    if !object::is_deleting(&definition) || !core.list(name).is_empty() {
        return None;
    }
    writes::remove_finalizer(core, &definition::key(name), object::uid(&definition), CLEANUP_FINALIZER)
}

/// Stops serving the resources of a removed definition. Its names are now available to other definitions.
pub(super) fn uninstall(core: &Core, definition: &Value) -> Vec<Consequence> {
    core.serve_definition(object::name(definition));
    let others = core.list(STORAGE).into_iter();
    others.map(|other| Consequence::ReconcileDefinition { name: object::name(&other).to_owned() }).collect()
}
