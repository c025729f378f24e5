//! Strategic merge patch: as a merge patch, but lists of a builtin kind merge by their merge key, and directives
//! (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) say what a plain value cannot.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::status::Status;
use crate::structure::{Strategic, Structure};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_VALUES: &str = "$deleteFromPrimitiveList/";

type Object = Map<String, Value>;

/// `target` with `patch` merged over it, lists by their merge keys.
///
/// # Errors
/// 500 if a directive is unknown, 400 if one is malformed, or an element of a merging list lacks its merge key.
pub fn apply(structure: &Structure, target: &Value, patch: &Value) -> Result<Value, Status> {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge_object(structure, target, patch).map(Value::Object),
        _ => Err(Status::bad_request("a strategic merge patch and its target must be objects")),
    }
}

// === objects ===

/// What `$patch` says of an object or a list element.
enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(patch: &Object) -> Result<Directive, Status> {
    match patch.get(PATCH).map(|value| value.as_str().unwrap_or_default()) {
        None | Some("merge") => Ok(Directive::Merge),
        Some("replace") => Ok(Directive::Replace),
        Some("delete") => Ok(Directive::Delete),
        Some(other) => Err(Status::unexplained(format!("unknown patch type: {other} in map: map[$patch:{other}]"))),
    }
}

fn merge_object(structure: &Structure, target: &Object, patch: &Object) -> Result<Object, Status> {
    match directive(patch)? {
        Directive::Delete => return Ok(Object::new()),
        Directive::Replace => return Ok(without_directives(patch)),
        Directive::Merge => {}
    }
    let mut result = target.clone();
    retain_keys(&mut result, patch)?;
    for (name, values) in prefixed(patch, DELETE_VALUES) {
        let Some(list) = result.get_mut(name).and_then(Value::as_array_mut) else { continue };
        let values = as_list(values, DELETE_VALUES)?;
        list.retain(|value| !values.contains(value));
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let order = patch.get(&format!("{ORDER}{name}"));
        match merge_value(structure.field(name), result.get(name), value, order)? {
            Some(merged) => result.insert(name.clone(), merged),
            None => result.remove(name),
        };
    }
    for (name, order) in prefixed(patch, ORDER).filter(|(name, _)| !patch.contains_key(*name)) {
        if let Some(Value::Array(list)) = result.get(name) {
            let sorted = reorder(&structure.field(name).strategic, list, list, as_list(order, ORDER)?);
            result.insert(name.to_owned(), Value::Array(sorted));
        }
    }
    Ok(result)
}

/// None: the field goes.
fn merge_value(
    structure: &Structure,
    target: Option<&Value>,
    patch: &Value,
    order: Option<&Value>,
) -> Result<Option<Value>, Status> {
    let is_replaced = structure.strategic == Strategic::Replace;
    match patch {
        Value::Null => Ok(None),
        Value::Object(_) if is_replaced => Ok(Some(cleaned(patch))),
        Value::Object(patch) => {
            // A missing or differently typed target is as an empty one: nulls and directives do not stay behind.
            let empty = Object::new();
            let target = target.and_then(Value::as_object);
            if target.is_none() && matches!(directive(patch)?, Directive::Delete) {
                return Ok(None);
            }
            merge_object(structure, target.unwrap_or(&empty), patch).map(|object| Some(Value::Object(object)))
        }
        Value::Array(patch) => {
            let target = target.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let merged = merge_list(structure, target, patch)?;
            let is_merging = matches!(structure.strategic, Strategic::MergeBy(_) | Strategic::MergeValues);
            // Without a word about the order, the patch's own counts for what it names.
            let named: Vec<Value> = patch.iter().filter(|item| item.get(PATCH).is_none()).cloned().collect();
            let order = match order {
                Some(order) => as_list(order, ORDER)?,
                None if is_merging && !named.is_empty() => &named,
                None => return Ok(Some(Value::Array(merged))),
            };
            Ok(Some(Value::Array(reorder(&structure.strategic, &merged, target, order))))
        }
        scalar => Ok(Some(scalar.clone())),
    }
}

fn retain_keys(result: &mut Object, patch: &Object) -> Result<(), Status> {
    let Some(keys) = patch.get(RETAIN) else { return Ok(()) };
    let keys = as_list(keys, RETAIN)?;
    let is_kept = |name: &String| keys.iter().any(|key| key == name);
    let sets_another = |(name, value): (&String, &Value)| !name.starts_with('$') && !value.is_null() && !is_kept(name);
    if patch.iter().any(sets_another) {
        return Err(Status::bad_request("the list in the $retainKeys directive must contain all fields of the patch"));
    }
    result.retain(|name, _| is_kept(name));
    Ok(())
}

// === lists ===

fn merge_list(structure: &Structure, target: &[Value], patch: &[Value]) -> Result<Vec<Value>, Status> {
    match &structure.strategic {
        Strategic::MergeBy(key) => merge_by(structure.item(), key, target, patch),
        Strategic::MergeValues => {
            let mut merged = Vec::with_capacity(target.len() + patch.len());
            for value in target.iter().chain(patch) {
                if !merged.contains(value) {
                    merged.push(value.clone());
                }
            }
            Ok(merged)
        }
        Strategic::Plain | Strategic::Replace => {
            Ok(patch.iter().filter(|value| !is_directive_alone(value)).map(cleaned).collect())
        }
    }
}

fn merge_by(item: &Structure, key: &str, target: &[Value], patch: &[Value]) -> Result<Vec<Value>, Status> {
    let mut elements = Vec::with_capacity(patch.len());
    let mut is_replacement = false;
    for element in patch {
        let element = element
            .as_object()
            .ok_or_else(|| Status::bad_request(format!("a list that merges by {key} holds objects only")))?;
        let directive = directive(element)?;
        is_replacement |= matches!(directive, Directive::Replace);
        elements.push((element, directive));
    }
    if is_replacement {
        let kept = elements.into_iter().filter(|(_, d)| matches!(d, Directive::Merge));
        return Ok(kept.map(|(element, _)| Value::Object(without_directives(element))).collect());
    }
    let mut result = target.to_vec();
    for (element, directive) in elements {
        let id = element.get(key).ok_or_else(|| missing_key(key, element))?;
        match directive {
            Directive::Delete => result.retain(|value| value.get(key) != Some(id)),
            // Where nothing was, the patch's elements are taken as they are, doubled ones too.
            _ if target.is_empty() => {
                let mut alone = Vec::with_capacity(1);
                merge_element(item, key, id, element, &mut alone)?;
                result.extend(alone);
            }
            _ => merge_element(item, key, id, element, &mut result)?,
        }
    }
    Ok(result)
}

fn merge_element(
    item: &Structure,
    key: &str,
    id: &Value,
    patch: &Object,
    result: &mut Vec<Value>,
) -> Result<(), Status> {
    let found = result.iter_mut().find(|value| value.get(key) == Some(id));
    let empty = Object::new();
    let target = found.as_deref().and_then(Value::as_object).unwrap_or(&empty);
    let merged = Value::Object(merge_object(item, target, patch)?);
    match found {
        Some(place) => *place = merged,
        None => result.push(merged),
    }
    Ok(())
}

fn missing_key(key: &str, element: &Object) -> Status {
    let element = Value::Object(element.clone());
    Status::bad_request(format!("map: {element} does not contain declared merge key: {key}"))
}

/// `merged` in the order the client asks for; elements that only the server knows stay before the one that
/// followed them in `target`.
fn reorder(strategic: &Strategic, merged: &[Value], target: &[Value], order: &[Value]) -> Vec<Value> {
    let id = |value: &Value| match strategic {
        Strategic::MergeBy(key) => value.get(key).unwrap_or(value).to_string(),
        _ => value.to_string(),
    };
    let wanted: BTreeMap<String, usize> = order.iter().enumerate().map(|(index, value)| (id(value), index)).collect();
    let before: BTreeMap<String, usize> = target.iter().enumerate().map(|(index, value)| (id(value), index)).collect();
    let (mut asked, mut others): (Vec<&Value>, Vec<&Value>) =
        merged.iter().partition(|value| wanted.contains_key(&id(value)));
    asked.sort_by_key(|value| wanted.get(&id(value)));
    others.sort_by_key(|value| before.get(&id(value)).copied().unwrap_or(usize::MAX));
    interleave(&asked, &others, |value| before.get(&id(value)).copied())
}

/// An element of `others` goes before the first of `asked` that stood behind it.
fn interleave(asked: &[&Value], others: &[&Value], position: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let mut result = Vec::with_capacity(asked.len() + others.len());
    let mut others = others.iter().peekable();
    for value in asked {
        if let Some(here) = position(value) {
            while let Some(other) = others.next_if(|other| position(other).is_some_and(|there| there < here)) {
                result.push((*other).clone());
            }
        }
        result.push((*value).clone());
    }
    result.extend(others.map(|value| (*value).clone()));
    result
}

// === directives ===

/// The fields that `prefix` speaks of, with what it says.
fn prefixed<'p>(patch: &'p Object, prefix: &'static str) -> impl Iterator<Item = (&'p str, &'p Value)> {
    patch.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value)))
}

fn as_list<'v>(value: &'v Value, directive: &str) -> Result<&'v [Value], Status> {
    let list = value.as_array().map(Vec::as_slice);
    list.ok_or_else(|| Status::bad_request(format!("the value of {} must be a list", directive.trim_end_matches('/'))))
}

fn is_directive_alone(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.len() == 1 && map.contains_key(PATCH))
}

fn without_directives(patch: &Object) -> Object {
    let kept = patch.iter().filter(|(name, value)| !name.starts_with('$') && !value.is_null());
    kept.map(|(name, value)| (name.clone(), cleaned(value))).collect()
}

fn cleaned(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(without_directives(map)),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn containers(list: Value) -> Value {
        json!({"spec": {"containers": list}})
    }

    fn pod() -> Structure {
        Structure::builtin("", "Pod")
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
    fn lists(#[case] target: Value, #[case] patch: Value, #[case] expect: Value) {
        assert_eq!(apply(&pod(), &containers(target), &containers(patch)).unwrap(), containers(expect));
    }

    #[test]
    fn the_client_orders_and_the_servers_own_stay_in_place() {
        let target = containers(json!([{"name": "a"}, {"name": "injected"}, {"name": "b"}]));
        let patch = json!({"spec": {
            "$setElementOrder/containers": [{"name": "new"}, {"name": "b"}, {"name": "a"}],
            "containers": [{"name": "new"}],
        }});
        let names = containers(json!([{"name": "new"}, {"name": "injected"}, {"name": "b"}, {"name": "a"}]));
        assert_eq!(apply(&pod(), &target, &patch).unwrap(), names);
        let only_order = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}});
        let names = containers(json!([{"name": "injected"}, {"name": "b"}, {"name": "a"}]));
        assert_eq!(apply(&pod(), &target, &only_order).unwrap(), names);
    }

    #[test]
    fn retain_keys_drops_the_other_kind_of_volume() {
        let target = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
        let patch = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}});
        let expect = json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}});
        assert_eq!(apply(&pod(), &target, &patch).unwrap(), expect);
    }

    #[test]
    fn finalizers_merge_and_are_deleted_by_value() {
        let target = json!({"metadata": {"finalizers": ["a", "b"]}});
        let patch = json!({"metadata": {
            "$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"],
        }});
        let expect = json!({"metadata": {"finalizers": ["c", "b"]}});
        assert_eq!(apply(&pod(), &target, &patch).unwrap(), expect);
    }

    #[test]
    fn plain_lists_and_replaced_maps() {
        let target =
            json!({"spec": {"tolerations": [{"key": "a"}], "nodeSelector": {"x": "1", "y": "2"}, "gone": {"k": 1}}});
        let patch = json!({"spec": {"tolerations": [{"key": "b"}], "nodeSelector": {"$patch": "replace", "z": "3"},
                                    "gone": {"$patch": "delete"}, "fresh": {"a": null, "b": 1}}});
        let expect =
            json!({"spec": {"tolerations": [{"key": "b"}], "nodeSelector": {"z": "3"}, "gone": {}, "fresh": {"b": 1}}});
        assert_eq!(apply(&pod(), &target, &patch).unwrap(), expect);
    }

    #[rstest]
    #[case(json!({"spec": {"$patch": "odd"}}), "unknown patch type: odd in map")]
    #[case(containers(json!([{"image": "x"}])), "does not contain declared merge key: name")]
    #[case(json!({"spec": {"$retainKeys": ["a"], "b": 1}}), "$retainKeys")]
    #[case(json!({"spec": {"$setElementOrder/containers": 1, "containers": []}}), "must be a list")]
    fn malformed(#[case] patch: Value, #[case] expect: &str) {
        let error = apply(&pod(), &containers(json!([])), &patch).unwrap_err();
        assert!(matches!(error.code, 400 | 500), "{}", error.code);
        assert!(error.message.contains(expect), "{}", error.message);
    }
}
