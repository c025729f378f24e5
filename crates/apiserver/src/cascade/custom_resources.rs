//! Deletes the custom resources of a definition that is being deleted.

use apimachinery::{condition, object};
use serde_json::Value;

use super::consequence::Consequence;
use super::writes;
use crate::core::Core;
use crate::crd;
use crate::deletion::PropagationPolicy;
use crate::resources::definition::{self, CLEANUP_FINALIZER, STORAGE};
use crate::store::{CollectionKey, NamespacedName};
use crate::write::{Committed, Transition};

/// Deletes the custom resource of the definition `name` after `after`, and continues with the next one.
pub(super) fn delete_next(core: &Core, name: String, after: Option<&NamespacedName>) -> Vec<Consequence> {
    let resource = core.registry().by_name(&name);
    let next = resource.and_then(|resource| {
        let collection = CollectionKey { resource: resource.storage.clone(), namespace: None };
        core.store.next_object(&collection, after)
    });
    let Some((key, object)) = next else { return vec![Consequence::FinalizeDefinition { name }] };
    let (resource, propagation) = (name.clone(), PropagationPolicy::Background);
    vec![
        Consequence::Delete { resource, object, propagation },
        Consequence::DeleteCustomResources { definition: name, after: Some(key) },
    ]
}

/// Removes the finalizer of a terminating definition if none of its custom resources remain.
pub(super) fn finalize_if_unused(core: &Core, name: &str) -> Option<Committed> {
    let definition = core.get(STORAGE, "", name)?;
    if !object::is_deleting(&definition) || !is_unused(core, name) {
        return None;
    }
    writes::remove_finalizer(core, &definition::key(name), object::uid(&definition), CLEANUP_FINALIZER)
}

/// Reports whether no custom resources of the definition `name` remain. Resources that are not served count as absent.
fn is_unused(core: &Core, name: &str) -> bool {
    core.registry().by_name(name).is_none_or(|resource| core.store.count(&resource.storage) == 0)
}

/// Updates the status of a definition. Names that it no longer uses are now available to other definitions, and
/// whether owners of its kinds exist is now known.
pub(super) fn reconcile(core: &Core, name: &str) -> (Option<Committed>, Vec<Consequence>) {
    let committed = crd::reconcile_status(core, name);
    let accepted_names = |definition: &Value| definition.pointer("/status/acceptedNames").cloned();
    let is_changed = committed.as_ref().is_some_and(|committed| match &committed.transition {
        Transition::Updated { old, new, .. } => accepted_names(old) != accepted_names(new),
        _ => false,
    });
    let is_waiting = |other: &Value| !condition::is_true(other, "NamesAccepted");
    let mut following = if is_changed { reconcile_others(core, name, is_waiting) } else { Vec::new() };
    let abandoned = core.store.dependents_of_absent_owners().into_iter();
    following.extend(abandoned.map(|key| Consequence::DeleteWithoutOwners { key }));
    (committed, following)
}

/// Stops serving the resources of a removed definition. Its names are now available to other definitions.
pub(super) fn uninstall(core: &Core, definition: &Value) -> Vec<Consequence> {
    // The definition no longer exists, so that nothing is compiled.
    let name = object::name(definition);
    let _ = core.serve_definition(name);
    reconcile_others(core, name, |_| true)
}

/// Returns the updates of the affected definitions in the group of the definition `name`, which share their names.
fn reconcile_others(core: &Core, name: &str, is_affected: impl Fn(&Value) -> bool) -> Vec<Consequence> {
    let definitions = CollectionKey { resource: STORAGE.to_owned(), namespace: None };
    let others = core.store.list(&definitions).objects.into_iter();
    let others = others.filter(|(key, _)| definition::is_in_same_group(&key.1, name));
    let affected = others.filter(|(_, stored)| is_affected(&stored.value()));
    affected.map(|(key, _)| Consequence::ReconcileDefinition { name: key.1.clone() }).collect()
}
