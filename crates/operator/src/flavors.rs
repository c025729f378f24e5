//! Kueue's ResourceFlavors and accelerator classes, kept in step in both directions.
//!
//! Each side carries who made it. What a person made or edited is never touched; what was made goes with its maker.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::object::{meta, terminating};
use cluster::{Condition, Error, Key, Kind, Outcome, State, Stores};
use decide::inventory::{
    Linked, Maker, class_of_flavor, flavor_of_class, flavor_reference, maker, selects_accelerators, unedited,
};
use serde_json::Value;

use crate::Operator;
use crate::code;
use crate::kinds::{CLASS, FLAVORS};
use crate::wake::Item;

impl Operator {
    /// One pass in both directions. A second pass over the same objects writes nothing.
    pub(crate) async fn reconcile_flavors(&self) -> Result<(), Error> {
        let Some(kind) = FLAVORS.into_iter().find(|kind| self.accounts.complete(&[*kind, CLASS])) else {
            return Ok(());
        };
        let flavors: Vec<Arc<Value>> = self.stores.list(kind).into_iter().filter(|one| !terminating(one)).collect();
        let classes: Vec<Arc<Value>> = self.stores.list(CLASS).into_iter().filter(|one| !terminating(one)).collect();
        self.classes_from(&flavors, &classes).await?;
        self.flavors_from(kind, &flavors, &classes).await
    }

    async fn classes_from(&self, flavors: &[Arc<Value>], classes: &[Arc<Value>]) -> Result<(), Error> {
        let mut standing = BTreeSet::new();
        let index = self.accounts.index();
        for flavor in flavors.iter().filter(|flavor| asks_for_class(flavor, classes)) {
            let name = meta(flavor, "name");
            standing.insert(name.to_owned());
            let live = classes.iter().find(|class| meta(class, "name") == name);
            if live.is_some_and(|live| !made_from_flavor(live, name)) {
                continue;
            }
            let class = class_of_flavor(flavor, &index, &self.known);
            if let Outcome::Refused(reason) = self.make_class(&class).await? {
                tracing::warn!(flavor = name, reason, "the class of a flavor was refused");
            }
        }
        for class in classes {
            let Some(Maker::ResourceFlavor(flavor)) = maker(class) else { continue };
            if !standing.contains(&flavor) && unedited(class) {
                self.applier.unmake(CLASS, class).await?;
            }
        }
        Ok(())
    }

    async fn flavors_from(&self, kind: Kind, flavors: &[Arc<Value>], classes: &[Arc<Value>]) -> Result<(), Error> {
        let mut standing = BTreeSet::new();
        for class in classes {
            let Some(name) = wants_flavor(class) else { continue };
            let Ok(flavor) = flavor_of_class(class, name, &kind.api_version()) else { continue };
            standing.insert((meta(class, "name").to_owned(), name.to_owned()));
            let live = flavors.iter().find(|flavor| meta(flavor, "name") == name);
            if live.is_some_and(|live| !made_by_class(live, meta(class, "name"))) {
                continue;
            }
            let outcome = self.applier.make(kind, live.map(AsRef::as_ref), &flavor).await?;
            if let Outcome::Refused(reason) = outcome {
                tracing::warn!(flavor = name, reason, "the flavor of a class was refused");
            }
        }
        for flavor in flavors {
            let Some(Maker::AcceleratorClass(class)) = maker(flavor) else { continue };
            if !standing.contains(&(class, meta(flavor, "name").to_owned())) && unedited(flavor) {
                self.applier.unmake(kind, flavor).await?;
            }
        }
        Ok(())
    }

    /// Classes whose link to a flavor is told in their status.
    pub(crate) fn linked_classes(&self) -> Vec<Item> {
        let classes = self.stores.list(CLASS);
        let linked = classes.iter().filter(|class| flavor_reference(class).is_some());
        linked.map(|class| Item::Class(meta(class, "name").to_owned())).collect()
    }
}

/// A person's flavor for accelerators, unless a class of a person is linked to it.
fn asks_for_class(flavor: &Value, classes: &[Arc<Value>]) -> bool {
    let made = matches!(maker(flavor), Some(Maker::AcceleratorClass(_)));
    let linked = classes.iter().any(|class| wants_flavor(class) == Some(meta(flavor, "name")));
    !made && !linked && selects_accelerators(flavor)
}

/// The flavor that a class wants to exist. One that was made from that very flavor wants nothing.
fn wants_flavor(class: &Value) -> Option<&str> {
    let Some(Linked::Wanted(flavor)) = flavor_reference(class) else { return None };
    let itself = maker(class) == Some(Maker::ResourceFlavor(flavor.to_owned()));
    (!itself).then_some(flavor)
}

fn made_from_flavor(class: &Value, flavor: &str) -> bool {
    maker(class) == Some(Maker::ResourceFlavor(flavor.to_owned())) && unedited(class)
}

fn made_by_class(flavor: &Value, class: &str) -> bool {
    maker(flavor) == Some(Maker::AcceleratorClass(class.to_owned())) && unedited(flavor)
}

/// Condition `FlavorSynced` of a class that is linked to a flavor.
pub(crate) fn condition(stores: &Stores, class: &Value) -> Option<Condition> {
    let told = |state: State, reason: api::code::Code, message: String| {
        Some(Condition::new("FlavorSynced", state, reason, message))
    };
    let (Linked::Wanted(name) | Linked::From(name)) = flavor_reference(class)?;
    let Some(kind) = FLAVORS.into_iter().find(|kind| stores.synced(*kind)) else {
        let message = format!("Kueue is not installed: ResourceFlavor {name} is kept in step as soon as it is");
        return told(State::Unknown, code::KUEUE_MISSING, message);
    };
    let live = stores.get(kind, &Key::new("", name));
    if wants_flavor(class).is_none() {
        return match live {
            None => told(
                State::False,
                code::FLAVOR_GONE,
                format!("ResourceFlavor {name}, that this class stands for, is gone"),
            ),
            Some(_) if !unedited(class) => {
                let message = "the class was edited: changes of the flavor are not taken over";
                told(State::False, code::CLASS_EDITED, message.to_owned())
            }
            Some(_) => told(State::True, code::FLAVOR_SYNCED, format!("made from ResourceFlavor {name}")),
        };
    }
    let wanted = match flavor_of_class(class, name, &kind.api_version()) {
        Err(problem) => return told(State::False, code::FLAVOR_NOT_EXPRESSIBLE, problem.to_string()),
        Ok(wanted) => wanted,
    };
    match live {
        None => told(State::False, code::FLAVOR_PENDING, format!("ResourceFlavor {name} is being made")),
        Some(live) if live["spec"]["nodeLabels"] == wanted["spec"]["nodeLabels"] => {
            told(State::True, code::FLAVOR_SYNCED, format!("ResourceFlavor {name} selects the nodes of this class"))
        }
        Some(live) if made_by_class(&live, meta(class, "name")) => {
            told(State::False, code::FLAVOR_PENDING, format!("ResourceFlavor {name} is being changed"))
        }
        Some(_) => {
            let message = format!(
                "ResourceFlavor {name} selects other nodes and was written or edited by a person; change its nodeLabels or \
                 name another flavor in integration.kueueResourceFlavor"
            );
            told(State::False, code::FLAVOR_DIFFERS, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher::Event;
    use rstest::rstest;
    use serde_json::json;

    fn class(selector: Value) -> Value {
        json!({"kind": "AcceleratorClass", "metadata": {"name": "c"}, "spec": {"discovery": {"nodeSelector": selector},
            "capabilities": {}, "integration": {"kueueResourceFlavor": "f"}}})
    }

    fn reason(flavor: Option<Value>, class: &Value) -> String {
        let stores = Stores::new("us");
        let _ = stores.accept(FLAVORS[0], Event::Init);
        if let Some(flavor) = flavor {
            let _ = stores.accept(FLAVORS[0], Event::InitApply(flavor));
        }
        let _ = stores.accept(FLAVORS[0], Event::InitDone);
        condition(&stores, class).unwrap().reason
    }

    fn flavor(labels: Value) -> Value {
        json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": labels}})
    }

    #[rstest]
    #[case::missing(None, "FlavorPending")]
    #[case::in_step(Some(flavor(json!({"gpu": "a"}))), "FlavorSynced")]
    #[case::a_persons_other(Some(flavor(json!({"gpu": "b"}))), "FlavorDiffers")]
    fn the_flavor_of_a_class(#[case] flavor: Option<Value>, #[case] expect: &str) {
        assert_eq!(reason(flavor, &class(json!({"gpu": "a"}))), expect);
    }

    #[test]
    fn a_class_without_a_selector_has_no_flavor() {
        assert_eq!(reason(None, &class(json!({}))), "FlavorNotExpressible");
    }

    // spec: ACC-11
    #[test]
    fn without_kueue_a_condition_names_it() {
        let told = condition(&Stores::new("us"), &class(json!({"gpu": "a"}))).unwrap();
        assert_eq!((told.state, told.reason.as_str()), (State::Unknown, "KueueMissing"));
        assert!(told.message.contains("Kueue"));
        assert!(condition(&Stores::new("us"), &json!({"metadata": {"name": "c"}, "spec": {}})).is_none());
    }
}
