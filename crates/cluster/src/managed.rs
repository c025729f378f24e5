//! Does a live object already hold what we would apply? Answered from its `managedFields`, without a request.
//!
//! Our entry lists the fields we applied last and how the server reads each list (as a whole, as a map by key, as a
//! set). The answer is yes if exactly those fields are desired now, and each has the desired value. Fields of others
//! and server defaults beside them play no part. Inside a value that we own as a whole `managedFields` name nothing, so
//! there a field more is one that we dropped, unless it is a known default ([`DEFAULTS`]).

use apimachinery::quantity::Quantity;
use serde_json::{Map, Value};

/// Fields of an applied object that never appear in `managedFields`.
const IDENTITY: [&str; 3] = ["apiVersion", "kind", "metadata"];
const IDENTITY_METADATA: [&str; 2] = ["name", "namespace"];

/// What the API server fills in inside values of built-in kinds that are owned as a whole (`fieldRef`,
/// `resourceFieldRef`, the sources of projected volumes), per `k8s.io/kubernetes/pkg/apis/core/v1/defaults.go`.
const DEFAULTS: [(&str, &str); 4] =
    [("apiVersion", "\"v1\""), ("divisor", "\"0\""), ("expirationSeconds", "3600"), ("name", "\"\"")];

/// Whether applying `desired` to the main resource as `manager` would change nothing.
#[must_use]
pub fn already_applied(live: &Value, desired: &Value, manager: &str) -> bool {
    entry(live, desired, manager, None).is_some_and(|fields| same_object(fields, desired, live, Reading::EXACT))
}

/// Likewise, but for fields more inside values that we own as a whole: the server's defaults, or what `desired` no longer
/// says. Only an apply tells which.
#[must_use]
pub fn applied_but_for_more(live: &Value, desired: &Value, manager: &str) -> bool {
    let more = Reading { wholes: Wholes::MayHoldMore, ..Reading::EXACT };
    entry(live, desired, manager, None).is_some_and(|fields| same_object(fields, desired, live, more))
}

/// Whether applying `desired` to the main resource as `manager` would leave `spec` as it is, whatever it does to metadata.
#[must_use]
pub fn spec_already_applied(live: &Value, desired: &Value, manager: &str) -> bool {
    entry(live, desired, manager, None)
        .is_some_and(|fields| same(&fields["f:spec"], &desired["spec"], &live["spec"], Reading::EXACT))
}

/// Whether applying `desired` to the status subresource as `manager` would change nothing.
#[must_use]
pub fn status_already_applied(live: &Value, desired: &Value, manager: &str) -> bool {
    let Some(fields) = entry(live, desired, manager, Some("status")) else { return false };
    same(&fields["f:status"], &desired["status"], &live["status"], Reading::EXACT)
}

/// Whether `manager` has ever applied to the object's main resource.
#[must_use]
pub fn manages(live: &Value, manager: &str) -> bool {
    let entries = live["metadata"]["managedFields"].as_array();
    entries.is_some_and(|entries| {
        entries.iter().any(|entry| entry["manager"] == manager && entry["subresource"].is_null())
    })
}

fn entry<'a>(live: &'a Value, desired: &Value, manager: &str, subresource: Option<&str>) -> Option<&'a Value> {
    let entries = live["metadata"]["managedFields"].as_array()?;
    let ours = |entry: &&Value| {
        entry["manager"] == manager
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str() == subresource
            && entry["apiVersion"] == desired["apiVersion"]
    };
    entries.iter().find(ours).map(|entry| &entry["fieldsV1"])
}

/// The top of an object: identity is no field.
fn same_object(fields: &Value, desired: &Value, live: &Value, reading: Reading) -> bool {
    let (mut rest, mut metadata) = (desired.clone(), desired["metadata"].clone());
    remove_all(&mut rest, &IDENTITY);
    remove_all(&mut metadata, &IDENTITY_METADATA);
    let mut outer = fields.clone();
    remove_all(&mut outer, &["f:metadata"]);
    // The object itself is nobody's as a whole: no field of ours is no wish.
    let nothing = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    (same(&outer, &rest, live, reading) || (nothing(&outer) && nothing(&rest)))
        && (same(&fields["f:metadata"], &metadata, &live["metadata"], reading)
            || none(&metadata, &fields["f:metadata"]))
}

fn none(metadata: &Value, fields: &Value) -> bool {
    fields.is_null() && metadata.as_object().is_none_or(Map::is_empty)
}

fn remove_all(object: &mut Value, names: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        names.iter().for_each(|name| drop(object.remove(*name)));
    }
}

/// How values compare.
#[derive(Clone, Copy)]
struct Reading {
    scalars: Scalars,
    wholes: Wholes,
}

#[derive(Clone, Copy, PartialEq)]
enum Scalars {
    Plain,
    /// Below `limits`, `requests` and their like, `1000m` is `1`.
    Quantities,
}

/// What a value that we own as a whole may hold beside what we wish.
#[derive(Clone, Copy, PartialEq)]
enum Wholes {
    /// Known defaults.
    Exact,
    /// Anything.
    MayHoldMore,
}

impl Reading {
    const EXACT: Reading = Reading { scalars: Scalars::Plain, wholes: Wholes::Exact };

    fn below(self, name: &str) -> Reading {
        match name {
            "limits" | "requests" | "minResources" => Reading { scalars: Scalars::Quantities, ..self },
            _ => self,
        }
    }
}

fn same(fields: &Value, desired: &Value, live: &Value, reading: Reading) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    if fields.keys().all(|field| field == ".") {
        return contained(desired, live, reading);
    }
    match desired {
        Value::Object(desired) => same_map(fields, desired, live, reading),
        Value::Array(desired) if fields.keys().any(|field| field.starts_with("k:")) => {
            same_by_key(fields, desired, live, reading)
        }
        Value::Array(desired) => same_set(fields, desired, live),
        _ => false,
    }
}

fn same_map(fields: &Map<String, Value>, desired: &Map<String, Value>, live: &Value, reading: Reading) -> bool {
    let dropped = fields.keys().filter_map(|field| field.strip_prefix("f:")).any(|name| !desired.contains_key(name));
    !dropped
        && desired.iter().filter(|(_, value)| !value.is_null()).all(|(name, value)| {
            let field = fields.get(&format!("f:{name}")).unwrap_or(&Value::Null);
            same(field, value, &live[name.as_str()], reading.below(name))
        })
}

/// A list read as a map: `k:{"name":"main"}` names the item.
fn same_by_key(fields: &Map<String, Value>, desired: &[Value], live: &Value, reading: Reading) -> bool {
    let keys: Vec<(Map<String, Value>, &Value)> = fields
        .iter()
        .filter_map(|(field, below)| Some((serde_json::from_str(field.strip_prefix("k:")?).ok()?, below)))
        .collect();
    let live = live.as_array().map(Vec::as_slice).unwrap_or_default();
    keys.len() == desired.len()
        && desired.iter().all(|item| {
            let named = keys.iter().find(|(key, _)| {
                key.iter().all(|(name, value)| item[name.as_str()] == *value || item[name.as_str()].is_null())
            });
            named.is_some_and(|(key, below)| {
                let held = live.iter().find(|held| key.iter().all(|(name, value)| held[name.as_str()] == *value));
                held.is_some_and(|held| same_item(key, below, item, held, reading))
            })
        })
}

/// A key that the server defaulted (a port's protocol) is among the item's fields though we never sent it.
fn same_item(key: &Map<String, Value>, below: &Value, item: &Value, held: &Value, reading: Reading) -> bool {
    let mut item = item.clone();
    if let Some(object) = item.as_object_mut() {
        for (name, value) in key.iter().filter(|(name, _)| !below[format!("f:{name}")].is_null()) {
            object.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    same(below, &item, held, reading)
}

fn same_set(fields: &Map<String, Value>, desired: &[Value], live: &Value) -> bool {
    let live = live.as_array().map(Vec::as_slice).unwrap_or_default();
    let owned: Vec<Value> =
        fields.keys().filter_map(|field| serde_json::from_str(field.strip_prefix("v:")?).ok()).collect();
    owned.len() == desired.len() && desired.iter().all(|item| owned.contains(item) && live.contains(item))
}

/// A value owned as a whole.
fn contained(desired: &Value, live: &Value, reading: Reading) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let wished = desired.iter().filter(|(_, value)| !value.is_null());
            let holds = |(name, value): (&String, &Value)| {
                live.get(name).is_some_and(|live| contained(value, live, reading.below(name)))
            };
            wished.clone().all(holds) && (reading.wholes == Wholes::MayHoldMore || no_more(desired, live))
        }
        (Value::Array(desired), Value::Array(live)) => {
            desired.len() == live.len()
                && desired.iter().zip(live).all(|(desired, live)| contained(desired, live, reading))
        }
        _ => {
            desired == live
                || (reading.scalars == Scalars::Quantities && same_quantity(desired, live))
                || same_number(desired, live)
        }
    }
}

/// Whether `live` has no field that `desired` lacks and no server fills in. `null` is no field.
fn no_more(desired: &Map<String, Value>, live: &Map<String, Value>) -> bool {
    let lacking = |name: &str| desired.get(name).is_none_or(Value::is_null);
    let default = |name: &str, value: &Value| DEFAULTS.contains(&(name, value.to_string().as_str()));
    live.iter().filter(|(name, value)| lacking(name) && !value.is_null()).all(|(name, value)| default(name, value))
}

fn same_quantity(one: &Value, other: &Value) -> bool {
    let read = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
    read(one).is_some_and(|one| read(other) == Some(one))
}

/// `1` and `1.0` are one JSON number.
fn same_number(one: &Value, other: &Value) -> bool {
    matches!((one, other), (Value::Number(_), Value::Number(_))) && one.as_f64() == other.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn desired() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n", "labels": {"app": "a"}},
            "spec": {"replicas": 1, "template": {"spec": {
                "containers": [{"name": "main", "image": "i", "args": ["--a", "1"], "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "1000m", "gpu": 1}}}],
                "volumes": [{"name": "tmp", "emptyDir": {}}], "tolerations": [{"key": "gpu", "operator": "Exists"}]}}}})
    }

    fn live() -> Value {
        let mut live = desired();
        live["metadata"]["uid"] = json!("u");
        live["spec"]["progressDeadlineSeconds"] = json!(600);
        let container = &mut live["spec"]["template"]["spec"]["containers"][0];
        container["imagePullPolicy"] = json!("Always");
        container["ports"][0]["protocol"] = json!("TCP");
        container["resources"]["limits"] = json!({"cpu": "1", "gpu": "1"});
        live["metadata"]["managedFields"] = json!([{"manager": "us", "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {
                "f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                    "f:resources": {"f:limits": {"f:cpu": {}, "f:gpu": {}}}}},
                "f:volumes": {"k:{\"name\":\"tmp\"}": {".": {}, "f:name": {}, "f:emptyDir": {}}},
                "f:tolerations": {}}}}}}]);
        live
    }

    #[test]
    fn what_was_applied_is_applied() {
        assert!(already_applied(&live(), &desired(), "us"));
        assert!(!already_applied(&live(), &desired(), "someone"));
    }

    #[rstest]
    #[case::value_changed("/spec/replicas", json!(2))]
    #[case::item_value_changed("/spec/template/spec/containers/0/image", json!("j"))]
    #[case::whole_list_changed("/spec/template/spec/containers/0/args", json!(["--a", "2"]))]
    #[case::quantity_changed("/spec/template/spec/containers/0/resources/limits/gpu", json!(2))]
    #[case::item_renamed("/spec/template/spec/containers/0/name", json!("other"))]
    #[case::item_dropped("/spec/template/spec/volumes", json!([]))]
    #[case::field_dropped("/metadata/labels", json!({}))]
    #[case::field_added("/metadata/labels", json!({"app": "a", "new": "b"}))]
    #[case::toleration_added("/spec/template/spec/tolerations", json!([{"key": "gpu", "operator": "Exists"}, {"operator": "Exists"}]))]
    fn a_changed_wish_is_seen(#[case] path: &str, #[case] value: Value) {
        let mut desired = desired();
        *desired.pointer_mut(path).unwrap() = value;
        assert!(!already_applied(&live(), &desired, "us"));
    }

    /// What nobody names inside a value that is ours as a whole is a field that we dropped, not one of somebody else.
    #[rstest]
    #[case::dropped("/spec/template/spec/tolerations/0", "effect", json!("NoSchedule"), false)]
    #[case::not_ours("/spec/template/spec/containers/0", "imagePullPolicy", json!("Never"), true)]
    #[case::default("/spec/template/spec/tolerations/0", "apiVersion", json!("v1"), true)]
    fn a_field_dropped_inside_a_whole_is_seen(
        #[case] path: &str,
        #[case] name: &str,
        #[case] value: Value,
        #[case] applied: bool,
    ) {
        let mut live = live();
        live.pointer_mut(path).unwrap()[name] = value;
        assert_eq!(already_applied(&live, &desired(), "us"), applied);
        assert!(applied_but_for_more(&live, &desired(), "us"));
    }

    #[test]
    fn drift_is_seen() {
        let mut live = live();
        live["spec"]["replicas"] = json!(7);
        assert!(!already_applied(&live, &desired(), "us"));
    }

    #[test]
    fn quantities_are_equal_only_where_quantities_stand() {
        let mut desired = desired();
        desired["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--a", "1000m"]);
        assert!(!already_applied(&live(), &desired, "us"));
    }

    #[test]
    fn status_has_its_own_entry() {
        let live = json!({"status": {"phase": "Up", "nodes": ["a"], "other": 1}, "metadata": {"managedFields": [
            {"manager": "us", "operation": "Apply", "apiVersion": "g/v1", "subresource": "status",
             "fieldsV1": {"f:status": {"f:phase": {}, "f:nodes": {}}}}]}});
        let wish = |status: Value| json!({"apiVersion": "g/v1", "status": status});
        assert!(status_already_applied(&live, &wish(json!({"phase": "Up", "nodes": ["a"]})), "us"));
        assert!(!status_already_applied(&live, &wish(json!({"phase": "Up"})), "us"));
        assert!(!status_already_applied(&live, &wish(json!({"phase": "Up", "nodes": ["b"]})), "us"));
    }

    #[test]
    fn sets_compare_by_member() {
        let live = json!({"metadata": {"finalizers": ["a", "b"], "managedFields": [{"manager": "us", "operation": "Apply",
            "apiVersion": "v1", "fieldsV1": {"f:metadata": {"f:finalizers": {"v:\"a\"": {}}}}}]}});
        let wish = |finalizers: Value| json!({"apiVersion": "v1", "metadata": {"name": "x", "finalizers": finalizers}});
        assert!(already_applied(&live, &wish(json!(["a"])), "us"));
        assert!(!already_applied(&live, &wish(json!(["a", "b"])), "us"));
    }
}
