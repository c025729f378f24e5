//! Turns watch events into work: [`effects`] returns what a change requires, and [`handle_change`] does it.

mod api_watches;
mod effects;
mod failed_changes;

use apimachinery::{CaughtPanic, catch_panic};
use cluster::{Change, Kind, LeaderElectionTimings, NamespacedName, Watches, WorkQueue};
use tokio::time::Instant;

use crate::context::Context;
use crate::kinds::{CUSTOM_RESOURCES, POD, RESOURCE_FLAVORS, SERVICES};
use crate::metrics::Operation;
use crate::owning_service::{owning_service, service_of_pod};
use crate::resource_flavors::linked_classes;
use crate::work_item::WorkItem;
use api_watches::{WatchUpdate, log_missing_apis, update_flavor_watch, update_watch};
use effects::{Effects, Outdated, WatchEffect, Work, effects, installation_work, removal_effects};
pub(crate) use failed_changes::FailedChanges;

/// Applies a change to the derived state, starts and stops watches, and enqueues the work that follows. A change that
/// causes a panic, and further changes of its object, wait for [`retry_changes`].
pub(crate) fn handle_change(
    context: &Context,
    change: &Change,
    watches: &mut Watches,
    queue: &mut WorkQueue<WorkItem>,
    failed: &mut FailedChanges,
) {
    if failed.merge(change) {
        return;
    }
    if let Err(panic) = catch_panic(|| apply(context, change, watches, queue, failed)) {
        report_panic(context, change, &panic, queue);
        failed.record(change, Instant::now());
    }
}

/// Handles the failed changes again that are due at `now`.
pub(crate) fn retry_changes(
    context: &Context,
    watches: &mut Watches,
    queue: &mut WorkQueue<WorkItem>,
    failed: &mut FailedChanges,
    now: Instant,
) {
    while let Some(change) = failed.pop(now) {
        match catch_panic(|| apply(context, &change, watches, queue, failed)) {
            Ok(()) => failed.done(&change),
            Err(panic) => {
                report_panic(context, &change, &panic, queue);
                failed.record(&change, now);
            }
        }
    }
}

/// Logs and counts a panic, and requests an event on the service concerned.
fn report_panic(context: &Context, change: &Change, panic: &CaughtPanic, queue: &mut WorkQueue<WorkItem>) {
    let object = match change {
        Change::Synced(kind) => format!("the first list of {}", kind.group_resource()),
        Change::Object { kind, key, .. } => format!("{} {key}", kind.kind),
    };
    tracing::error!(object, %panic, "failed to handle a change; retrying with increasing delays");
    if let Some((kind, key)) = service_of_change(change) {
        let message =
            format!("The handling of a change of {object} {panic}; the operator retries with increasing delays");
        context.state.internal_errors.add(kind, &key, message);
        queue.add(WorkItem::InternalError(kind, key));
    }
    context.metrics.count_panic(Operation::Change);
    // The change may require it, and handling it has ended anywhere.
    context.state.snapshot_cache.invalidate();
}

/// Returns the service that a change concerns: the changed object, the service of a Pod, or the owner.
fn service_of_change(change: &Change) -> Option<(Kind, NamespacedName)> {
    let Change::Object { kind, key, old, new } = change else { return None };
    if SERVICES.contains(kind) {
        return Some((*kind, key.clone()));
    }
    let mut versions = [new, old].into_iter().flatten();
    versions.find_map(|object| if *kind == POD { service_of_pod(object) } else { owning_service(object) })
}

fn apply(
    context: &Context,
    change: &Change,
    watches: &mut Watches,
    queue: &mut WorkQueue<WorkItem>,
    failed: &mut FailedChanges,
) {
    let effects = effects(change);
    // First, so that the inventory is updated in place.
    outdate_snapshot(context, effects.outdated);
    let affected_classes = context.state.apply(change, &context.stores, context.now());
    match effects.watches {
        WatchEffect::None => {}
        WatchEffect::LogMissingApis => log_missing_apis(&context.stores),
        WatchEffect::Update => update_watches(context, watches, queue, failed),
    }
    enqueue(context, effects.work, &affected_classes, queue);
}

fn outdate_snapshot(context: &Context, outdated: Outdated) {
    match outdated {
        Outdated::Nothing => {}
        Outdated::Inventory => context.state.snapshot_cache.release_inventory(),
        Outdated::Snapshot => context.state.snapshot_cache.invalidate(),
    }
}

/// Starts and stops watches according to the installed CustomResourceDefinitions.
fn update_watches(
    context: &Context,
    watches: &mut Watches,
    queue: &mut WorkQueue<WorkItem>,
    failed: &mut FailedChanges,
) {
    for kind in CUSTOM_RESOURCES {
        let deletions = match update_watch(&context.stores, watches, *kind) {
            WatchUpdate::Unchanged => continue,
            WatchUpdate::Started => {
                enqueue(context, installation_work(*kind), &[], queue);
                continue;
            }
            WatchUpdate::Stopped(deletions) => deletions,
        };
        let Effects { outdated, work, .. } = removal_effects(*kind);
        outdate_snapshot(context, outdated);
        context.state.inventory.mark_unsynced(*kind);
        for deletion in deletions {
            handle_change(context, &deletion, watches, queue, failed);
        }
        enqueue(context, work, &[], queue);
    }
    if !context.maintains_classes {
        return;
    }
    let updates = RESOURCE_FLAVORS.map(|kind| (kind, update_flavor_watch(&context.stores, watches, kind)));
    for (kind, _) in updates.iter().filter(|(_, update)| matches!(update, WatchUpdate::Stopped(_))) {
        context.state.inventory.mark_unsynced(*kind);
    }
    // Flavors that disappear with their CustomResourceDefinition were not deleted by a user, so the classes created from
    // them are retained.
    if updates.iter().any(|(_, update)| !matches!(update, WatchUpdate::Unchanged)) {
        enqueue(context, vec![Work::LinkedClasses], &[], queue);
    }
}

/// Enqueues work in order; sets of services and classes are resolved by the indexes.
fn enqueue(context: &Context, work: Vec<Work>, affected_classes: &[String], queue: &mut WorkQueue<WorkItem>) {
    let classes = |names: Vec<String>| names.into_iter().map(WorkItem::Class).collect::<Vec<_>>();
    let index = context.state.service_index();
    for work in work {
        let items = match work {
            Work::Item(item) => vec![item],
            Work::LateStatus(item) => {
                let now = Instant::now();
                let term = LeaderElectionTimings::default().lease_duration;
                queue.add_at(item, now.checked_add(term).unwrap_or(now));
                continue;
            }
            Work::AffectedClasses => classes(affected_classes.to_vec()),
            Work::LinkedClasses => classes(linked_classes(&context.stores)),
            Work::AllClasses => classes(context.state.inventory.class_names()),
            Work::AllServices => index.all(),
            Work::WaitingServices => index.waiting_services(),
            Work::OtherWaitingServices(key) => index.other_waiting_services(&key),
            Work::BlockedServices(namespace) => index.blocked(&namespace),
            Work::ReadyServices => {
                index.ready_services().into_iter().for_each(|item| queue.add_low_priority(item));
                continue;
            }
        };
        let enabled = items.into_iter().filter(|item| context.maintains_classes || !item.maintains_classes());
        enabled.for_each(|item| queue.add(item));
    }
}

#[cfg(test)]
mod tests {
    use cluster::{CUSTOM_RESOURCE_DEFINITION, Stores};
    use kube::Client;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use supervisor::Supervisor;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::FIELD_MANAGER;
    use crate::kinds::{OME_SERVICE, SCALED_OBJECT};
    use crate::options::Options;

    /// A ScaledObject is deleted before its CustomResourceDefinition, and its service is reconciled in between: only
    /// the deletion of the definition shows that KEDA was uninstalled.
    // spec: RT-28
    #[tokio::test]
    async fn enqueues_services_when_a_definition_is_deleted_after_its_objects() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let (stores, options, stop) = (Stores::new(FIELD_MANAGER), Options::default(), CancellationToken::new());
        let (mut watches, _changes) = Watches::new(client.clone(), stores.clone(), Supervisor::default(), stop.clone());
        let context = Context::new(client, stores.clone(), &options);
        let mut queue = WorkQueue::default();
        let service = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "chat", "namespace": "n"}});
        let definition = json!({"metadata": {"name": SCALED_OBJECT.group_resource()},
            "spec": {"versions": [{"name": SCALED_OBJECT.version, "served": true}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}});
        let mut apply_event = |kind: Kind, event: Event<Value>, queue: &mut WorkQueue<WorkItem>| {
            for change in stores.apply_event(kind, event) {
                handle_change(&context, &change, &mut watches, queue, &mut FailedChanges::default());
            }
        };
        apply_event(OME_SERVICE, Event::Apply(service), &mut queue);
        apply_event(CUSTOM_RESOURCE_DEFINITION, Event::Apply(definition.clone()), &mut queue);
        while let Some(item) = queue.pop(tokio::time::Instant::now()) {
            queue.done(&item);
        }
        apply_event(CUSTOM_RESOURCE_DEFINITION, Event::Delete(definition), &mut queue);
        let items = std::iter::from_fn(|| queue.pop(tokio::time::Instant::now()));
        assert_eq!(items.collect::<Vec<_>>(), [WorkItem::Service(OME_SERVICE, NamespacedName::new("n", "chat"))]);
        stop.cancel();
    }
}
