//! What is served is compared with a stored copy: a field that goes or changes its type breaks its users.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::crds;

/// One line per field: kind, path and type.
const STORED: &str = include_str!("served.txt");

/// `kind path` → type, for every field of every kind; cluster-scoped twins have the fields of the namespaced kind.
fn served() -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for crd in crds() {
        let spec = &crd["spec"];
        let version = &spec["versions"][0];
        if spec["names"]["kind"].as_str().is_some_and(|kind| kind.starts_with("Cluster")) {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let kind = format!("{}.{}/{}", text(&spec["names"]["kind"]), text(&spec["group"]), text(&version["name"]));
        collect(&version["schema"]["openAPIV3Schema"], &format!("{kind} "), &mut fields);
    }
    fields
}

fn collect(schema: &Value, path: &str, into: &mut BTreeMap<String, String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let dot = if path.ends_with(' ') { "" } else { "." };
        let at = format!("{path}{dot}{name}");
        into.insert(at.clone(), kind(field));
        collect(field, &at, into);
        for (inside, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
            if field[inside].is_object() {
                into.insert(format!("{at}{mark}"), kind(&field[inside]));
                collect(&field[inside], &format!("{at}{mark}"), into);
            }
        }
    }
}

fn kind(schema: &Value) -> String {
    let kind = match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == true => "int-or-string",
        Some(kind) => kind,
        None => "any",
    };
    let known: Vec<&str> = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if known.is_empty() { kind.to_owned() } else { format!("{kind}({})", known.join("|")) }
}

fn stored() -> BTreeMap<String, String> {
    let line = |line: &str| line.rsplit_once(' ').map(|(path, kind)| (path.to_owned(), kind.to_owned()));
    STORED.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect()
}

// spec: ACC-127
#[test]
fn no_field_is_removed_or_retyped() {
    let (served, stored) = (served(), stored());
    let broken: Vec<String> = stored
        .iter()
        .filter(|(path, kind)| served.get(*path) != Some(kind))
        .map(|(path, kind)| format!("{path}: was {kind}, is {}", served.get(path).map_or("gone", String::as_str)))
        .collect();
    assert_eq!(broken, Vec::<String>::new(), "fields that manifests use would break");
    let new: BTreeSet<String> = served
        .iter()
        .filter(|(path, _)| !stored.contains_key(*path))
        .map(|(path, kind)| format!("{path} {kind}"))
        .collect();
    assert!(new.is_empty(), "new fields: add to crates/api/src/crds/served.txt\n{}", Vec::from_iter(new).join("\n"));
}

// spec: RT-8
#[test]
fn every_field_has_a_description() {
    fn undescribed(schema: &Value, path: &str, into: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{path}.{name}");
            if field["description"].as_str().is_none_or(str::is_empty) {
                into.push(at.clone());
            }
            for inside in ["items", "additionalProperties"] {
                undescribed(&field[inside], &at, into);
            }
            undescribed(field, &at, into);
        }
    }
    let mut missing = Vec::new();
    for crd in crds() {
        let properties = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        undescribed(&properties["spec"], kind, &mut missing);
        undescribed(&properties["status"], &format!("{kind}.status"), &mut missing);
    }
    assert_eq!(missing, Vec::<String>::new());
}
