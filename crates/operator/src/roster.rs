//! Which services there are, and what wakes go by: kept one change after the other, so that no wake reads every service.

use std::collections::{BTreeMap, BTreeSet};

use cluster::conditions::find;
use cluster::object::meta;
use cluster::{Key, Kind};
use serde_json::Value;

use crate::kinds::{OME_SERVICE, ROLES_SERVICE};
use crate::reason::Reason;
use crate::wake::Item;

/// The services of both kinds.
#[derive(Debug, Default)]
pub struct Roster {
    services: BTreeMap<(Kind, Key), Standing>,
    /// Keys of `ome.io` services by creation: only these choose among runtimes and classes, and who has waited longest
    /// chooses first.
    oldest: BTreeSet<(String, Key)>,
}

#[derive(Debug, PartialEq)]
struct Standing {
    created: String,
    waits: bool,
    kept_out: bool,
}

// === impl Roster ===

impl Roster {
    /// Takes in what a service is now; `None`: it is gone.
    pub fn look(&mut self, kind: Kind, key: &Key, service: Option<&Value>) {
        let place = (kind, key.clone());
        let now = service.map(Standing::of);
        if self.services.get(&place) == now.as_ref() {
            return;
        }
        let created = now.as_ref().map(|now| now.created.clone());
        let before = match now {
            Some(now) => self.services.insert(place, now),
            None => self.services.remove(&place),
        };
        if kind == OME_SERVICE {
            before.map(|before| self.oldest.remove(&(before.created, key.clone())));
            self.oldest.extend(created.map(|created| (created, key.clone())));
        }
    }

    /// Every service: those that choose before the others, the oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Item> {
        let roles = self.services.keys().filter(|(kind, _)| *kind == ROLES_SERVICE);
        let roles = roles.map(|(kind, key)| Item::Service(*kind, key.clone()));
        self.choosing().into_iter().chain(roles).collect()
    }

    /// Those that choose, the oldest first.
    #[must_use]
    pub fn choosing(&self) -> Vec<Item> {
        self.oldest.iter().map(|(_, key)| Item::Service(OME_SERVICE, key.clone())).collect()
    }

    /// Those that choose and are not ready, the oldest first: a better or a first choice may have become possible.
    #[must_use]
    pub fn waiting(&self) -> Vec<Item> {
        let mut items = self.choosing();
        items.retain(|item| matches!(item, Item::Service(kind, key) if self.is(*kind, key, |one| one.waits)));
        items
    }

    /// Those that choose and are ready, the oldest first.
    #[must_use]
    pub fn served(&self) -> Vec<Item> {
        let mut items = self.choosing();
        items.retain(|item| matches!(item, Item::Service(kind, key) if self.is(*kind, key, |one| !one.waits)));
        items
    }

    /// Those of `namespace` that could not make an object because one of its name was somebody else's.
    #[must_use]
    pub fn kept_out(&self, namespace: &str) -> Vec<Item> {
        let of_kind = |kind: Kind| {
            let from = (kind, Key::new(namespace, ""));
            let there =
                self.services.range(from..).take_while(move |((is, key), _)| *is == kind && key.namespace == namespace);
            there.filter(|(_, standing)| standing.kept_out).map(move |((_, key), _)| Item::Service(kind, key.clone()))
        };
        [OME_SERVICE, ROLES_SERVICE].into_iter().flat_map(of_kind).collect()
    }

    fn is(&self, kind: Kind, key: &Key, so: impl Fn(&Standing) -> bool) -> bool {
        self.services.get(&(kind, key.clone())).is_some_and(so)
    }
}

// === impl Standing ===

impl Standing {
    fn of(service: &Value) -> Standing {
        let conditions = &service["status"]["conditions"];
        let not_ours = |one: &Value| one["reason"] == Reason::ObjectNotOurs.as_str();
        Standing {
            created: meta(service, "creationTimestamp").to_owned(),
            waits: find(conditions, "Ready").is_none_or(|ready| ready["status"] != "True"),
            kept_out: conditions.as_array().is_some_and(|all| all.iter().any(not_ours)),
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

    fn names(items: Vec<Item>) -> Vec<String> {
        let name = |item| match item {
            Item::Service(_, key) => key.name,
            other => format!("{other:?}"),
        };
        items.into_iter().map(name).collect()
    }

    #[test]
    fn who_has_waited_longest_comes_first() {
        let mut roster = Roster::default();
        let key = |name: &str| Key::new("n", name);
        roster.look(OME_SERVICE, &key("a"), Some(&service("2026-01-03T00:00:00Z", "False", "")));
        roster.look(OME_SERVICE, &key("b"), Some(&service("2026-01-01T00:00:00Z", "True", "")));
        roster.look(OME_SERVICE, &key("c"), Some(&service("2026-01-02T00:00:00Z", "False", "")));
        roster.look(ROLES_SERVICE, &key("r"), Some(&service("2025-01-01T00:00:00Z", "False", "")));
        assert_eq!(names(roster.all()), ["b", "c", "a", "r"]);
        assert_eq!(names(roster.waiting()), ["c", "a"]);
        // Made again under its name.
        roster.look(OME_SERVICE, &key("c"), Some(&service("2026-01-04T00:00:00Z", "True", "")));
        assert_eq!(
            (names(roster.choosing()), names(roster.waiting())),
            (vec!["b".into(), "a".into(), "c".into()], vec!["a".to_owned()])
        );
        roster.look(OME_SERVICE, &key("a"), None);
        assert_eq!(names(roster.all()), ["b", "c", "r"]);
    }

    #[test]
    fn who_was_kept_out_is_found_by_namespace() {
        let mut roster = Roster::default();
        let blocked = service("", "False", "ObjectNotOurs");
        for (kind, namespace, name) in
            [(OME_SERVICE, "n", "a"), (ROLES_SERVICE, "n", "b"), (ROLES_SERVICE, "other", "c")]
        {
            roster.look(kind, &Key::new(namespace, name), Some(&blocked));
        }
        roster.look(OME_SERVICE, &Key::new("n", "fine"), Some(&service("", "False", "Starting")));
        assert_eq!(names(roster.kept_out("n")), ["a", "b"]);
        roster.look(OME_SERVICE, &Key::new("n", "a"), Some(&service("", "True", "Ready")));
        assert_eq!(names(roster.kept_out("n")), ["b"]);
    }
}
