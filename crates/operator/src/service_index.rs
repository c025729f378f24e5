//! Index of all services with the facts that determine which of them to enqueue, so that a change does not read every
//! service.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Kind, NamespacedName, find_condition, metadata_field};
use serde_json::Value;

use crate::condition_reason::ConditionReason;
use crate::kinds::{FUSIONINFER_SERVICE, OME_SERVICE, SERVICES};
use crate::work_item::WorkItem;

/// Services of both kinds.
#[derive(Debug, Default)]
pub(crate) struct ServiceIndex {
    services: BTreeMap<(Kind, NamespacedName), IndexedService>,
    /// Creation timestamps and keys of `ome.io` services, the only ones that select runtimes and classes. The oldest
    /// service selects first.
    by_creation: BTreeSet<(String, NamespacedName)>,
}

/// Indexed facts about a service.
#[derive(Debug, PartialEq)]
struct IndexedService {
    creation_timestamp: String,
    is_ready: bool,
    /// Whether replicas of a role have an earlier template.
    is_updating: bool,
    /// Whether an object of another owner blocks the service.
    is_blocked: bool,
}

// === impl ServiceIndex ===

impl ServiceIndex {
    /// Updates the entry of a service; `None` if it was deleted.
    pub(crate) fn apply(&mut self, kind: Kind, key: &NamespacedName, service: Option<&Value>) {
        let index_key = (kind, key.clone());
        let new = service.map(IndexedService::new);
        if self.services.get(&index_key) == new.as_ref() {
            return;
        }
        let creation_timestamp = new.as_ref().map(|new| new.creation_timestamp.clone());
        let old = match new {
            Some(new) => self.services.insert(index_key, new),
            None => self.services.remove(&index_key),
        };
        if kind == OME_SERVICE {
            old.map(|old| self.by_creation.remove(&(old.creation_timestamp, key.clone())));
            self.by_creation.extend(creation_timestamp.map(|created| (created, key.clone())));
        }
    }

    /// Returns all services: `ome.io` services from the oldest to the newest, then role-based services.
    pub(crate) fn all(&self) -> Vec<WorkItem> {
        let role_based = self.services.keys().filter(|(kind, _)| *kind == FUSIONINFER_SERVICE);
        let role_based = role_based.map(|(kind, key)| WorkItem::Service(*kind, key.clone()));
        self.selecting_services(|_| true).into_iter().chain(role_based).collect()
    }

    /// Returns the services that may use further capacity: the selecting ones that are not ready, the oldest first, then the
    /// role-based ones that are not ready or are being updated.
    pub(crate) fn waiting_services(&self) -> Vec<WorkItem> {
        let role_based = self.services.iter().filter(|((kind, _), _)| *kind != OME_SERVICE);
        let waiting = role_based.filter(|(_, service)| service.is_updating || !service.is_ready);
        let waiting = waiting.map(|((kind, key), _)| WorkItem::Service(*kind, key.clone()));
        self.selecting_services(|service| !service.is_ready).into_iter().chain(waiting).collect()
    }

    /// Returns the services that may use further capacity, without the service `key`.
    pub(crate) fn other_waiting_services(&self, key: &NamespacedName) -> Vec<WorkItem> {
        let mut items = self.waiting_services();
        items.retain(|item| *item != WorkItem::Service(OME_SERVICE, key.clone()));
        items
    }

    /// Returns the selecting services that are ready, the oldest first.
    pub(crate) fn ready_services(&self) -> Vec<WorkItem> {
        self.selecting_services(|service| service.is_ready)
    }

    /// Returns the services of `namespace` that are blocked by an object of another owner.
    pub(crate) fn blocked(&self, namespace: &str) -> Vec<WorkItem> {
        let blocked_of_kind = |kind: Kind| {
            let start = (kind, NamespacedName::new(namespace, ""));
            let services = self
                .services
                .range(start..)
                .take_while(move |((other, key), _)| *other == kind && key.namespace == namespace);
            services
                .filter(|(_, service)| service.is_blocked)
                .map(move |((_, key), _)| WorkItem::Service(kind, key.clone()))
        };
        SERVICES.into_iter().flat_map(blocked_of_kind).collect()
    }

    /// Returns the services that select runtimes and classes and that `predicate` accepts, the oldest first.
    fn selecting_services(&self, predicate: impl Fn(&IndexedService) -> bool) -> Vec<WorkItem> {
        let keys = self.by_creation.iter().map(|(_, key)| (OME_SERVICE, key.clone()));
        let accepted = keys.filter(|key| self.services.get(key).is_some_and(&predicate));
        accepted.map(|(kind, key)| WorkItem::Service(kind, key)).collect()
    }
}

// === impl IndexedService ===

impl IndexedService {
    fn new(service: &Value) -> IndexedService {
        let conditions = &service["status"]["conditions"];
        let is_not_owned = |condition: &Value| condition["reason"] == ConditionReason::ObjectNotOurs.as_str();
        IndexedService {
            creation_timestamp: metadata_field(service, "creationTimestamp").to_owned(),
            is_ready: find_condition(conditions, "Ready").is_some_and(|ready| ready["status"] == "True"),
            is_updating: service["status"]["rollouts"].as_object().is_some_and(|rollouts| !rollouts.is_empty()),
            is_blocked: conditions.as_array().is_some_and(|conditions| conditions.iter().any(is_not_owned)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(created: &str, ready: &str, reason: &str) -> Value {
        json!({"metadata": {"creationTimestamp": created},
            "status": {"conditions": [{"type": "Ready", "status": ready, "reason": reason}]}})
    }

    fn names(items: Vec<WorkItem>) -> Vec<String> {
        let name = |item| match item {
            WorkItem::Service(_, key) => key.name,
            other => format!("{other:?}"),
        };
        items.into_iter().map(name).collect()
    }

    #[test]
    fn orders_services_by_creation() {
        let mut index = ServiceIndex::default();
        let key = |name: &str| NamespacedName::new("n", name);
        index.apply(OME_SERVICE, &key("a"), Some(&service("2026-01-03T00:00:00Z", "False", "")));
        index.apply(OME_SERVICE, &key("b"), Some(&service("2026-01-01T00:00:00Z", "True", "")));
        index.apply(OME_SERVICE, &key("c"), Some(&service("2026-01-02T00:00:00Z", "False", "")));
        index.apply(FUSIONINFER_SERVICE, &key("r"), Some(&service("2025-01-01T00:00:00Z", "False", "")));
        assert_eq!(names(index.all()), ["b", "c", "a", "r"]);
        assert_eq!(names(index.waiting_services()), ["c", "a", "r"]);
        // The service is recreated with the same name.
        index.apply(OME_SERVICE, &key("c"), Some(&service("2026-01-04T00:00:00Z", "True", "")));
        assert_eq!(
            (names(index.all()), names(index.ready_services()), names(index.waiting_services())),
            (
                vec!["b".into(), "a".into(), "c".into(), "r".into()],
                vec!["b".into(), "c".into()],
                vec!["a".into(), "r".to_owned()]
            )
        );
        index.apply(OME_SERVICE, &key("a"), None);
        assert_eq!(names(index.all()), ["b", "c", "r"]);
        let mut updating = service("2025-01-01T00:00:00Z", "True", "");
        updating["status"]["rollouts"] = json!({"decode": {"replicas": 2}});
        index.apply(FUSIONINFER_SERVICE, &key("r"), Some(&updating));
        assert_eq!(names(index.waiting_services()), ["r"]);
    }

    #[test]
    fn finds_blocked_services_by_namespace() {
        let mut index = ServiceIndex::default();
        let blocked = service("", "False", "ObjectNotOurs");
        for (kind, namespace, name) in
            [(OME_SERVICE, "n", "a"), (FUSIONINFER_SERVICE, "n", "b"), (FUSIONINFER_SERVICE, "other", "c")]
        {
            index.apply(kind, &NamespacedName::new(namespace, name), Some(&blocked));
        }
        index.apply(OME_SERVICE, &NamespacedName::new("n", "fine"), Some(&service("", "False", "Starting")));
        assert_eq!(names(index.blocked("n")), ["a", "b"]);
        index.apply(OME_SERVICE, &NamespacedName::new("n", "a"), Some(&service("", "True", "Ready")));
        assert_eq!(names(index.blocked("n")), ["b"]);
    }
}
