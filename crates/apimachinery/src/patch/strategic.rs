//! Strategic merge patch: like JSON merge patch, but lists of built-in kinds merge by their merge key, and the directives
//! `$patch`, `$retainKeys`, `$setElementOrder/…` and `$deleteFromPrimitiveList/…` control the merge.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::merge_schema::{MergeSchema, PatchStrategy};
use crate::status::Status;

const PATCH_DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";

type JsonObject = Map<String, Value>;

/// The value of `$patch` in an object or list element.
enum Directive {
    /// The patch is merged into the target; the default.
    Merge,
    /// The patch without the directive replaces the target.
    Replace,
    /// A list element is removed; an object becomes empty.
    Delete,
}

/// Returns `target` with the strategic merge patch `patch` applied.
///
/// # Errors
/// 500 if a directive is unknown, 400 if one is malformed or an element of a merging list lacks its merge key.
pub fn apply_strategic_merge_patch(merge_schema: &MergeSchema, target: &Value, patch: &Value) -> Result<Value, Status> {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge_object(merge_schema, target, patch).map(Value::Object),
        _ => Err(Status::bad_request("a strategic merge patch and its target must be objects")),
    }
}

fn directive(patch: &JsonObject) -> Result<Directive, Status> {
    match patch.get(PATCH_DIRECTIVE).map(|value| value.as_str().unwrap_or_default()) {
        None | Some("merge") => Ok(Directive::Merge),
        Some("replace") => Ok(Directive::Replace),
        Some("delete") => Ok(Directive::Delete),
        Some(unknown) => {
            Err(Status::internal_error_verbatim(format!("unknown patch type: {unknown} in map: map[$patch:{unknown}]")))
        }
    }
}

fn merge_object(merge_schema: &MergeSchema, target: &JsonObject, patch: &JsonObject) -> Result<JsonObject, Status> {
    match directive(patch)? {
        Directive::Delete => return Ok(JsonObject::new()),
        Directive::Replace => return Ok(without_directives(patch)),
        Directive::Merge => {}
    }
    let mut result = target.clone();
    retain_keys(&mut result, patch)?;
    for (name, values) in directives(patch, DELETE_FROM_PRIMITIVE_LIST) {
        let Some(list) = result.get_mut(name).and_then(Value::as_array_mut) else { continue };
        let values = as_list(values, DELETE_FROM_PRIMITIVE_LIST)?;
        list.retain(|value| !values.contains(value));
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let order = patch.get(&format!("{SET_ELEMENT_ORDER}{name}"));
        match merge_value(merge_schema.field(name), result.get(name), value, order)? {
            Some(merged) => result.insert(name.clone(), merged),
            None => result.remove(name),
        };
    }
    for (name, order) in directives(patch, SET_ELEMENT_ORDER).filter(|(name, _)| !patch.contains_key(*name)) {
        if let Some(Value::Array(list)) = result.get(name) {
            let sorted = reorder(&merge_schema.field(name).patch, list, list, as_list(order, SET_ELEMENT_ORDER)?);
            result.insert(name.to_owned(), Value::Array(sorted));
        }
    }
    Ok(result)
}

/// Returns the merged value of a field, or `None` if the field is deleted.
fn merge_value(
    merge_schema: &MergeSchema,
    target: Option<&Value>,
    patch: &Value,
    order: Option<&Value>,
) -> Result<Option<Value>, Status> {
    let is_replaced = merge_schema.patch == PatchStrategy::Replace;
    match patch {
        Value::Null => Ok(None),
        Value::Object(_) if is_replaced => Ok(Some(strip_directives(patch))),
        Value::Object(patch) => {
            // A target that is missing or of another type counts as empty, so that nulls and directives are removed.
            let empty = JsonObject::new();
            let target = target.and_then(Value::as_object);
            if target.is_none() && matches!(directive(patch)?, Directive::Delete) {
                return Ok(None);
            }
            merge_object(merge_schema, target.unwrap_or(&empty), patch).map(|object| Some(Value::Object(object)))
        }
        Value::Array(patch) => {
            let target = target.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let merged = merge_list(merge_schema, target, patch)?;
            let is_merging = matches!(merge_schema.patch, PatchStrategy::MergeBy(_) | PatchStrategy::MergePrimitives);
            // Without `$setElementOrder`, the patched elements are in the order of the patch.
            let patched: Vec<Value> =
                patch.iter().filter(|item| item.get(PATCH_DIRECTIVE).is_none()).cloned().collect();
            let order = match order {
                Some(order) => as_list(order, SET_ELEMENT_ORDER)?,
                None if is_merging && !patched.is_empty() => &patched,
                None => return Ok(Some(Value::Array(merged))),
            };
            Ok(Some(Value::Array(reorder(&merge_schema.patch, &merged, target, order))))
        }
        scalar => Ok(Some(scalar.clone())),
    }
}

fn retain_keys(result: &mut JsonObject, patch: &JsonObject) -> Result<(), Status> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let keys = as_list(keys, RETAIN_KEYS)?;
    let is_retained = |name: &String| keys.iter().any(|key| key == name);
    let sets_unlisted_field =
        |(name, value): (&String, &Value)| !name.starts_with('$') && !value.is_null() && !is_retained(name);
    if patch.iter().any(sets_unlisted_field) {
        return Err(Status::bad_request("the list in the $retainKeys directive must contain all fields of the patch"));
    }
    result.retain(|name, _| is_retained(name));
    Ok(())
}

fn merge_list(merge_schema: &MergeSchema, target: &[Value], patch: &[Value]) -> Result<Vec<Value>, Status> {
    match &merge_schema.patch {
        PatchStrategy::MergeBy(key) => merge_by(merge_schema.item(), key, target, patch),
        PatchStrategy::MergePrimitives => {
            let mut merged = Vec::with_capacity(target.len() + patch.len());
            for value in target.iter().chain(patch) {
                if !merged.contains(value) {
                    merged.push(value.clone());
                }
            }
            Ok(merged)
        }
        PatchStrategy::Default | PatchStrategy::Replace => {
            Ok(patch.iter().filter(|value| !is_bare_directive(value)).map(strip_directives).collect())
        }
    }
}

fn merge_by(item: &MergeSchema, key: &str, target: &[Value], patch: &[Value]) -> Result<Vec<Value>, Status> {
    let mut elements = Vec::with_capacity(patch.len());
    let mut is_replacement = false;
    for element in patch {
        let element = element
            .as_object()
            .ok_or_else(|| Status::bad_request(format!("elements of a list that merges by {key} must be objects")))?;
        let directive = directive(element)?;
        is_replacement |= matches!(directive, Directive::Replace);
        elements.push((element, directive));
    }
    if is_replacement {
        let replacements = elements.into_iter().filter(|(_, directive)| matches!(directive, Directive::Merge));
        return Ok(replacements.map(|(element, _)| Value::Object(without_directives(element))).collect());
    }
    let mut result = target.to_vec();
    for (element, directive) in elements {
        let key_value = element.get(key).ok_or_else(|| missing_key(key, element))?;
        match directive {
            Directive::Delete => result.retain(|value| value.get(key) != Some(key_value)),
            // As in kube-apiserver, elements are added to an empty list without merging duplicates.
            _ if target.is_empty() => {
                let mut merged = Vec::with_capacity(1);
                merge_element(item, key, key_value, element, &mut merged)?;
                result.extend(merged);
            }
            _ => merge_element(item, key, key_value, element, &mut result)?,
        }
    }
    Ok(result)
}

fn merge_element(
    item: &MergeSchema,
    key: &str,
    key_value: &Value,
    patch: &JsonObject,
    result: &mut Vec<Value>,
) -> Result<(), Status> {
    let existing = result.iter_mut().find(|value| value.get(key) == Some(key_value));
    let empty = JsonObject::new();
    let target = existing.as_deref().and_then(Value::as_object).unwrap_or(&empty);
    let merged = Value::Object(merge_object(item, target, patch)?);
    match existing {
        Some(element) => *element = merged,
        None => result.push(merged),
    }
    Ok(())
}

fn missing_key(key: &str, element: &JsonObject) -> Status {
    let element = Value::Object(element.clone());
    Status::bad_request(format!("map: {element} does not contain declared merge key: {key}"))
}

/// Sorts `merged` by `order`; elements that `order` does not list keep their position before the element that followed
/// them in `target`.
fn reorder(strategy: &PatchStrategy, merged: &[Value], target: &[Value], order: &[Value]) -> Vec<Value> {
    let identity = |value: &Value| match strategy {
        PatchStrategy::MergeBy(key) => value.get(key).unwrap_or(value).to_string(),
        _ => value.to_string(),
    };
    let requested: BTreeMap<String, usize> =
        order.iter().enumerate().map(|(index, value)| (identity(value), index)).collect();
    let previous: BTreeMap<String, usize> =
        target.iter().enumerate().map(|(index, value)| (identity(value), index)).collect();
    let (mut ordered, mut others): (Vec<&Value>, Vec<&Value>) =
        merged.iter().partition(|value| requested.contains_key(&identity(value)));
    ordered.sort_by_key(|value| requested.get(&identity(value)));
    others.sort_by_key(|value| previous.get(&identity(value)).copied().unwrap_or(usize::MAX));
    interleave(&ordered, &others, |value| previous.get(&identity(value)).copied())
}

/// Inserts each element of `others` before the first element of `ordered` that followed it in the target.
fn interleave(ordered: &[&Value], others: &[&Value], position: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let mut result = Vec::with_capacity(ordered.len() + others.len());
    let mut others = others.iter().peekable();
    for value in ordered {
        if let Some(index) = position(value) {
            while let Some(other) =
                others.next_if(|other| position(other).is_some_and(|other_index| other_index < index))
            {
                result.push((*other).clone());
            }
        }
        result.push((*value).clone());
    }
    result.extend(others.map(|value| (*value).clone()));
    result
}

/// Returns the directives with `prefix`: the field each one applies to, and its value.
fn directives<'p>(patch: &'p JsonObject, prefix: &'static str) -> impl Iterator<Item = (&'p str, &'p Value)> {
    patch.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value)))
}

fn as_list<'v>(value: &'v Value, directive: &str) -> Result<&'v [Value], Status> {
    let list = value.as_array().map(Vec::as_slice);
    list.ok_or_else(|| Status::bad_request(format!("the value of {} must be a list", directive.trim_end_matches('/'))))
}

fn is_bare_directive(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.len() == 1 && map.contains_key(PATCH_DIRECTIVE))
}

fn without_directives(patch: &JsonObject) -> JsonObject {
    let fields = patch.iter().filter(|(name, value)| !name.starts_with('$') && !value.is_null());
    fields.map(|(name, value)| (name.clone(), strip_directives(value))).collect()
}

fn strip_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(without_directives(map)),
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::merge_schema::builtin_merge_schema;

    fn containers(list: Value) -> Value {
        json!({"spec": {"containers": list}})
    }

    fn pod() -> MergeSchema {
        builtin_merge_schema("", "Pod")
    }

    #[rstest]
    #[case::merges_by_name(json!([{"name": "a", "image": "1", "command": ["x", "y"]}]), json!([{"name": "a", "image": "2", "command": ["z"]}, {"name": "b"}]),
        json!([{"name": "a", "image": "2", "command": ["z"]}, {"name": "b"}]))]
    #[case::null_deletes(json!([{"name": "a", "image": "1"}]), json!([{"name": "a", "image": null}]), json!([{"name": "a"}]))]
    #[case::deletes_an_element(json!([{"name": "a"}, {"name": "b"}]), json!([{"name": "a", "$patch": "delete"}]), json!([{"name": "b"}]))]
    #[case::replaces_the_list(json!([{"name": "a"}]), json!([{"$patch": "replace"}, {"name": "b"}]), json!([{"name": "b"}]))]
    #[case::env_by_name(json!([{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]),
        json!([{"name": "a", "env": [{"name": "X", "value": "3"}, {"name": "Z", "value": "4"}]}]),
        json!([{"name": "a", "env": [{"name": "X", "value": "3"}, {"name": "Z", "value": "4"}, {"name": "Y", "value": "2"}]}]))]
    #[case::ports_by_number(json!([{"name": "a", "ports": [{"containerPort": 80}]}]),
        json!([{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]),
        json!([{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]))]
    fn merges_lists(#[case] target: Value, #[case] patch: Value, #[case] expect: Value) {
        assert_eq!(
            apply_strategic_merge_patch(&pod(), &containers(target), &containers(patch)).unwrap(),
            containers(expect)
        );
    }

    #[test]
    fn applies_element_order_and_keeps_other_elements_in_place() {
        let target = containers(json!([{"name": "a"}, {"name": "injected"}, {"name": "b"}]));
        let patch = json!({"spec": {
            "$setElementOrder/containers": [{"name": "new"}, {"name": "b"}, {"name": "a"}],
            "containers": [{"name": "new"}],
        }});
        let names = containers(json!([{"name": "new"}, {"name": "injected"}, {"name": "b"}, {"name": "a"}]));
        assert_eq!(apply_strategic_merge_patch(&pod(), &target, &patch).unwrap(), names);
        let only_order = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}});
        let names = containers(json!([{"name": "injected"}, {"name": "b"}, {"name": "a"}]));
        assert_eq!(apply_strategic_merge_patch(&pod(), &target, &only_order).unwrap(), names);
    }

    #[test]
    fn retain_keys_replaces_the_volume_source() {
        let target = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
        let patch = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}});
        let expect = json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}});
        assert_eq!(apply_strategic_merge_patch(&pod(), &target, &patch).unwrap(), expect);
    }

    #[test]
    fn finalizers_merge_and_are_deleted_by_value() {
        let target = json!({"metadata": {"finalizers": ["a", "b"]}});
        let patch = json!({"metadata": {
            "$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"],
        }});
        let expect = json!({"metadata": {"finalizers": ["c", "b"]}});
        assert_eq!(apply_strategic_merge_patch(&pod(), &target, &patch).unwrap(), expect);
    }

    #[test]
    fn replaces_atomic_lists_and_maps() {
        let target =
            json!({"spec": {"tolerations": [{"key": "a"}], "nodeSelector": {"x": "1", "y": "2"}, "gone": {"k": 1}}});
        let patch = json!({"spec": {"tolerations": [{"key": "b"}], "nodeSelector": {"$patch": "replace", "z": "3"},
                                    "gone": {"$patch": "delete"}, "fresh": {"a": null, "b": 1}}});
        let expect =
            json!({"spec": {"tolerations": [{"key": "b"}], "nodeSelector": {"z": "3"}, "gone": {}, "fresh": {"b": 1}}});
        assert_eq!(apply_strategic_merge_patch(&pod(), &target, &patch).unwrap(), expect);
    }

    #[rstest]
    #[case(json!({"spec": {"$patch": "odd"}}), "unknown patch type: odd in map")]
    #[case(containers(json!([{"image": "x"}])), "does not contain declared merge key: name")]
    #[case(json!({"spec": {"$retainKeys": ["a"], "b": 1}}), "$retainKeys")]
    #[case(json!({"spec": {"$setElementOrder/containers": 1, "containers": []}}), "must be a list")]
    fn rejects_malformed_patches(#[case] patch: Value, #[case] expect: &str) {
        let error = apply_strategic_merge_patch(&pod(), &containers(json!([])), &patch).unwrap_err();
        assert!(matches!(error.code, 400 | 500), "{}", error.code);
        assert!(error.message.contains(expect), "{}", error.message);
    }
}
