//! What follows from a committed write: garbage collection, the cleanup of namespaces and custom resource definitions,
//! and the status of definitions.
//!
//! In a real cluster, the garbage collector and the namespace controller run asynchronously. Here, their work is part
//! of the write request: [`run`] drains a stack of [consequences](Consequence). A step returns the consequences of its
//! own write, which precede those that were already waiting.

mod consequence;
mod custom_resources;
mod garbage_collection;
mod namespace_contents;
mod owner_cycle;
#[cfg(test)]
mod tests;
mod writes;

use std::sync::Arc;

use apimachinery::{CaughtPanic, catch_panic, object, panic_retry_delay};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::async_worker;
use crate::core::Core;
use crate::cpu_threads::yield_thread;
use crate::crd;
use crate::events;
use crate::resources::definition;
use crate::store::{CollectionKey, NamespacedName, ObjectKey};
use crate::write::{Committed, Subresource, Transition};
use consequence::Consequence;

/// Number of steps after which a cascade counts as CPU-heavy. The removal of an object without dependents takes at most four.
const MAX_CHEAP_STEPS: usize = 4;

/// Carries out everything that follows from a committed write.
pub(crate) fn run(core: &Core, committed: Committed) {
    if committed.key.resource == events::EVENTS {
        events::remove_expired(core);
    }
    drain(core, consequences(committed));
}

/// Restores what is derived from the store: the served custom resources, and garbage collection and deletions that a
/// restart of the process or a rollback of writes has interrupted. An object that causes a panic does not prevent this
/// for the others.
pub(crate) fn resume(core: &Core) {
    for definition in crd::reload_registry(core) {
        drain(core, vec![Consequence::ReconcileDefinition { name: object::name(&definition).to_owned() }]);
    }
    drain(core, garbage_collection::resume_foreground_deletions(core));
    for resource in core.store.resources() {
        let Some(resource) = core.registry().by_name(&resource) else { continue };
        let all_namespaces = CollectionKey { resource: resource.storage.clone(), namespace: None };
        for (key, stored) in core.store.list(&all_namespaces).objects {
            let ((namespace, name), object) = (NamespacedName::clone(&key), stored.value());
            let key = ObjectKey { resource: resource.storage.clone(), namespace, name };
            drain(core, vec![resumed_step(key, object)]);
        }
    }
}

/// Returns the step that continues what an interruption has left undone for an object.
fn resumed_step(key: ObjectKey, object: Arc<Value>) -> Consequence {
    let has_contents = matches!(key.resource.as_str(), "namespaces" | definition::STORAGE);
    if !object::is_deleting(&object) {
        Consequence::DeleteWithoutOwners { key }
    } else if object::waits_for_dependents(&object) && !has_contents {
        // Each of its dependents has a step of its own.
        Consequence::FinishForegroundDeletion { owner_uid: object::uid(&object).to_owned() }
    } else {
        Consequence::Terminate { key, object }
    }
}

/// Repeats the steps that panicked until `stop`. The delays increase as long as steps panic.
///
/// A step may have left any part of a deletion undone, so all unfinished deletions are resumed.
pub(crate) async fn run_retries(core: &Arc<Core>, stop: CancellationToken) {
    let mut failed_retries = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = core.cascade_panics.recorded() => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(panic_retry_delay(failed_retries)) => {}
        }
        core.cascade_panics.reset();
        resume_later(core).await;
        failed_retries = if core.cascade_panics.is_empty() { 0 } else { failed_retries.saturating_add(1) };
    }
}

/// [Resumes](resume) whenever the store has rolled back writes, until `stop`.
pub(crate) async fn resume_after_rollbacks(core: &Arc<Core>, stop: CancellationToken) {
    let mut epoch = core.store.epoch();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            current = core.store.rolled_back(epoch) => epoch = current,
        }
        resume_later(core).await;
    }
}

/// Runs [`resume`], which reads all objects, outside of the async workers. A panic is repeated by [`run_retries`].
async fn resume_later(core: &Arc<Core>) {
    let cloned_core = Arc::clone(core);
    if let Ok(Err(panic)) = core.cpu_threads.run(move || catch_panic(|| resume(&cloned_core))).await {
        tracing::error!(%panic, "failed to resume what follows from writes");
        core.cascade_panics.record();
    }
}

/// Carries out the consequences, each followed by its own consequences. A step that panics does not prevent the others;
/// [`run_retries`] repeats it. Many steps leave the async worker of a caller in this process.
fn drain(core: &Core, consequences: Vec<Consequence>) {
    let mut stack = consequences;
    stack.reverse();
    for _ in 0..MAX_CHEAP_STEPS {
        carry_out_next(core, &mut stack);
    }
    if !stack.is_empty() {
        async_worker::leave(|| {
            while !stack.is_empty() {
                carry_out_next(core, &mut stack);
            }
        });
    }
}

/// Carries out the next consequence. Waits before while the journal is behind.
fn carry_out_next(core: &Core, stack: &mut Vec<Consequence>) {
    let Some(consequence) = stack.pop() else { return };
    yield_thread();
    core.store.wait_for_journal();
    match catch_panic(|| carry_out(core, &consequence)) {
        Ok(following) => stack.extend(following.into_iter().rev()),
        Err(panic) => report_panic(core, &consequence, &panic),
    }
}

fn report_panic(core: &Core, consequence: &Consequence, panic: &CaughtPanic) {
    core.cascade_panics.record();
    let key = consequence.object_key();
    match key.as_ref().and_then(|key| core.store.get(key)) {
        Some(object) => {
            let following = "It is repeated with increasing delays, and when the object changes.";
            events::report_panic(core, &object, panic, "garbage-collector-controller", following);
        }
        None => tracing::error!(?key, %panic, "failed to carry out what follows from a write"),
    }
}

/// Returns what follows from a committed write, in order.
fn consequences(committed: Committed) -> Vec<Consequence> {
    let Committed { resource, key, transition } = committed;
    let is_definition = resource.storage == definition::STORAGE;
    let mut consequences = Vec::new();
    match transition {
        Transition::Created { new } => {
            if is_definition {
                consequences.push(Consequence::ReconcileDefinition { name: key.name.clone() });
            }
            if object::owner_references(&new).next().is_some() {
                consequences.push(Consequence::DeleteWithoutOwners { key });
            }
        }
        Transition::Updated { subresource: Subresource::Main, .. } if is_definition => {
            consequences.push(Consequence::ReconcileDefinition { name: key.name });
        }
        Transition::Updated { old, new, .. } => {
            consequences.extend(garbage_collection::owner_changes(key, &old, &new));
        }
        Transition::Terminating { new } => consequences.push(Consequence::Terminate { key, object: new }),
        Transition::Removed { old } => {
            if is_definition {
                consequences.push(Consequence::UninstallDefinition { definition: old.clone() });
            }
            consequences.push(Consequence::ReleaseOwners { removed: old });
            consequences.push(Consequence::FinalizeNamespace { name: key.namespace });
            if resource.custom {
                consequences.push(Consequence::FinalizeDefinition { name: key.resource });
            }
        }
    }
    consequences
}

/// Carries out one step and returns what follows from it, in order.
fn carry_out(core: &Core, consequence: &Consequence) -> Vec<Consequence> {
    let following = |committed: Option<Committed>| committed.map(consequences).unwrap_or_default();
    match consequence {
        Consequence::DeleteWithoutOwners { key } => {
            let (committed, others) = garbage_collection::delete_without_owners(core, key);
            following(committed).into_iter().chain(others).collect()
        }
        Consequence::Delete { resource, object, propagation } => {
            following(writes::delete(core, resource, object, *propagation))
        }
        Consequence::Terminate { key, object } => {
            let dependents = garbage_collection::process_dependents(core, key.clone(), object);
            let contents = match key.resource.as_str() {
                "namespaces" => namespace_contents::delete_next(core, key.name.clone(), None),
                definition::STORAGE => custom_resources::delete_next(core, key.name.clone(), None),
                _ => Vec::new(),
            };
            dependents.into_iter().chain(contents).collect()
        }
        Consequence::ReleaseOwners { removed } => garbage_collection::release_owners(core, removed),
        Consequence::RemoveOwnerReference { key, owner_uid } => {
            following(garbage_collection::remove_owner_reference(core, key, owner_uid))
        }
        Consequence::UnblockOwners { key, uid, owner_uids } => {
            following(garbage_collection::unblock_owners(core, key, uid, owner_uids))
        }
        Consequence::RemoveFinalizer { key, uid, finalizer } => {
            following(writes::remove_finalizer(core, key, uid, finalizer))
        }
        Consequence::FinishForegroundDeletion { owner_uid } => {
            garbage_collection::finish_foreground_deletion(core, owner_uid)
        }
        Consequence::DeleteNamespaceContents { namespace, after } => {
            namespace_contents::delete_next(core, namespace.clone(), after.as_ref())
        }
        Consequence::DeleteCustomResources { definition, after } => {
            custom_resources::delete_next(core, definition.clone(), after.as_ref())
        }
        Consequence::FinalizeNamespace { name } => following(namespace_contents::finalize_if_empty(core, name)),
        Consequence::FinalizeDefinition { name } => following(custom_resources::finalize_if_unused(core, name)),
        Consequence::ReconcileDefinition { name } => {
            let (committed, others) = custom_resources::reconcile(core, name);
            following(committed).into_iter().chain(others).collect()
        }
        Consequence::UninstallDefinition { definition } => custom_resources::uninstall(core, definition),
    }
}
