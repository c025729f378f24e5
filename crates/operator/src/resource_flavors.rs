//! Synchronizes Kueue's ResourceFlavors and accelerator classes in both directions.
//!
//! Created objects record their origin. Objects that a user created, copied or edited are not modified; a created object is
//! deleted with its origin.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::{
    ApplyOutcome, Condition, ConditionStatus, Error, Kind, ListState, NamespacedName, Stores, is_terminating,
    list_state, metadata_field,
};
use decide::{
    FlavorLink, Provenance, class_from_flavor, flavor_from_class, flavor_link, is_accelerator_flavor, provenance,
};
use serde_json::Value;

use crate::condition_reason::ConditionReason;
use crate::context::Context;
use crate::kinds::{ACCELERATOR_CLASS, RESOURCE_FLAVORS};
use crate::managed_class::{apply_class, is_copy_of_generated, is_generated_from, not_owned_message};

/// Synchronizes in both directions. A second pass over the same objects writes nothing.
pub(crate) async fn reconcile_flavors(context: &Context) -> Result<(), Error> {
    let Some(kind) =
        RESOURCE_FLAVORS.into_iter().find(|kind| context.state.inventory.has_synced(&[*kind, ACCELERATOR_CLASS]))
    else {
        return Ok(());
    };
    let flavors: Vec<Arc<Value>> =
        context.stores.list(kind).into_iter().filter(|object| !is_terminating(object)).collect();
    let classes: Vec<Arc<Value>> =
        context.stores.list(ACCELERATOR_CLASS).into_iter().filter(|object| !is_terminating(object)).collect();
    sync_classes(context, &flavors, &classes).await?;
    sync_flavors(context, kind, &flavors, &classes).await
}

async fn sync_classes(context: &Context, flavors: &[Arc<Value>], classes: &[Arc<Value>]) -> Result<(), Error> {
    let mut required = BTreeSet::new();
    let inventory = context.state.inventory.current();
    for flavor in flavors.iter().filter(|flavor| needs_class(flavor, classes)) {
        let name = metadata_field(flavor, "name");
        required.insert(name.to_owned());
        let live = classes.iter().find(|class| metadata_field(class, "name") == name);
        if live.is_some_and(|live| !is_created_from_flavor(live, name)) {
            continue;
        }
        let class = class_from_flavor(flavor, &inventory, &context.known_classes);
        if let ApplyOutcome::Rejected(error) = apply_class(context, &class).await? {
            tracing::warn!(kind = ACCELERATOR_CLASS.kind, name, error, "failed to apply the class of a ResourceFlavor");
        }
    }
    for class in classes {
        let name = metadata_field(class, "name");
        if !required.contains(name) && is_created_from_flavor(class, name) {
            context.applier.delete_unowned(ACCELERATOR_CLASS, class).await?;
        }
    }
    Ok(())
}

async fn sync_flavors(
    context: &Context,
    kind: Kind,
    flavors: &[Arc<Value>],
    classes: &[Arc<Value>],
) -> Result<(), Error> {
    let mut required = BTreeSet::new();
    for class in classes {
        let Some(name) = required_flavor(class) else { continue };
        let Ok(flavor) = flavor_from_class(class, name, &kind.api_version()) else { continue };
        required.insert((metadata_field(class, "name").to_owned(), name.to_owned()));
        let live = flavors.iter().find(|flavor| metadata_field(flavor, "name") == name);
        if live.is_some_and(|live| !is_created_by_class(live, metadata_field(class, "name"))) {
            continue;
        }
        let is_own = |live: &Value| is_created_by_class(live, metadata_field(class, "name"));
        let outcome = context.applier.apply_unowned(kind, &flavor, is_own).await?;
        if let ApplyOutcome::Rejected(error) = outcome {
            tracing::warn!(kind = kind.kind, name, error, "failed to apply the ResourceFlavor of a class");
        }
    }
    for flavor in flavors {
        let Some(Provenance::AcceleratorClass(class)) = provenance(flavor) else { continue };
        let is_created = is_created_by_class(flavor, &class);
        if is_created && !required.contains(&(class, metadata_field(flavor, "name").to_owned())) {
            context.applier.delete_unowned(kind, flavor).await?;
        }
    }
    Ok(())
}

/// Returns the names of the classes whose status reports a linked flavor.
pub(crate) fn linked_classes(stores: &Stores) -> Vec<String> {
    let classes = stores.list(ACCELERATOR_CLASS);
    let linked_classes = classes.iter().filter(|class| flavor_link(class).is_some());
    linked_classes.map(|class| metadata_field(class, "name").to_owned()).collect()
}

/// Returns whether a class should be created for the flavor: the flavor was created by a user, selects accelerators,
/// and no class is linked to it.
fn needs_class(flavor: &Value, classes: &[Arc<Value>]) -> bool {
    let is_created = matches!(provenance(flavor), Some(Provenance::AcceleratorClass(_)));
    let is_linked = classes.iter().any(|class| required_flavor(class) == Some(metadata_field(flavor, "name")));
    !is_created && !is_linked && is_accelerator_flavor(flavor)
}

/// Returns the flavor that should exist for a class. Returns `None` if the class was created from that flavor.
fn required_flavor(class: &Value) -> Option<&str> {
    let Some(FlavorLink::Required(flavor)) = flavor_link(class) else { return None };
    let is_origin = provenance(class) == Some(Provenance::ResourceFlavor(flavor.to_owned()));
    (!is_origin).then_some(flavor)
}

fn is_created_from_flavor(class: &Value, flavor: &str) -> bool {
    is_generated_from(class, &Provenance::ResourceFlavor(flavor.to_owned()))
}

fn is_created_by_class(flavor: &Value, class: &str) -> bool {
    is_generated_from(flavor, &Provenance::AcceleratorClass(class.to_owned()))
}

/// Returns condition `FlavorSynced` of a class that is linked to a flavor.
pub(crate) fn flavor_condition(stores: &Stores, class: &Value) -> Option<Condition> {
    let condition = |status: ConditionStatus, reason: ConditionReason, message: String| {
        Some(reason.condition("FlavorSynced", status, message))
    };
    let (FlavorLink::Required(name) | FlavorLink::CreatedFrom(name)) = flavor_link(class)?;
    let Some(kind) = RESOURCE_FLAVORS.into_iter().find(|kind| stores.has_synced(*kind)) else {
        let (reason, message) = flavors_not_listed(stores, name);
        return condition(ConditionStatus::Unknown, reason, message);
    };
    let live = stores.get(kind, &NamespacedName::new("", name));
    if required_flavor(class).is_none() {
        return match live {
            None => condition(
                ConditionStatus::False,
                ConditionReason::FlavorGone,
                format!("ResourceFlavor {name}, which this class was created from, no longer exists"),
            ),
            Some(_) if is_copy_of_generated(class) => {
                let message = not_owned_message(ACCELERATOR_CLASS, class);
                condition(ConditionStatus::False, ConditionReason::NotOwned, message)
            }
            Some(_) if !is_created_from_flavor(class, name) => {
                let message = format!("A user edited the class; changes to ResourceFlavor {name} are not applied");
                condition(ConditionStatus::False, ConditionReason::ClassEdited, message)
            }
            Some(_) => condition(
                ConditionStatus::True,
                ConditionReason::FlavorSynced,
                format!("The class is synchronized from ResourceFlavor {name}"),
            ),
        };
    }
    let expected = match flavor_from_class(class, name, &kind.api_version()) {
        Err(error) => {
            return condition(ConditionStatus::False, ConditionReason::FlavorNotExpressible, error.to_string());
        }
        Ok(expected) => expected,
    };
    match live {
        None => condition(
            ConditionStatus::False,
            ConditionReason::FlavorPending,
            format!("Waiting for ResourceFlavor {name} to be created"),
        ),
        Some(live) if is_copy_of_generated(&live) => {
            condition(ConditionStatus::False, ConditionReason::NotOwned, not_owned_message(kind, &live))
        }
        Some(live) if live["spec"]["nodeLabels"] == expected["spec"]["nodeLabels"] => condition(
            ConditionStatus::True,
            ConditionReason::FlavorSynced,
            format!("ResourceFlavor {name} selects the nodes of this class"),
        ),
        Some(live) if is_created_by_class(&live, metadata_field(class, "name")) => condition(
            ConditionStatus::False,
            ConditionReason::FlavorPending,
            format!("Waiting for ResourceFlavor {name} to be updated"),
        ),
        Some(_) => {
            let message = format!(
                "ResourceFlavor {name} selects other nodes and is managed by a user; change its nodeLabels, or set another \
                 name in integration.kueueResourceFlavor"
            );
            condition(ConditionStatus::False, ConditionReason::FlavorDiffers, message)
        }
    }
}

/// Returns why ResourceFlavor `name` is unknown while no version of the kind is listed.
fn flavors_not_listed(stores: &Stores, name: &str) -> (ConditionReason, String) {
    let error = RESOURCE_FLAVORS.into_iter().find_map(|kind| match list_state(stores, kind) {
        ListState::NotListed(error) => Some(error),
        ListState::Listed | ListState::NotServed => None,
    });
    match error {
        Some(Some(error)) => {
            (ConditionReason::ClusterNotRead, format!("The operator failed to list ResourceFlavors: {error}"))
        }
        Some(None) => (ConditionReason::ClusterNotRead, "Waiting for the operator to list ResourceFlavors".to_owned()),
        None => {
            let message = format!("Kueue is not installed; ResourceFlavor {name} will be synchronized once it is");
            (ConditionReason::KueueMissing, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::CUSTOM_RESOURCE_DEFINITION;
    use kube::runtime::watcher::Event;
    use rstest::rstest;
    use serde_json::json;

    fn class(selector: Value) -> Value {
        json!({"kind": "AcceleratorClass", "metadata": {"name": "c"}, "spec": {"discovery": {"nodeSelector": selector},
            "capabilities": {}, "integration": {"kueueResourceFlavor": "f"}}})
    }

    fn reason(flavor: Option<Value>, class: &Value) -> String {
        let stores = Stores::new("operator");
        let _ = stores.apply_event(RESOURCE_FLAVORS[0], Event::Init);
        if let Some(flavor) = flavor {
            let _ = stores.apply_event(RESOURCE_FLAVORS[0], Event::InitApply(flavor));
        }
        let _ = stores.apply_event(RESOURCE_FLAVORS[0], Event::InitDone);
        flavor_condition(&stores, class).unwrap().reason
    }

    fn flavor(labels: Value) -> Value {
        json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": labels}})
    }

    #[rstest]
    #[case::missing(None, "FlavorPending")]
    #[case::synced(Some(flavor(json!({"gpu": "a"}))), "FlavorSynced")]
    #[case::managed_by_user(Some(flavor(json!({"gpu": "b"}))), "FlavorDiffers")]
    fn reports_the_state_of_the_flavor(#[case] flavor: Option<Value>, #[case] expect: &str) {
        assert_eq!(reason(flavor, &class(json!({"gpu": "a"}))), expect);
    }

    #[test]
    fn class_without_node_selector_has_no_flavor() {
        assert_eq!(reason(None, &class(json!({}))), "FlavorNotExpressible");
    }

    // spec: ACC-11
    #[test]
    fn reports_missing_kueue() {
        let stores = Stores::new("operator");
        let class = class(json!({"gpu": "a"}));
        let condition = flavor_condition(&stores, &class).unwrap();
        assert_eq!(condition.reason, "ClusterNotRead", "the definitions are not listed");
        for event in [Event::Init, Event::InitDone] {
            let _ = stores.apply_event(CUSTOM_RESOURCE_DEFINITION, event);
        }
        let condition = flavor_condition(&stores, &class).unwrap();
        assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::Unknown, "KueueMissing"));
        assert!(condition.message.contains("Kueue"));
        assert!(flavor_condition(&Stores::new("operator"), &json!({"metadata": {"name": "c"}, "spec": {}})).is_none());
    }
}
