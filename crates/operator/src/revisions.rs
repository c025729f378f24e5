//! The history of a service: its spec at each rollout, kept in ControllerRevisions.
//!
//! How many replicas there are is no part of a revision: scaling is nothing to undo, and undoing does not scale.

use std::sync::Arc;

use cluster::Stores;
use cluster::object::meta;
use plan::labels::{MANAGED_BY, OME_SERVICE, OSTLER, SERVICE};
use serde_json::{Map, Value, json};

use crate::kinds::{REVISION, ROLES_SERVICE};

/// Revisions kept of each service, the present one among them.
pub const KEPT: usize = 10;
/// Components of an `ome.io` service whose numbers are left out.
const COMPONENTS: [&str; 3] = ["engine", "decoder", "router"];
const COUNTS: [&str; 2] = ["minReplicas", "maxReplicas"];

/// The ControllerRevisions that `service` is to have; `held` are those that it has. A spec that was there before becomes
/// the newest again.
#[must_use]
pub fn history(service: &Value, held: &[Arc<Value>]) -> Vec<Value> {
    let data = json!({"spec": content(&service["spec"])});
    let newest = held.iter().map(|one| number(one)).max().unwrap_or(0);
    let present = held.iter().find(|one| one["data"] == data);
    let own = match present {
        Some(present) if number(present) == newest => render(service, meta(present, "name"), &data, newest),
        Some(present) => render(service, meta(present, "name"), &data, newest + 1),
        None => render(service, &name(service, &data), &data, newest + 1),
    };
    let mut others: Vec<&Arc<Value>> = held.iter().filter(|one| meta(one, "name") != meta(&own, "name")).collect();
    others.sort_by_key(|one| std::cmp::Reverse(number(one)));
    let others = others.into_iter().take(KEPT - 1);
    let mut all: Vec<Value> =
        others.map(|one| render(service, meta(one, "name"), &one["data"], number(one))).chain([own]).collect();
    all.sort_by_key(number);
    all
}

/// The ControllerRevisions of `service` that the stores hold.
#[must_use]
pub(crate) fn held(stores: &Stores, service: &Value) -> Vec<Arc<Value>> {
    stores.owned(REVISION, meta(service, "uid"))
}

/// Its place in the history.
#[must_use]
pub fn number(revision: &Value) -> i64 {
    revision["revision"].as_i64().unwrap_or_default()
}

/// `spec` without the numbers that scaling moves.
#[must_use]
pub fn content(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for role in declared(&mut spec).filter_map(Value::as_object_mut) {
        role.remove("replicas");
    }
    for component in COMPONENTS {
        if let Some(component) = spec.get_mut(component).and_then(Value::as_object_mut) {
            COUNTS.iter().for_each(|count| drop(component.remove(*count)));
        }
    }
    spec
}

/// The spec of `revision`, with as many replicas as `spec` has now of everything that both have.
#[must_use]
pub fn restored(spec: &Value, revision: &Value) -> Value {
    let mut restored = revision["data"]["spec"].clone();
    let now = spec["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
    for role in declared(&mut restored) {
        let same = now.iter().find(|one| one["name"] == role["name"]);
        take_over(role, same.unwrap_or(&Value::Null), &["replicas"]);
    }
    for component in COMPONENTS {
        if let Some(own) = restored.get_mut(component) {
            take_over(own, &spec[component], &COUNTS);
        }
    }
    restored
}

fn declared(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    spec.get_mut("roles").and_then(Value::as_array_mut).into_iter().flatten()
}

fn take_over(into: &mut Value, from: &Value, fields: &[&str]) {
    for field in fields.iter().filter(|field| !from[**field].is_null()) {
        into[*field] = from[*field].clone();
    }
}

fn render(service: &Value, name: &str, data: &Value, revision: i64) -> Value {
    let roles = service["apiVersion"] == ROLES_SERVICE.api_version();
    let label = if roles { SERVICE } else { OME_SERVICE };
    let labels: Map<String, Value> = [(MANAGED_BY, OSTLER), (label, meta(service, "name"))]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), json!(labels_value(value))))
        .collect();
    json!({
        "apiVersion": REVISION.api_version(), "kind": REVISION.kind,
        "metadata": {"namespace": service["metadata"]["namespace"], "name": name, "labels": labels},
        "data": data, "revision": revision,
    })
}

fn labels_value(text: &str) -> String {
    plan::names::label_value(text)
}

/// `{service}-{hash of the content}`.
fn name(service: &Value, data: &Value) -> String {
    format!("{}-{:016x}", meta(service, "name"), plan::names::fingerprint(&data.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(image: &str, replicas: i64) -> Value {
        json!({"apiVersion": "fusioninfer.io/v1alpha1", "metadata": {"namespace": "n", "name": "s"},
            "spec": {"roles": [{"name": "w", "replicas": replicas, "template": {"image": image}}]}})
    }

    fn arcs(all: Vec<Value>) -> Vec<Arc<Value>> {
        all.into_iter().map(Arc::new).collect()
    }

    fn told(all: &[Value]) -> Vec<String> {
        let image = |one: &Value| one["data"]["spec"]["roles"][0]["template"]["image"].as_str().unwrap().to_owned();
        all.iter().map(|one| format!("{} {}", number(one), image(one))).collect()
    }

    #[test]
    fn an_edit_is_a_revision_and_scaling_is_none() {
        let first = history(&service("a", 1), &[]);
        assert_eq!(told(&first), ["1 a"]);
        assert_eq!(history(&service("a", 5), &arcs(first.clone())), first);
        let second = history(&service("b", 1), &arcs(first));
        assert_eq!(told(&second), ["1 a", "2 b"]);
        assert_eq!(told(&history(&service("a", 1), &arcs(second))), ["2 b", "3 a"], "what comes back is the newest");
    }

    #[test]
    fn ten_are_kept() {
        let mut held = Vec::new();
        for number in 0..15 {
            held = arcs(history(&service(&format!("i{number}"), 1), &held));
        }
        let numbers: Vec<i64> = held.iter().map(|one| number(one)).collect();
        assert_eq!(numbers, (6..=15).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_restored_keeps_its_replicas() {
        let old = history(&service("a", 1), &[]).remove(0);
        assert_eq!(restored(&service("b", 4)["spec"], &old), service("a", 4)["spec"]);
        let ome = |image: &str, most: i64| json!({"engine": {"runner": {"image": image}, "minReplicas": 1, "maxReplicas": most}});
        let revision = json!({"data": {"spec": content(&ome("a", 2))}});
        assert_eq!(restored(&ome("b", 6), &revision), ome("a", 6));
        assert_eq!(restored(&json!({}), &revision), json!({"engine": {"runner": {"image": "a"}}}));
    }
}
