//! Compares the served fields with a stored list: removing or retyping a field would break existing manifests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::crds;

/// One line per field: kind, path and type.
const STORED_FIELDS: &str = include_str!("served.txt");

/// Returns the type of every field by `kind path`. Cluster-scoped kinds have the same fields as the namespaced kind.
fn served_fields() -> BTreeMap<String, String> {
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

fn collect(schema: &Value, path: &str, fields: &mut BTreeMap<String, String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let dot = if path.ends_with(' ') { "" } else { "." };
        let field_path = format!("{path}{dot}{name}");
        fields.insert(field_path.clone(), type_name(field));
        collect(field, &field_path, fields);
        for (keyword, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
            if field[keyword].is_object() {
                fields.insert(format!("{field_path}{suffix}"), type_name(&field[keyword]));
                collect(&field[keyword], &format!("{field_path}{suffix}"), fields);
            }
        }
    }
}

fn type_name(schema: &Value) -> String {
    let type_name = match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == true => "int-or-string",
        Some(type_name) => type_name,
        None => "any",
    };
    let values: Vec<&str> = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if values.is_empty() { type_name.to_owned() } else { format!("{type_name}({})", values.join("|")) }
}

fn stored_fields() -> BTreeMap<String, String> {
    let line = |line: &str| line.rsplit_once(' ').map(|(path, type_name)| (path.to_owned(), type_name.to_owned()));
    STORED_FIELDS.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect()
}

// spec: ACC-127
#[test]
fn no_field_is_removed_or_retyped() {
    let (served, stored) = (served_fields(), stored_fields());
    let incompatible_fields: Vec<String> = stored
        .iter()
        .filter(|(path, type_name)| served.get(*path) != Some(type_name))
        .map(|(path, type_name)| {
            format!("{path}: was {type_name}, is {}", served.get(path).map_or("removed", String::as_str))
        })
        .collect();
    assert_eq!(incompatible_fields, Vec::<String>::new(), "removed or retyped fields break existing manifests");
    let new_fields: BTreeSet<String> = served
        .iter()
        .filter(|(path, _)| !stored.contains_key(*path))
        .map(|(path, type_name)| format!("{path} {type_name}"))
        .collect();
    assert!(
        new_fields.is_empty(),
        "new fields: add them to crates/api/src/crds/served.txt\n{}",
        Vec::from_iter(new_fields).join("\n")
    );
}

// spec: RT-8
#[test]
fn every_field_has_a_description() {
    fn collect_undescribed(schema: &Value, path: &str, missing: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let field_path = format!("{path}.{name}");
            if field["description"].as_str().is_none_or(str::is_empty) {
                missing.push(field_path.clone());
            }
            for keyword in ["items", "additionalProperties"] {
                collect_undescribed(&field[keyword], &field_path, missing);
            }
            collect_undescribed(field, &field_path, missing);
        }
    }
    let mut missing = Vec::new();
    for crd in crds() {
        let properties = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        collect_undescribed(&properties["spec"], kind, &mut missing);
        collect_undescribed(&properties["status"], &format!("{kind}.status"), &mut missing);
    }
    assert_eq!(missing, Vec::<String>::new());
}
