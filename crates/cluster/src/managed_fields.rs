//! Compares desired and live objects by `managedFields`, to skip applies that would change nothing.
//!
//! Our `managedFields` entry lists the fields that we applied last and how the API server merges each list (atomic, map or
//! set). A live object is up to date if exactly these fields are desired and each has the desired value. Fields of other
//! managers and server defaults are ignored. `managedFields` do not list the fields inside an atomic value: an additional
//! field there is one that we removed from the desired object, unless it is a known default ([`ATOMIC_DEFAULTS`]).

use apimachinery::Quantity;
use serde_json::{Map, Value};

/// Fields of an applied object that never appear in `managedFields`.
const IDENTITY_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];
const IDENTITY_METADATA_FIELDS: [&str; 2] = ["name", "namespace"];

/// Fields in the `spec` of a Deployment, and of a LeaderWorkerSet, whose changes replace Pods.
const POD_TEMPLATE_FIELDS: [&str; 3] = ["template", "leaderWorkerTemplate", "networkConfig"];

/// Defaults that the API server sets inside atomic values of built-in kinds (`fieldRef`, `resourceFieldRef`, the sources of
/// projected volumes), per `k8s.io/kubernetes/pkg/apis/core/v1/defaults.go`.
const ATOMIC_DEFAULTS: [(&str, &str); 4] =
    [("apiVersion", "\"v1\""), ("divisor", "\"0\""), ("expirationSeconds", "3600"), ("name", "\"\"")];

/// How values are compared.
#[derive(Clone, Copy)]
struct Comparison {
    scalars: Scalars,
    atomic_values: AtomicValues,
}

/// How scalar values are compared.
#[derive(Clone, Copy, PartialEq)]
enum Scalars {
    /// JSON values.
    Plain,
    /// Values below `limits`, `requests` and similar fields are quantities: `1000m` equals `1`.
    Quantities,
}

/// Which additional fields a live atomic value may have.
#[derive(Clone, Copy, PartialEq)]
enum AtomicValues {
    /// Known defaults only.
    Exact,
    /// Any fields.
    AllowExtraFields,
}

/// Returns whether applying `desired` to the main resource as `manager` would change nothing.
#[must_use]
pub(crate) fn is_applied(live: &Value, desired: &Value, manager: &str) -> bool {
    managed_fields(live, desired, manager, None)
        .is_some_and(|fields| equal_objects(fields, desired, live, Comparison::EXACT))
}

/// Returns the same as [`is_applied`], but ignores additional fields inside atomic values: they are server defaults, or
/// fields that were removed from `desired`, which only an apply can distinguish.
#[must_use]
pub(crate) fn is_applied_ignoring_extra_fields(live: &Value, desired: &Value, manager: &str) -> bool {
    let comparison = Comparison { atomic_values: AtomicValues::AllowExtraFields, ..Comparison::EXACT };
    managed_fields(live, desired, manager, None).is_some_and(|fields| equal_objects(fields, desired, live, comparison))
}

/// Returns whether applying `desired` to the main resource as `manager` would leave `spec` unchanged, ignoring metadata.
#[must_use]
pub fn is_spec_applied(live: &Value, desired: &Value, manager: &str) -> bool {
    managed_fields(live, desired, manager, None)
        .is_some_and(|fields| equal_values(&fields["f:spec"], &desired["spec"], &live["spec"], Comparison::EXACT))
}

/// Returns whether applying `desired` to a Deployment or a LeaderWorkerSet as `manager` would leave its Pod templates
/// unchanged.
#[must_use]
pub fn is_pod_template_applied(live: &Value, desired: &Value, manager: &str) -> bool {
    managed_fields(live, desired, manager, None).is_some_and(|fields| {
        POD_TEMPLATE_FIELDS.iter().all(|field| {
            let (managed, desired) = (&fields["f:spec"][format!("f:{field}")], &desired["spec"][*field]);
            (managed.is_null() && desired.is_null())
                || equal_values(managed, desired, &live["spec"][*field], Comparison::EXACT)
        })
    })
}

/// Returns whether applying `desired` to the status subresource as `manager` would change nothing.
#[must_use]
pub(crate) fn is_status_applied(live: &Value, desired: &Value, manager: &str) -> bool {
    let Some(fields) = managed_fields(live, desired, manager, Some("status")) else { return false };
    equal_values(&fields["f:status"], &desired["status"], &live["status"], Comparison::EXACT)
}

/// Returns whether `manager` has applied the object, not only one of its subresources. An update with the name of the manager
/// does not count: the operator applies every object that it writes.
#[must_use]
pub(crate) fn has_applied(live: &Value, manager: &str) -> bool {
    applied_entries(live, manager).next().is_some()
}

/// Returns whether `manager` has applied the annotation.
#[must_use]
pub(crate) fn has_applied_annotation(live: &Value, annotation: &str, manager: &str) -> bool {
    let field = format!("f:{annotation}");
    applied_entries(live, manager).any(|entry| entry["fieldsV1"]["f:metadata"]["f:annotations"].get(&field).is_some())
}

/// Returns whether `manager` wrote the current value of the annotation, by any operation.
#[must_use]
pub(crate) fn has_written_annotation(live: &Value, annotation: &str, manager: &str) -> bool {
    let field = format!("f:{annotation}");
    let mut entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.any(|entry| {
        entry["manager"] == manager && entry["fieldsV1"]["f:metadata"]["f:annotations"].get(&field).is_some()
    })
}

/// Returns what `manager` has applied to the main resource, one entry per API version.
fn applied_entries<'a>(live: &'a Value, manager: &'a str) -> impl Iterator<Item = &'a Value> {
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.filter(move |entry| {
        entry["manager"] == manager && entry["operation"] == "Apply" && entry["subresource"].is_null()
    })
}

/// Returns the fields that `manager` applied last.
fn managed_fields<'a>(live: &'a Value, desired: &Value, manager: &str, subresource: Option<&str>) -> Option<&'a Value> {
    let entries = live["metadata"]["managedFields"].as_array()?;
    let is_own = |entry: &&Value| {
        entry["manager"] == manager
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str() == subresource
            && entry["apiVersion"] == desired["apiVersion"]
    };
    entries.iter().find(is_own).map(|entry| &entry["fieldsV1"])
}

/// Returns whether the objects are equal, ignoring the fields that identify them.
fn equal_objects(fields: &Value, desired: &Value, live: &Value, comparison: Comparison) -> bool {
    let (mut content, mut metadata) = (desired.clone(), desired["metadata"].clone());
    remove_fields(&mut content, &IDENTITY_FIELDS);
    remove_fields(&mut metadata, &IDENTITY_METADATA_FIELDS);
    let mut content_fields = fields.clone();
    remove_fields(&mut content_fields, &["f:metadata"]);
    // An empty field set means atomic for nested values. For the object itself it means that no field was applied.
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    (equal_values(&content_fields, &content, live, comparison) || (is_empty(&content_fields) && is_empty(&content)))
        && (equal_values(&fields["f:metadata"], &metadata, &live["metadata"], comparison)
            || has_no_metadata(&metadata, &fields["f:metadata"]))
}

fn has_no_metadata(metadata: &Value, fields: &Value) -> bool {
    fields.is_null() && metadata.as_object().is_none_or(Map::is_empty)
}

fn remove_fields(object: &mut Value, names: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        names.iter().for_each(|name| drop(object.remove(*name)));
    }
}

fn equal_values(fields: &Value, desired: &Value, live: &Value, comparison: Comparison) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    if fields.keys().all(|field| field == ".") {
        return equal_atomic_values(desired, live, comparison);
    }
    match desired {
        Value::Object(desired) => equal_maps(fields, desired, live, comparison),
        Value::Array(desired) if fields.keys().any(|field| field.starts_with("k:")) => {
            equal_keyed_lists(fields, desired, live, comparison)
        }
        Value::Array(desired) => equal_sets(fields, desired, live),
        _ => false,
    }
}

fn equal_maps(fields: &Map<String, Value>, desired: &Map<String, Value>, live: &Value, comparison: Comparison) -> bool {
    let has_removed_field =
        fields.keys().filter_map(|field| field.strip_prefix("f:")).any(|name| !desired.contains_key(name));
    !has_removed_field
        && desired.iter().filter(|(_, value)| !value.is_null()).all(|(name, value)| {
            let field = fields.get(&format!("f:{name}")).unwrap_or(&Value::Null);
            equal_values(field, value, &live[name.as_str()], comparison.for_field(name))
        })
}

/// Returns whether lists of type `map` are equal: `k:{"name":"main"}` identifies an item.
fn equal_keyed_lists(fields: &Map<String, Value>, desired: &[Value], live: &Value, comparison: Comparison) -> bool {
    let managed_items: Vec<(Map<String, Value>, &Value)> = fields
        .iter()
        .filter_map(|(field, item_fields)| Some((serde_json::from_str(field.strip_prefix("k:")?).ok()?, item_fields)))
        .collect();
    let live = live.as_array().map(Vec::as_slice).unwrap_or_default();
    managed_items.len() == desired.len()
        && desired.iter().all(|item| {
            let managed_item = managed_items.iter().find(|(key, _)| {
                key.iter().all(|(name, value)| item[name.as_str()] == *value || item[name.as_str()].is_null())
            });
            managed_item.is_some_and(|(key, fields)| {
                let live_item = live.iter().find(|live| key.iter().all(|(name, value)| live[name.as_str()] == *value));
                live_item.is_some_and(|live_item| equal_items(key, fields, item, live_item, comparison))
            })
        })
}

/// Returns whether items of a keyed list are equal. A key field that the server defaulted (the protocol of a port) is a
/// managed field of the item although it was not applied.
fn equal_items(
    key: &Map<String, Value>,
    fields: &Value,
    desired: &Value,
    live: &Value,
    comparison: Comparison,
) -> bool {
    let mut desired = desired.clone();
    if let Some(object) = desired.as_object_mut() {
        for (name, value) in key.iter().filter(|(name, _)| !fields[format!("f:{name}")].is_null()) {
            object.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    equal_values(fields, &desired, live, comparison)
}

fn equal_sets(fields: &Map<String, Value>, desired: &[Value], live: &Value) -> bool {
    let live = live.as_array().map(Vec::as_slice).unwrap_or_default();
    let managed: Vec<Value> =
        fields.keys().filter_map(|field| serde_json::from_str(field.strip_prefix("v:")?).ok()).collect();
    managed.len() == desired.len() && desired.iter().all(|item| managed.contains(item) && live.contains(item))
}

/// Returns whether values that are owned as a whole are equal.
fn equal_atomic_values(desired: &Value, live: &Value, comparison: Comparison) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let mut fields = desired.iter().filter(|(_, value)| !value.is_null());
            let is_equal = |(name, value): (&String, &Value)| {
                live.get(name).is_some_and(|live| equal_atomic_values(value, live, comparison.for_field(name)))
            };
            fields.all(is_equal)
                && (comparison.atomic_values == AtomicValues::AllowExtraFields
                    || has_only_default_extra_fields(desired, live))
        }
        (Value::Array(desired), Value::Array(live)) => {
            desired.len() == live.len()
                && desired.iter().zip(live).all(|(desired, live)| equal_atomic_values(desired, live, comparison))
        }
        _ => {
            desired == live
                || (comparison.scalars == Scalars::Quantities && equal_quantities(desired, live))
                || equal_numbers(desired, live)
        }
    }
}

/// Returns whether all fields of `live` that `desired` lacks are server defaults. A `null` field counts as absent.
fn has_only_default_extra_fields(desired: &Map<String, Value>, live: &Map<String, Value>) -> bool {
    let is_extra = |name: &str| desired.get(name).is_none_or(Value::is_null);
    live.iter()
        .filter(|(name, value)| is_extra(name) && !value.is_null())
        .all(|(name, value)| is_atomic_default(name, value))
}

/// Sets the values of `result`, to which an apply changes `live`, to those of `live` where the API server does not
/// distinguish them, and adds the known defaults inside atomic values ([`ATOMIC_DEFAULTS`]) that `result` lacks.
pub(crate) fn restore_equal_values(live: &Value, result: &mut Value) {
    restore_values(live, result, Comparison::EXACT);
}

fn restore_values(live: &Value, result: &mut Value, comparison: Comparison) {
    match (live, result) {
        (Value::Object(live), Value::Object(result)) => {
            for (name, live) in live {
                match result.get_mut(name) {
                    Some(value) => restore_values(live, value, comparison.for_field(name)),
                    None if is_atomic_default(name, live) => drop(result.insert(name.clone(), live.clone())),
                    None => {}
                }
            }
        }
        (Value::Array(live), Value::Array(result)) => {
            let has_same_items = live.len() == result.len();
            for (index, item) in result.iter_mut().enumerate() {
                let name = item["name"].as_str();
                let live_item = match name {
                    Some(_) => live.iter().find(|live| live["name"].as_str() == name),
                    None => live.get(index).filter(|_| has_same_items),
                };
                if let Some(live_item) = live_item {
                    restore_values(live_item, item, comparison);
                }
            }
        }
        (live, result) => {
            if equal_atomic_values(result, live, comparison) {
                *result = live.clone();
            }
        }
    }
}

fn is_atomic_default(name: &str, value: &Value) -> bool {
    ATOMIC_DEFAULTS.contains(&(name, value.to_string().as_str()))
}

fn equal_quantities(left: &Value, right: &Value) -> bool {
    let parse = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
    parse(left).is_some_and(|left| parse(right) == Some(left))
}

/// Returns whether two numbers are equal: `1` and `1.0` are the same JSON number.
fn equal_numbers(left: &Value, right: &Value) -> bool {
    matches!((left, right), (Value::Number(_), Value::Number(_))) && left.as_f64() == right.as_f64()
}

// === impl Comparison ===

impl Comparison {
    const EXACT: Comparison = Comparison { scalars: Scalars::Plain, atomic_values: AtomicValues::Exact };

    /// Returns how values below the field `name` are compared.
    fn for_field(self, name: &str) -> Comparison {
        match name {
            "limits" | "requests" | "minResources" => Comparison { scalars: Scalars::Quantities, ..self },
            _ => self,
        }
    }
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

    #[rstest]
    #[case::written("us", "a", true)]
    #[case::other_annotation("us", "b", false)]
    #[case::other_manager("them", "a", false)]
    fn annotations_have_managers(#[case] manager: &str, #[case] annotation: &str, #[case] expected: bool) {
        let fields = json!({"f:metadata": {"f:annotations": {"f:a": {}}}});
        let entry = json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
        let live = json!({"metadata": {"annotations": {"a": "", "b": ""}, "managedFields": [entry]}});
        assert_eq!(has_written_annotation(&live, annotation, "us"), expected);
    }

    #[rstest]
    #[case::applied(json!({"manager": "us", "operation": "Apply"}), true)]
    #[case::updated(json!({"manager": "us", "operation": "Update"}), false)]
    #[case::status(json!({"manager": "us", "operation": "Apply", "subresource": "status"}), false)]
    #[case::other_manager(json!({"manager": "other", "operation": "Apply"}), false)]
    fn manager_has_applied_the_object(#[case] entry: Value, #[case] expect: bool) {
        assert_eq!(has_applied(&json!({"metadata": {"managedFields": [entry]}}), "us"), expect);
    }

    #[test]
    fn applied_object_is_up_to_date() {
        assert!(is_applied(&live(), &desired(), "us"));
        assert!(!is_applied(&live(), &desired(), "other"));
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
    fn changed_desired_object_is_detected(#[case] path: &str, #[case] value: Value) {
        let mut desired = desired();
        *desired.pointer_mut(path).unwrap() = value;
        assert!(!is_applied(&live(), &desired, "us"));
    }

    /// A live field without an owner inside an atomic value that we own was removed from the desired object.
    #[rstest]
    #[case::dropped("/spec/template/spec/tolerations/0", "effect", json!("NoSchedule"), false)]
    #[case::not_ours("/spec/template/spec/containers/0", "imagePullPolicy", json!("Never"), true)]
    #[case::default("/spec/template/spec/tolerations/0", "apiVersion", json!("v1"), true)]
    fn field_removed_from_atomic_value_is_detected(
        #[case] path: &str,
        #[case] name: &str,
        #[case] value: Value,
        #[case] applied: bool,
    ) {
        let mut live = live();
        live.pointer_mut(path).unwrap()[name] = value;
        assert_eq!(is_applied(&live, &desired(), "us"), applied);
        assert!(is_applied_ignoring_extra_fields(&live, &desired(), "us"));
    }

    #[test]
    fn drift_of_live_object_is_detected() {
        let mut live = live();
        live["spec"]["replicas"] = json!(7);
        assert!(!is_applied(&live, &desired(), "us"));
    }

    #[test]
    fn quantities_are_compared_only_in_resource_lists() {
        let mut desired = desired();
        desired["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--a", "1000m"]);
        assert!(!is_applied(&live(), &desired, "us"));
    }

    #[test]
    fn status_is_compared_with_its_own_entry() {
        let live = json!({"status": {"phase": "Up", "nodes": ["a"], "other": 1}, "metadata": {"managedFields": [
            {"manager": "us", "operation": "Apply", "apiVersion": "g/v1", "subresource": "status",
             "fieldsV1": {"f:status": {"f:phase": {}, "f:nodes": {}}}}]}});
        let desired = |status: Value| json!({"apiVersion": "g/v1", "status": status});
        assert!(is_status_applied(&live, &desired(json!({"phase": "Up", "nodes": ["a"]})), "us"));
        assert!(!is_status_applied(&live, &desired(json!({"phase": "Up"})), "us"));
        assert!(!is_status_applied(&live, &desired(json!({"phase": "Up", "nodes": ["b"]})), "us"));
    }

    #[test]
    fn sets_are_compared_by_member() {
        let live = json!({"metadata": {"finalizers": ["a", "b"], "managedFields": [{"manager": "us", "operation": "Apply",
            "apiVersion": "v1", "fieldsV1": {"f:metadata": {"f:finalizers": {"v:\"a\"": {}}}}}]}});
        let desired =
            |finalizers: Value| json!({"apiVersion": "v1", "metadata": {"name": "x", "finalizers": finalizers}});
        assert!(is_applied(&live, &desired(json!(["a"])), "us"));
        assert!(!is_applied(&live, &desired(json!(["a", "b"])), "us"));
    }
}
