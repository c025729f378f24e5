//! Which services a change asks for; pure. A heartbeat asks for none. Work on classes is asked for by `accounting`.

use cluster::object::{controller, meta};
use cluster::{Change, Key, Kind};
use decide::inventory::{ended, node_facts};
use serde_json::Value;

use crate::kinds::{
    CLASS, CLUSTER_MODEL, CLUSTER_RUNTIME, MODEL, NODE, OME_SERVICE, POD, POD_LABELS, ROLES_SERVICE, RUNTIME,
};
use crate::roster::Roster;

/// One thing to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// The status of one accelerator class.
    Class(String),
    /// Classes from the labels of nodes.
    Discovery,
    /// Classes from the base-set ConfigMap.
    BaseSet,
    /// Kueue's flavors and classes.
    Flavors,
    /// News of objects that cannot be read.
    Offer,
    /// One service of either kind.
    Service(Kind, Key),
}

// === impl Item ===

impl Item {
    /// Whether nothing else may be under way beside it: it makes what others read.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        match self {
            Item::Discovery | Item::BaseSet | Item::Flavors | Item::Offer => true,
            Item::Class(_) | Item::Service(..) => false,
        }
    }
}

/// What a change asks for, each in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// What somebody waits for.
    pub now: Vec<Item>,
    /// Ready services that are only looked at once more: whether they may keep their choice, and whether there is a better
    /// one. An edit goes before them.
    pub patiently: Vec<Item>,
}

/// What `change` asks for.
#[must_use]
pub fn items(roster: &Roster, change: &Change) -> Asked {
    let Change::Object { kind, key, old, new } = change else { return Asked::default() };
    let (old, new) = (old.as_deref(), new.as_deref());
    match *kind {
        OME_SERVICE | ROLES_SERVICE => service(roster, *kind, key, old, new).into(),
        POD => pod(old, new).into(),
        NODE if differ(old, new, node_facts) => reconsidered(roster, Vec::new()),
        CLASS if differ(old, new, written) => reconsidered(roster, vec![Item::Offer]),
        CLASS if freed(old, new) => roster.waiting().into(),
        RUNTIME | CLUSTER_RUNTIME | MODEL | CLUSTER_MODEL if differ(old, new, written) => {
            reconsidered(roster, vec![Item::Offer])
        }
        NODE | CLASS | RUNTIME | CLUSTER_RUNTIME | MODEL | CLUSTER_MODEL => Asked::default(),
        _ => match [old, new].into_iter().flatten().find_map(owner) {
            Some(owner) => vec![owner].into(),
            // It may be the one that kept others out.
            None if new.is_none() => roster.kept_out(&key.namespace).into(),
            None => Asked::default(),
        },
    }
}

/// Everybody who chooses, behind `first`.
fn reconsidered(roster: &Roster, first: Vec<Item>) -> Asked {
    Asked { now: [first, roster.waiting()].concat(), patiently: roster.served() }
}

// === impl Asked ===

impl From<Vec<Item>> for Asked {
    fn from(now: Vec<Item>) -> Asked {
        Asked { now, patiently: Vec::new() }
    }
}

/// Whether `change` may alter which runtimes, models and classes services choose from.
#[must_use]
pub fn alters_offer(change: &Change) -> bool {
    let Change::Object { kind, old, new, .. } = change else { return true };
    let (old, new) = (old.as_deref(), new.as_deref());
    match *kind {
        CLASS | RUNTIME | CLUSTER_RUNTIME | MODEL | CLUSTER_MODEL => differ(old, new, written),
        _ => false,
    }
}

/// Whether `change` may alter what is free on nodes.
#[must_use]
pub fn alters_inventory(change: &Change) -> bool {
    let Change::Object { kind, old, new, .. } = change else { return true };
    let (old, new) = (old.as_deref(), new.as_deref());
    match *kind {
        NODE => differ(old, new, node_facts),
        POD => differ(old, new, occupies),
        _ => false,
    }
}

/// A service that goes, or chooses otherwise, lets go of what it was promised; the rest of its status is our own news.
fn service(roster: &Roster, kind: Kind, key: &Key, old: Option<&Value>, new: Option<&Value>) -> Vec<Item> {
    let own = Item::Service(kind, key.clone());
    let others = || roster.waiting().into_iter().filter(|item| *item != own).collect::<Vec<_>>();
    let chosen = |service: &Value| service["status"]["decision"]["components"].clone();
    let promised = |service: &Value| (chosen(service), plan::claims::recorded_wait(&service["status"]["decision"]));
    let let_go = old.is_some_and(|old| chosen(old).is_object()) && differ(old, new, promised);
    match new {
        None => roster.waiting(),
        Some(_) if differ(old, new, written) => vec![own],
        Some(_) if let_go => others(),
        Some(_) => Vec::new(),
    }
}

/// Any change of a Pod may move its service.
fn pod(old: Option<&Value>, new: Option<&Value>) -> Vec<Item> {
    new.or(old).and_then(service_of_pod).into_iter().collect()
}

/// The service that the labels of a Pod name.
pub(crate) fn service_of_pod(pod: &Value) -> Option<Item> {
    POD_LABELS.iter().find_map(|(label, kind)| {
        let name = pod["metadata"]["labels"][label].as_str()?;
        Some(Item::Service(*kind, Key::new(meta(pod, "namespace"), name)))
    })
}

/// The service that controls `object`, if one does.
fn owner(object: &Value) -> Option<Item> {
    let reference = controller(object)?;
    let kind = [OME_SERVICE, ROLES_SERVICE].into_iter().find(|kind| {
        reference["kind"] == kind.kind
            && reference["apiVersion"].as_str().is_some_and(|version| version.starts_with(kind.group))
    })?;
    Some(Item::Service(kind, Key::new(meta(object, "namespace"), reference["name"].as_str()?)))
}

pub(crate) fn differ<T: PartialEq>(old: Option<&Value>, new: Option<&Value>, facts: impl Fn(&Value) -> T) -> bool {
    old.map(&facts) != new.map(&facts)
}

/// What a person writes: everything but status and bookkeeping.
pub(crate) fn written(object: &Value) -> [Value; 5] {
    let metadata = &object["metadata"];
    ["uid", "labels", "annotations", "deletionTimestamp"]
        .map(|name| metadata[name].clone())
        .into_iter()
        .chain([object["spec"].clone()])
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_default()
}

/// Whether a class has more to give than before, or other nodes. What is taken concerns nobody who waits.
fn freed(old: Option<&Value>, new: Option<&Value>) -> bool {
    let number = |class: Option<&Value>| class.and_then(|class| class["status"]["availableAccelerators"].as_i64());
    let rest = |class: &Value| ["nodes", "totalAccelerators"].map(|name| class["status"][name].clone());
    number(new) > number(old) || differ(old, new, rest)
}

/// The node that the Pod occupies, until it has ended.
#[must_use]
pub fn occupies(pod: &Value) -> Option<String> {
    pod["spec"]["nodeName"].as_str().filter(|_| !ended(pod)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn change(kind: Kind, old: Value, new: Value) -> Change {
        let some = |value: Value| (!value.is_null()).then(|| Arc::new(value));
        let key = Key::of(if new.is_null() { &old } else { &new });
        Change::Object { kind, key, old: some(old), new: some(new) }
    }

    /// One ready and one waiting service.
    fn roster() -> Roster {
        let mut roster = Roster::default();
        for (name, ready) in [("done", "True"), ("waits", "False")] {
            let object = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
            roster.look(OME_SERVICE, &Key::new("n", name), Some(&object));
        }
        roster
    }

    /// Those that can wait behind a bar.
    fn names(asked: &Asked) -> Vec<String> {
        let name = |item: &Item| match item {
            Item::Offer => "offer".to_owned(),
            Item::Service(_, key) => key.name.clone(),
            _ => "class".to_owned(),
        };
        let bar = (!asked.patiently.is_empty()).then(|| "|".to_owned());
        asked.now.iter().map(name).chain(bar).chain(asked.patiently.iter().map(name)).collect()
    }

    fn node(labels: Value, beat: &str) -> Value {
        json!({"metadata": {"name": "x", "labels": labels, "resourceVersion": beat},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]}})
    }

    #[test]
    fn a_heartbeat_asks_for_nothing() {
        let beat = change(NODE, node(json!({"gpu": "a"}), "1"), node(json!({"gpu": "a"}), "2"));
        assert_eq!(items(&roster(), &beat), Asked::default());
        let label = change(NODE, node(json!({"gpu": "a"}), "1"), node(json!({"gpu": "b"}), "2"));
        assert_eq!(names(&items(&roster(), &label)), ["waits", "|", "done"]);
    }

    #[test]
    fn capacity_wakes_those_that_wait_and_content_wakes_all() {
        let class = |free: i64, spec: &str| json!({"metadata": {"name": "h100"}, "spec": {"vendor": spec}, "status": {"availableAccelerators": free}});
        assert_eq!(names(&items(&roster(), &change(CLASS, class(1, "a"), class(2, "a")))), ["waits"]);
        assert_eq!(
            names(&items(&roster(), &change(CLASS, class(1, "a"), class(1, "b")))),
            ["offer", "waits", "|", "done"]
        );
        // What is taken concerns nobody who waits.
        assert_eq!(items(&roster(), &change(CLASS, class(2, "a"), class(1, "a"))), Asked::default());
        let runtime = |spec: &str| json!({"metadata": {"name": "r"}, "spec": {"image": spec}});
        assert_eq!(
            names(&items(&roster(), &change(CLUSTER_RUNTIME, Value::Null, runtime("a")))),
            ["offer", "waits", "|", "done"]
        );
    }

    #[test]
    fn our_own_status_asks_for_nothing() {
        let service = |phase: &str| json!({"metadata": {"namespace": "n", "name": "done", "resourceVersion": phase}, "status": {"p": phase}});
        assert_eq!(items(&roster(), &change(OME_SERVICE, service("1"), service("2"))), Asked::default());
        assert_eq!(names(&items(&roster(), &change(OME_SERVICE, service("1"), Value::Null))), ["waits"]);
    }

    #[test]
    fn a_service_that_chooses_otherwise_lets_go_of_what_it_was_promised() {
        let service = |class: &str| {
            json!({"metadata": {"namespace": "n", "name": "done"},
            "status": {"decision": {"components": {"engine": {"acceleratorClass": class}}}}})
        };
        assert_eq!(names(&items(&roster(), &change(OME_SERVICE, service("a"), service("b")))), ["waits"]);
        let undecided = json!({"metadata": {"namespace": "n", "name": "done"}});
        assert_eq!(items(&roster(), &change(OME_SERVICE, undecided, service("b"))), Asked::default());
    }

    #[test]
    fn an_object_of_somebody_else_that_goes_wakes_who_was_kept_out_by_it() {
        let mut roster = roster();
        let kept_out = json!({"metadata": {"namespace": "n", "name": "blocked"},
            "status": {"conditions": [{"type": "Initialized", "status": "False", "reason": "ObjectNotOurs"}]}});
        roster.look(ROLES_SERVICE, &Key::of(&kept_out), Some(&kept_out));
        let object = |namespace: &str| json!({"metadata": {"namespace": namespace, "name": "any"}});
        let gone = |namespace: &str| change(crate::kinds::POD_GROUP, object(namespace), Value::Null);
        assert_eq!(names(&items(&roster, &gone("n"))), ["blocked"]);
        assert_eq!(items(&roster, &gone("other")), Asked::default());
    }

    #[test]
    fn pods_and_owned_objects_wake_their_service() {
        let pod = |node: Value, phase: &str| {
            json!({"metadata": {"namespace": "n", "name": "p", "labels": {"ome.io/inferenceservice": "done"}},
            "spec": {"nodeName": node}, "status": {"phase": phase}})
        };
        assert_eq!(
            names(&items(&roster(), &change(POD, pod(json!("x"), "Pending"), pod(json!("x"), "Running")))),
            ["done"]
        );
        assert_eq!(
            names(&items(&roster(), &change(POD, pod(json!("x"), "Running"), pod(json!("x"), "Failed")))),
            ["done"]
        );
        let owned = json!({"metadata": {"namespace": "n", "name": "d", "ownerReferences":
            [{"controller": true, "apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService", "name": "r"}]}});
        let woken = items(&roster(), &change(crate::kinds::DEPLOYMENT, Value::Null, owned));
        assert_eq!(woken.now, [Item::Service(ROLES_SERVICE, Key::new("n", "r"))]);
    }
}
