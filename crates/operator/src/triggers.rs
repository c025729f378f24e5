//! Work items that a change enqueues; no I/O. Changes without effect, such as node heartbeats, enqueue nothing. Items
//! about accelerator classes are enqueued by [`crate::inventory`].

use cluster::{Change, Kind, NamespacedName, controller_of, metadata_field};
use decide::{is_pod_terminal, node_info};
use serde_json::Value;

use crate::kinds::{
    ACCELERATOR_CLASS, BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, FUSIONINFER_SERVICE, NODE, OME_SERVICE,
    POD, POD_LABELS, SERVING_RUNTIME,
};
use crate::service_index::ServiceIndex;

/// Key of the work queue: one unit of reconciliation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The status of one accelerator class.
    Class(String),
    /// The classes discovered from node labels.
    ClassDiscovery,
    /// The classes of the base set ConfigMap.
    BaseSet,
    /// Kueue's ResourceFlavors and the classes linked to them.
    ResourceFlavors,
    /// The events about invalid objects.
    InvalidObjects,
    /// One service of either kind.
    Service(Kind, NamespacedName),
}

// === impl WorkItem ===

impl WorkItem {
    /// Returns whether the item must not be reconciled concurrently with others, because it writes what they read.
    pub(crate) fn is_exclusive(&self) -> bool {
        match self {
            WorkItem::ClassDiscovery | WorkItem::BaseSet | WorkItem::ResourceFlavors | WorkItem::InvalidObjects => true,
            WorkItem::Class(_) | WorkItem::Service(..) => false,
        }
    }
}

/// Work items to enqueue for a change, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Enqueue {
    /// Items with regular priority.
    pub(crate) normal_priority: Vec<WorkItem>,
    /// Ready services to re-evaluate: whether their selection is still valid, and whether a better one exists. Edits
    /// are processed before them.
    pub(crate) low_priority: Vec<WorkItem>,
}

/// Returns the work items to enqueue for `change`.
pub(crate) fn work_items(index: &ServiceIndex, change: &Change) -> Enqueue {
    let Change::Object { kind, key, old, new } = change else { return Enqueue::default() };
    let (old, new) = (old.as_deref(), new.as_deref());
    match *kind {
        OME_SERVICE | FUSIONINFER_SERVICE => service_items(index, *kind, key, old, new).into(),
        POD => new.or(old).and_then(service_of_pod).into_iter().collect::<Vec<_>>().into(),
        NODE if differ(old, new, node_info) => reevaluate_all(index, Vec::new()),
        ACCELERATOR_CLASS if differ(old, new, user_fields) => reevaluate_all(index, vec![WorkItem::InvalidObjects]),
        ACCELERATOR_CLASS if has_freed_capacity(old, new) => index.not_ready().into(),
        SERVING_RUNTIME | CLUSTER_SERVING_RUNTIME | BASE_MODEL | CLUSTER_BASE_MODEL
            if differ(old, new, user_fields) =>
        {
            reevaluate_all(index, vec![WorkItem::InvalidObjects])
        }
        NODE | ACCELERATOR_CLASS | SERVING_RUNTIME | CLUSTER_SERVING_RUNTIME | BASE_MODEL | CLUSTER_BASE_MODEL => {
            Enqueue::default()
        }
        _ => match [old, new].into_iter().flatten().find_map(owning_service) {
            Some(owner) => vec![owner].into(),
            // The deleted object may have blocked a service.
            None if new.is_none() => index.blocked(&key.namespace).into(),
            None => Enqueue::default(),
        },
    }
}

/// Returns all selecting services after `first`; ready ones with low priority.
fn reevaluate_all(index: &ServiceIndex, first_items: Vec<WorkItem>) -> Enqueue {
    Enqueue { normal_priority: [first_items, index.not_ready()].concat(), low_priority: index.ready() }
}

// === impl Enqueue ===

impl From<Vec<WorkItem>> for Enqueue {
    fn from(items: Vec<WorkItem>) -> Enqueue {
        Enqueue { normal_priority: items, low_priority: Vec::new() }
    }
}

/// Returns whether `change` affects the runtimes, models or classes that services select from.
pub(crate) fn affects_selection(change: &Change) -> bool {
    let Change::Object { kind, old, new, .. } = change else { return true };
    let (old, new) = (old.as_deref(), new.as_deref());
    match *kind {
        ACCELERATOR_CLASS | SERVING_RUNTIME | CLUSTER_SERVING_RUNTIME | BASE_MODEL | CLUSTER_BASE_MODEL => {
            differ(old, new, user_fields)
        }
        _ => false,
    }
}

/// Returns whether `change` affects the free capacity of nodes.
pub(crate) fn affects_inventory(change: &Change) -> bool {
    let Change::Object { kind, old, new, .. } = change else { return true };
    let (old, new) = (old.as_deref(), new.as_deref());
    match *kind {
        NODE => differ(old, new, node_info),
        POD => differ(old, new, occupied_node),
        _ => false,
    }
}

/// Returns the items of a changed service. A service that is deleted or changes its selection releases its claims, so
/// other services are enqueued. Other status changes are the operator's own writes.
fn service_items(
    index: &ServiceIndex,
    kind: Kind,
    key: &NamespacedName,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Vec<WorkItem> {
    let own_item = WorkItem::Service(kind, key.clone());
    let waiting_services = || index.not_ready().into_iter().filter(|item| *item != own_item).collect::<Vec<_>>();
    let selection = |service: &Value| service["status"]["decision"]["components"].clone();
    let claim_fields =
        |service: &Value| (selection(service), plan::status_waits_for_capacity(&service["status"]["decision"]));
    let has_released_claim = old.is_some_and(|old| selection(old).is_object()) && differ(old, new, claim_fields);
    match new {
        None => index.not_ready(),
        Some(_) if differ(old, new, user_fields) => vec![own_item],
        Some(_) if has_released_claim => waiting_services(),
        Some(_) => Vec::new(),
    }
}

/// Returns the service that the labels of a Pod name.
pub(crate) fn service_of_pod(pod: &Value) -> Option<WorkItem> {
    POD_LABELS.iter().find_map(|(label, kind)| {
        let name = pod["metadata"]["labels"][label].as_str()?;
        Some(WorkItem::Service(*kind, NamespacedName::new(metadata_field(pod, "namespace"), name)))
    })
}

/// Returns the service that controls `object`.
fn owning_service(object: &Value) -> Option<WorkItem> {
    let reference = controller_of(object)?;
    let kind = [OME_SERVICE, FUSIONINFER_SERVICE].into_iter().find(|kind| {
        reference["kind"] == kind.kind
            && reference["apiVersion"].as_str().is_some_and(|version| version.starts_with(kind.group))
    })?;
    let key = NamespacedName::new(metadata_field(object, "namespace"), reference["name"].as_str()?);
    Some(WorkItem::Service(kind, key))
}

/// Returns whether the facts of the old and the new object differ.
pub(crate) fn differ<T: PartialEq>(old: Option<&Value>, new: Option<&Value>, facts: impl Fn(&Value) -> T) -> bool {
    old.map(&facts) != new.map(&facts)
}

/// Returns the fields that users write: the spec, and the metadata without server-managed fields such as
/// `resourceVersion`.
pub(crate) fn user_fields(object: &Value) -> [Value; 5] {
    let metadata = &object["metadata"];
    ["uid", "labels", "annotations", "deletionTimestamp"]
        .map(|name| metadata[name].clone())
        .into_iter()
        .chain([object["spec"].clone()])
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_default()
}

/// Returns whether a class has more free capacity than before, or other nodes. Less capacity does not affect waiting
/// services.
fn has_freed_capacity(old: Option<&Value>, new: Option<&Value>) -> bool {
    let available_accelerators =
        |class: Option<&Value>| class.and_then(|class| class["status"]["availableAccelerators"].as_i64());
    let nodes = |class: &Value| ["nodes", "totalAccelerators"].map(|name| class["status"][name].clone());
    available_accelerators(new) > available_accelerators(old) || differ(old, new, nodes)
}

/// Returns the node that the Pod occupies until it terminates.
pub(crate) fn occupied_node(pod: &Value) -> Option<String> {
    pod["spec"]["nodeName"].as_str().filter(|_| !is_pod_terminal(pod)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn change(kind: Kind, old: Value, new: Value) -> Change {
        let object = |value: Value| (!value.is_null()).then(|| Arc::new(value));
        let key = NamespacedName::from_object(if new.is_null() { &old } else { &new });
        Change::Object { kind, key, old: object(old), new: object(new) }
    }

    /// Returns an index with a ready and a waiting service.
    fn index() -> ServiceIndex {
        let mut index = ServiceIndex::default();
        for (name, ready) in [("ready", "True"), ("waiting", "False")] {
            let object = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
            index.observe(OME_SERVICE, &NamespacedName::new("n", name), Some(&object));
        }
        index
    }

    /// Returns the names of the enqueued items, those with low priority after a `|`.
    fn item_names(enqueue: &Enqueue) -> Vec<String> {
        let name = |item: &WorkItem| match item {
            WorkItem::InvalidObjects => "invalid-objects".to_owned(),
            WorkItem::Service(_, key) => key.name.clone(),
            _ => "class".to_owned(),
        };
        let separator = (!enqueue.low_priority.is_empty()).then(|| "|".to_owned());
        enqueue.normal_priority.iter().map(name).chain(separator).chain(enqueue.low_priority.iter().map(name)).collect()
    }

    fn node(labels: Value, heartbeat: &str) -> Value {
        json!({"metadata": {"name": "x", "labels": labels, "resourceVersion": heartbeat},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]}})
    }

    #[test]
    fn heartbeat_enqueues_nothing() {
        let heartbeat = change(NODE, node(json!({"gpu": "a"}), "1"), node(json!({"gpu": "a"}), "2"));
        assert_eq!(work_items(&index(), &heartbeat), Enqueue::default());
        let label = change(NODE, node(json!({"gpu": "a"}), "1"), node(json!({"gpu": "b"}), "2"));
        assert_eq!(item_names(&work_items(&index(), &label)), ["waiting", "|", "ready"]);
    }

    #[test]
    fn freed_capacity_enqueues_waiting_services_and_edits_enqueue_all() {
        let class = |free: i64, spec: &str| json!({"metadata": {"name": "h100"}, "spec": {"vendor": spec}, "status": {"availableAccelerators": free}});
        assert_eq!(
            item_names(&work_items(&index(), &change(ACCELERATOR_CLASS, class(1, "a"), class(2, "a")))),
            ["waiting"]
        );
        assert_eq!(
            item_names(&work_items(&index(), &change(ACCELERATOR_CLASS, class(1, "a"), class(1, "b")))),
            ["invalid-objects", "waiting", "|", "ready"]
        );
        // Less free capacity does not affect waiting services.
        assert_eq!(work_items(&index(), &change(ACCELERATOR_CLASS, class(2, "a"), class(1, "a"))), Enqueue::default());
        let runtime = |spec: &str| json!({"metadata": {"name": "r"}, "spec": {"image": spec}});
        assert_eq!(
            item_names(&work_items(&index(), &change(CLUSTER_SERVING_RUNTIME, Value::Null, runtime("a")))),
            ["invalid-objects", "waiting", "|", "ready"]
        );
    }

    #[test]
    fn own_status_write_enqueues_nothing() {
        let service = |phase: &str| json!({"metadata": {"namespace": "n", "name": "ready", "resourceVersion": phase}, "status": {"p": phase}});
        assert_eq!(work_items(&index(), &change(OME_SERVICE, service("1"), service("2"))), Enqueue::default());
        assert_eq!(item_names(&work_items(&index(), &change(OME_SERVICE, service("1"), Value::Null))), ["waiting"]);
    }

    #[test]
    fn changed_selection_enqueues_waiting_services() {
        let service = |class: &str| {
            json!({"metadata": {"namespace": "n", "name": "ready"},
            "status": {"decision": {"components": {"engine": {"acceleratorClass": class}}}}})
        };
        assert_eq!(item_names(&work_items(&index(), &change(OME_SERVICE, service("a"), service("b")))), ["waiting"]);
        let undecided = json!({"metadata": {"namespace": "n", "name": "ready"}});
        assert_eq!(work_items(&index(), &change(OME_SERVICE, undecided, service("b"))), Enqueue::default());
    }

    #[test]
    fn deletion_of_unowned_object_enqueues_blocked_services() {
        let mut index = index();
        let blocked = json!({"metadata": {"namespace": "n", "name": "blocked"},
            "status": {"conditions": [{"type": "Initialized", "status": "False", "reason": "ObjectNotOurs"}]}});
        index.observe(FUSIONINFER_SERVICE, &NamespacedName::from_object(&blocked), Some(&blocked));
        let object = |namespace: &str| json!({"metadata": {"namespace": namespace, "name": "any"}});
        let deletion = |namespace: &str| change(crate::kinds::POD_GROUP, object(namespace), Value::Null);
        assert_eq!(item_names(&work_items(&index, &deletion("n"))), ["blocked"]);
        assert_eq!(work_items(&index, &deletion("other")), Enqueue::default());
    }

    #[test]
    fn pods_and_owned_objects_enqueue_their_service() {
        let pod = |node: Value, phase: &str| {
            json!({"metadata": {"namespace": "n", "name": "p", "labels": {"ome.io/inferenceservice": "ready"}},
            "spec": {"nodeName": node}, "status": {"phase": phase}})
        };
        assert_eq!(
            item_names(&work_items(&index(), &change(POD, pod(json!("x"), "Pending"), pod(json!("x"), "Running")))),
            ["ready"]
        );
        assert_eq!(
            item_names(&work_items(&index(), &change(POD, pod(json!("x"), "Running"), pod(json!("x"), "Failed")))),
            ["ready"]
        );
        let owned = json!({"metadata": {"namespace": "n", "name": "d", "ownerReferences":
            [{"controller": true, "apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService", "name": "r"}]}});
        let enqueue = work_items(&index(), &change(crate::kinds::DEPLOYMENT, Value::Null, owned));
        assert_eq!(enqueue.normal_priority, [WorkItem::Service(FUSIONINFER_SERVICE, NamespacedName::new("n", "r"))]);
    }
}
