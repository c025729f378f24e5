//! What a change requires; no I/O and no state. Changes of irrelevant fields, such as node heartbeats, require nothing.

use cluster::{CUSTOM_RESOURCE_DEFINITION, Change, Kind, NamespacedName, metadata_field};
use decide::node_info;
use serde_json::Value;

use crate::kinds::{
    ACCELERATOR_CLASS, BASE_MODEL, BASE_SET_CONFIG_MAP, BUILTIN, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME,
    FUSIONINFER_SERVICE, NODE, OME_SERVICE, OWNED, POD, RESOURCE_FLAVORS, SELECTION_KINDS, SERVING_RUNTIME,
};
use crate::owning_service::{owning_service, service_of_pod};
use crate::pod_group_schema;
use crate::relevant_fields::{differ, occupied_node, user_fields};
use crate::work_item::WorkItem;

/// What a change requires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// The outdated part of the selection snapshot.
    pub(crate) outdated: Outdated,
    /// What to do with the watches of custom resources.
    pub(crate) watches: WatchEffect,
    /// Work to enqueue, in this order.
    pub(crate) work: Vec<Work>,
}

/// Part of the selection snapshot that a change outdates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outdated {
    /// Decisions remain valid.
    #[default]
    Nothing,
    /// The inventory of nodes and Pods.
    Inventory,
    /// All of the snapshot: a runtime, model or class changed.
    Snapshot,
}

/// What to do with the watches of custom resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WatchEffect {
    /// Nothing.
    #[default]
    None,
    /// Log the ostler APIs that are not installed: all definitions are listed now.
    LogMissingApis,
    /// Start and stop watches: a definition changed.
    Update,
}

/// Work to enqueue. Sets of services and classes are resolved once the indexes contain the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// One item.
    Item(WorkItem),
    /// An item with a status that is not the operator's last one. It is processed after the longest term of another leader, so that two
    /// leaders do not correct each other.
    LateStatus(WorkItem),
    /// The status of the classes whose nodes or free capacity the change affected.
    AffectedClasses,
    /// The status of the classes that are linked to a ResourceFlavor.
    LinkedClasses,
    /// The status of all classes.
    AllClasses,
    /// All services of both kinds.
    AllServices,
    /// The selecting services that are not ready: a first or better selection may have become possible. The role-based services that
    /// are not ready or are updated, which may now have accelerators.
    WaitingServices,
    /// The same without one service, whose own write is the change.
    OtherWaitingServices(NamespacedName),
    /// With low priority, the ready selecting services: whether their selection is still valid, and whether a better one
    /// exists. Edits are processed before them.
    ReadyServices,
    /// The services of this namespace that an object of another owner blocks.
    BlockedServices(String),
}

// === impl Effects ===

impl From<Vec<Work>> for Effects {
    fn from(work: Vec<Work>) -> Effects {
        Effects { work, ..Effects::default() }
    }
}

/// Returns what `change` requires.
pub(crate) fn effects(change: &Change) -> Effects {
    let (kind, key, old, new) = match change {
        Change::Synced(kind) => return sync_effects(*kind),
        Change::Object { kind, key, old, new } => (*kind, key, old.as_deref(), new.as_deref()),
    };
    match kind {
        CUSTOM_RESOURCE_DEFINITION => definition_effects(change),
        OME_SERVICE | FUSIONINFER_SERVICE => service_effects(kind, key, old, new),
        POD => pod_effects(old, new),
        NODE => node_effects(old, new),
        ACCELERATOR_CLASS => class_effects(old, new),
        SERVING_RUNTIME | CLUSTER_SERVING_RUNTIME | BASE_MODEL | CLUSTER_BASE_MODEL => supply_effects(old, new),
        BASE_SET_CONFIG_MAP => [vec![Work::Item(WorkItem::BaseSet)], dependent_work(key, old, new)].concat().into(),
        kind if RESOURCE_FLAVORS.contains(&kind) => {
            vec![Work::Item(WorkItem::ResourceFlavors), Work::LinkedClasses].into()
        }
        _ => dependent_work(key, old, new).into(),
    }
}

/// Returns what the completed initial list of `kind` requires: items may have waited for it.
fn sync_effects(kind: Kind) -> Effects {
    let watches = if kind == CUSTOM_RESOURCE_DEFINITION { WatchEffect::LogMissingApis } else { WatchEffect::None };
    let mut work = match kind {
        NODE | POD | ACCELERATOR_CLASS => vec![
            Work::AllClasses,
            Work::Item(WorkItem::ClassDiscovery),
            Work::Item(WorkItem::ResourceFlavors),
            Work::Item(WorkItem::BaseSet),
        ],
        BASE_SET_CONFIG_MAP => vec![Work::Item(WorkItem::BaseSet)],
        kind if RESOURCE_FLAVORS.contains(&kind) => {
            vec![Work::Item(WorkItem::ResourceFlavors), Work::LinkedClasses]
        }
        _ => Vec::new(),
    };
    if OWNED.contains(&kind) || SELECTION_KINDS.contains(&kind) || BUILTIN.contains(&kind) {
        work.push(Work::AllServices);
    }
    Effects { outdated: Outdated::Snapshot, watches, work }
}

/// Returns what the installation of the API of `kind` requires: if the operator may not list the kind, no completed list
/// follows, and the services that need it report this.
pub(crate) fn installation_work(kind: Kind) -> Vec<Work> {
    if OWNED.contains(&kind) { vec![Work::AllServices] } else { Vec::new() }
}

/// Returns what the removal of the API of `kind` requires, in addition to the deletions of its objects. If the objects were
/// deleted before their CustomResourceDefinition, there are no such deletions.
pub(crate) fn removal_effects(kind: Kind) -> Effects {
    let work = if OWNED.contains(&kind) { vec![Work::AllServices] } else { Vec::new() };
    Effects { outdated: Outdated::Snapshot, work, ..Effects::default() }
}

fn definition_effects(change: &Change) -> Effects {
    match pod_group_schema::has_changed(change) {
        true => Effects { outdated: Outdated::Snapshot, watches: WatchEffect::Update, work: vec![Work::AllServices] },
        false => Effects { watches: WatchEffect::Update, ..Effects::default() },
    }
}

/// A service that is deleted or changes its selection releases its claims, so other services are enqueued. The store contains the
/// operator's own status already, so that another one is that of a request that arrived late.
fn service_effects(kind: Kind, key: &NamespacedName, old: Option<&Value>, new: Option<&Value>) -> Effects {
    let claim = |service: &Value| {
        let record = plan::DecisionRecord::from_status(&service["status"])?;
        let is_waiting = plan::waits_for_capacity(&record.warnings);
        Some((record.runtime, plan::recorded_components(&service["status"]), is_waiting))
    };
    let has_released_claim = old.is_some_and(|old| claim(old).is_some()) && differ(old, new, claim);
    match new {
        None => vec![Work::WaitingServices].into(),
        Some(_) if differ(old, new, user_fields) => vec![Work::Item(WorkItem::Service(kind, key.clone()))].into(),
        Some(_) if has_released_claim => {
            vec![Work::OtherWaitingServices(key.clone()), Work::LateStatus(WorkItem::Service(kind, key.clone()))].into()
        }
        Some(_) if differ(old, new, |service| service["status"].clone()) => {
            vec![Work::LateStatus(WorkItem::Service(kind, key.clone()))].into()
        }
        Some(_) => Effects::default(),
    }
}

fn pod_effects(old: Option<&Value>, new: Option<&Value>) -> Effects {
    let service = new.or(old).and_then(service_of_pod).map(|(kind, key)| Work::Item(WorkItem::Service(kind, key)));
    Effects {
        outdated: if differ(old, new, occupied_node) { Outdated::Inventory } else { Outdated::Nothing },
        work: [Work::AffectedClasses].into_iter().chain(service).collect(),
        ..Effects::default()
    }
}

/// ResourceFlavors are enqueued too because a class created from a flavor contains facts about its nodes.
fn node_effects(old: Option<&Value>, new: Option<&Value>) -> Effects {
    if !differ(old, new, node_info) {
        return Effects::default();
    }
    let work = vec![
        Work::Item(WorkItem::ClassDiscovery),
        Work::Item(WorkItem::ResourceFlavors),
        Work::AffectedClasses,
        Work::WaitingServices,
        Work::ReadyServices,
    ];
    Effects { outdated: Outdated::Inventory, work, ..Effects::default() }
}

/// Items that write classes precede items that write the status of classes.
fn class_effects(old: Option<&Value>, new: Option<&Value>) -> Effects {
    if !differ(old, new, user_fields) {
        // As for services, another status than that in the store arrived late.
        let status_differs = differ(old, new, |class| class["status"].clone());
        let late_status = new
            .filter(|_| status_differs)
            .map(|class| Work::LateStatus(WorkItem::Class(metadata_field(class, "name").to_owned())));
        let waiting = has_freed_capacity(old, new).then_some(Work::WaitingServices);
        return late_status.into_iter().chain(waiting).collect::<Vec<_>>().into();
    }
    let work = vec![
        Work::Item(WorkItem::ClassDiscovery),
        Work::Item(WorkItem::ResourceFlavors),
        Work::Item(WorkItem::BaseSet),
        Work::AffectedClasses,
        Work::Item(WorkItem::InvalidObjects),
        Work::WaitingServices,
        Work::ReadyServices,
    ];
    Effects { outdated: Outdated::Snapshot, work, ..Effects::default() }
}

/// Returns whether a class has more free capacity than before, or other nodes. Less capacity does not affect waiting
/// services.
fn has_freed_capacity(old: Option<&Value>, new: Option<&Value>) -> bool {
    let available_accelerators =
        |class: Option<&Value>| class.and_then(|class| class["status"]["availableAccelerators"].as_i64());
    let nodes = |class: &Value| ["nodes", "totalAccelerators"].map(|name| class["status"][name].clone());
    available_accelerators(new) > available_accelerators(old) || differ(old, new, nodes)
}

/// Returns what a changed runtime or model requires.
fn supply_effects(old: Option<&Value>, new: Option<&Value>) -> Effects {
    if !differ(old, new, user_fields) {
        return Effects::default();
    }
    let work = vec![Work::Item(WorkItem::InvalidObjects), Work::WaitingServices, Work::ReadyServices];
    Effects { outdated: Outdated::Snapshot, work, ..Effects::default() }
}

/// Returns the service that owns the object. A deleted object may have blocked other services, also one of a service.
fn dependent_work(key: &NamespacedName, old: Option<&Value>, new: Option<&Value>) -> Vec<Work> {
    let owner = [old, new].into_iter().flatten().find_map(owning_service);
    let owner = owner.map(|(kind, key)| Work::Item(WorkItem::Service(kind, key)));
    owner.into_iter().chain(new.is_none().then(|| Work::BlockedServices(key.namespace.clone()))).collect()
}

#[cfg(test)]
mod tests;
