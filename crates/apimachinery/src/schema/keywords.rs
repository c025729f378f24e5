//! What a definition may say in a schema, keyword by keyword (`apiextensions-apiserver/pkg/apis/apiextensions/validation`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::rules;
use super::structural::{fields, flag, preserves, text};
use crate::go;
use crate::status::Cause;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
const UNSUPPORTED: [&str; 6] = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
const META: [&str; 3] = ["metadata", "kind", "apiVersion"];

type Schema = Map<String, Value>;

/// Where a schema stands.
#[derive(Clone, Default)]
struct Context {
    is_root: bool,
    /// Why it may have no default.
    no_default: Option<String>,
    is_in_metadata: bool,
    /// The list in which nobody knows what an element was before.
    uncorrelated: Option<String>,
    /// Whether rules are compiled: not in alternatives, and not where something else is wrong.
    compiles: bool,
}

/// What was found: what is said of rules comes last.
#[derive(Default)]
struct Found {
    schema: Vec<Cause>,
    rules: Vec<Cause>,
}

/// What of the schema at `path` is not allowed; its rules are compiled only if it is structural.
pub(super) fn check(schema: &Value, path: &str, is_structural: bool) -> Vec<Cause> {
    let Some(schema) = schema.as_object() else { return Vec::new() };
    let context = Context { is_root: true, compiles: is_structural, ..Context::default() };
    let Found { schema, rules } = visit(schema, path, &context);
    schema.into_iter().chain(rules).collect()
}

fn visit(schema: &Schema, path: &str, context: &Context) -> Found {
    let mut found = Found::default();
    own(schema, path, context, &mut found.schema);
    for (inner, at, context) in inside(schema, path, context) {
        let below = visit(inner, &at, &context);
        found.schema.extend(below.schema);
        found.rules.extend(below.rules);
    }
    extensions(schema, path, &mut found.schema);
    keyed_list(schema, path, &mut found.schema);
    rule_texts(schema, path, &mut found.schema);
    if found.schema.is_empty() && context.compiles {
        compile(schema, path, context, &mut found.rules);
    }
    found
}

/// Every schema inside one, with its place and what may be said there.
fn inside<'s>(schema: &'s Schema, path: &str, context: &Context) -> Vec<(&'s Schema, String, Context)> {
    let below = Context { is_root: false, ..context.clone() };
    let mut all = Vec::new();
    let mut add = |schema: Option<&'s Value>, step: &str, context: &Context| {
        if let Some(schema) = schema.and_then(Value::as_object) {
            all.push((schema, format!("{path}.{step}"), context.clone()));
        }
    };
    let mut additional = below.clone();
    if context.is_in_metadata {
        additional.no_default = Some("inside additionalProperties applying to object metadata".to_owned());
    }
    add(schema.get("additionalProperties"), "additionalProperties", &additional);
    for (name, _) in fields(schema) {
        let mut field = below.clone();
        if META.contains(&name.as_str()) && (context.is_root || flag(schema, "x-kubernetes-embedded-resource")) {
            field.is_in_metadata = true;
            if context.is_root {
                field.no_default = Some(format!("in top-level {name}"));
            }
        }
        if text(schema, "x-kubernetes-map-type") == "atomic" {
            field.uncorrelated.get_or_insert_with(|| path.to_owned());
        }
        add(schema.get("properties").and_then(|all| all.get(name)), &format!("properties[{name}]"), &field);
    }
    let alternative = Context { compiles: false, ..below.clone() };
    add(schema.get("not"), "not", &alternative);
    for name in ["allOf", "oneOf", "anyOf"] {
        for (index, schema) in schema.get(name).and_then(Value::as_array).into_iter().flatten().enumerate() {
            add(Some(schema), &format!("{name}[{index}]"), &alternative);
        }
    }
    let mut item = below;
    if text(schema, "x-kubernetes-list-type") != "map" {
        item.uncorrelated.get_or_insert_with(|| path.to_owned());
    }
    add(schema.get("items"), "items", &item);
    all
}

fn own(schema: &Schema, path: &str, context: &Context, found: &mut Vec<Cause>) {
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        found.push(Cause::not_supported(format!("{path}.type"), &json!(kind), &TYPES.map(Value::from)));
    }
    if let (Some(reason), true) = (&context.no_default, has(schema, "default")) {
        found.push(Cause::forbidden(format!("{path}.default"), &format!("must not be set {reason}")));
    }
    for keyword in UNSUPPORTED.into_iter().filter(|keyword| has(schema, keyword)) {
        found.push(Cause::forbidden(format!("{path}.{keyword}"), &format!("{keyword} is not supported")));
    }
    if kind == "null" {
        let hint = "type cannot be set to null, use nullable as an alternative";
        found.push(Cause::forbidden(format!("{path}.type"), hint));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        found.push(Cause::forbidden(format!("{path}.items"), "items must be a schema object and not an array"));
    }
    if context.is_in_metadata && flag(schema, "x-kubernetes-embedded-resource") {
        let at = format!("{path}.x-kubernetes-embedded-resource");
        found.push(Cause::forbidden(at, "must not be used inside of resource meta"));
    }
    if flag(schema, "uniqueItems") {
        let hint = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.push(Cause::forbidden(format!("{path}.uniqueItems"), hint));
    }
    let is_closed = has(schema, "additionalProperties") && schema["additionalProperties"] != true;
    if is_closed && fields(schema).next().is_some() {
        let hint = "additionalProperties and properties are mutual exclusive";
        found.push(Cause::forbidden(format!("{path}.additionalProperties"), hint));
    }
}

fn extensions(schema: &Schema, path: &str, found: &mut Vec<Cause>) {
    if preserves(schema) == Some(false) {
        let at = format!("{path}.x-kubernetes-preserve-unknown-fields");
        found.push(Cause::invalid(at, &json!(false), "must be true or undefined"));
    }
    for (keyword, kind, known) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
    ] {
        let said = text(schema, keyword);
        if said.is_empty() {
            continue;
        }
        let (at, is) = (format!("{path}.type"), text(schema, "type"));
        let hint = format!("must be {kind} if {keyword} is specified");
        if is.is_empty() {
            found.push(Cause::required(at, &hint));
        } else if is != kind {
            found.push(Cause::invalid(at, &json!(is), &hint));
        } else if said == "set" && kind == "array" {
            set_items(schema, path, found);
        }
        if !known.contains(&said) {
            let known: Vec<Value> = known.iter().map(|known| json!(known)).collect();
            found.push(Cause::not_supported(format!("{path}.{keyword}"), &json!(said), &known));
        }
    }
}

/// Elements of a set are compared as a whole.
fn set_items(schema: &Schema, path: &str, found: &mut Vec<Cause>) {
    let Some(items) = schema.get("items").and_then(Value::as_object) else { return };
    let (list, map) = (text(items, "x-kubernetes-list-type"), text(items, "x-kubernetes-map-type"));
    let keyword = match text(items, "type") {
        "array" if !list.is_empty() && list != "atomic" => "x-kubernetes-list-type",
        "object" if map != "atomic" => "x-kubernetes-map-type",
        _ => return,
    };
    let said = if list.is_empty() { Value::Null } else { json!(list) };
    let hint = "must be atomic as item of a list with x-kubernetes-list-type=set";
    found.push(Cause::invalid(format!("{path}.items.{keyword}"), &said, hint));
}

/// Lists whose elements have keys.
fn keyed_list(schema: &Schema, path: &str, found: &mut Vec<Cause>) {
    const KEYS: &str = "x-kubernetes-list-map-keys";
    let kind = text(schema, "x-kubernetes-list-type");
    let keys: Vec<&str> =
        schema.get(KEYS).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if !keys.is_empty() && kind != "map" {
        let (at, hint) =
            (format!("{path}.x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty");
        found.push(if kind.is_empty() { Cause::required(at, hint) } else { Cause::invalid(at, &json!(kind), hint) });
    }
    let items = schema.get("items").and_then(Value::as_object);
    if kind == "map" {
        if keys.is_empty() {
            let hint = "must not be empty if x-kubernetes-list-type is map";
            found.push(Cause::required(format!("{path}.{KEYS}"), hint));
        }
        match items {
            None => {
                let hint = "must have a schema if x-kubernetes-list-type is map";
                found.push(Cause::required(format!("{path}.items"), hint));
            }
            Some(items) if text(items, "type") != "object" => {
                let hint = "must be object if parent array's x-kubernetes-list-type is map";
                found.push(Cause::invalid(format!("{path}.items.type"), &json!(text(items, "type")), hint));
            }
            Some(items) => names_of_keys(items, &keys, path, found),
        }
    }
    if let (Some(items), "map" | "set") = (items, kind) {
        nulls_and_absence(items, kind, &keys, path, found);
    }
}

fn names_of_keys(items: &Schema, keys: &[&str], path: &str, found: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    let at = || format!("{path}.x-kubernetes-list-map-keys");
    for key in keys {
        match fields(items).find(|(name, _)| name == key) {
            None => found.push(Cause::invalid(at(), &json!(keys), "entries must all be names of item properties")),
            Some((_, field)) if matches!(text(field, "type"), "array" | "object") => {
                let at = format!("{path}.items.properties[{key}].type");
                let hint = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                found.push(Cause::invalid(at, &json!(text(items, "type")), hint));
            }
            Some(_) => {}
        }
        if !seen.insert(key) {
            found.push(Cause::invalid(at(), &json!(keys), "must not contain duplicate entries"));
        }
    }
}

fn nulls_and_absence(items: &Schema, kind: &str, keys: &[&str], path: &str, found: &mut Vec<Cause>) {
    if flag(items, "nullable") {
        let hint = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        found.push(Cause::forbidden(format!("{path}.items.nullable"), &hint));
    }
    if kind != "map" {
        return;
    }
    let required = items.get("required").and_then(Value::as_array);
    for key in keys {
        let Some((_, field)) = fields(items).find(|(name, _)| name == key) else { continue };
        let at = format!("{path}.items.properties[{key}]");
        let why = "this property is in x-kubernetes-list-map-keys, so it";
        let is_required = required.is_some_and(|all| all.iter().any(|name| name == key));
        if !is_required && !has(field, "default") {
            let hint = format!("{why} must have a default or be a required property");
            found.push(Cause::required(format!("{at}.default"), &hint));
        }
        if flag(field, "nullable") {
            found.push(Cause::forbidden(format!("{at}.nullable"), &format!("{why} cannot be nullable")));
        }
    }
}

fn rule_texts(schema: &Schema, path: &str, found: &mut Vec<Cause>) {
    for (at, rule) in all_rules(schema, path) {
        let said = |field: &str| rule.get(field).and_then(Value::as_str).unwrap_or_default();
        let is_long = |text: &str| text.contains(['\n', '\r']);
        let (text, message) = (said("rule").trim(), said("message").trim());
        let blank = |field: &str| !said(field).is_empty() && said(field).trim().is_empty();
        let place = |field: &str| format!("{at}.{field}");
        if text.is_empty() {
            found.push(Cause::required(place("rule"), "rule is not specified"));
        } else if blank("message") {
            found.push(Cause::invalid(place("message"), &rule["message"], "must be non-empty if specified"));
        } else if is_long(message) {
            found.push(Cause::invalid(place("message"), &rule["message"], "must not contain line breaks"));
        } else if is_long(text) && message.is_empty() {
            let hint = "message must be specified if rule contains line breaks";
            found.push(Cause::required(place("message"), hint));
        }
        if blank("messageExpression") {
            let hint = "messageExpression must be non-empty if specified";
            found.push(Cause::required(place("messageExpression"), hint));
        }
        if !said("reason").is_empty() && !REASONS.contains(&said("reason")) {
            found.push(Cause::not_supported(place("reason"), &rule["reason"], &REASONS.map(Value::from)));
        }
        if blank("fieldPath") {
            found.push(Cause::invalid(place("fieldPath"), &rule["fieldPath"], "must be non-empty if specified"));
        }
        if is_long(said("fieldPath")) {
            found.push(Cause::invalid(place("fieldPath"), &rule["fieldPath"], "must not contain line breaks"));
        }
        if !said("fieldPath").is_empty() && super::paths::find(schema, said("fieldPath")).is_err() {
            found.push(Cause::invalid(place("fieldPath"), &rule["fieldPath"], "must be a valid path"));
        }
    }
}

fn compile(schema: &Schema, path: &str, context: &Context, found: &mut Vec<Cause>) {
    let rules = all_rules(schema, path);
    if rules.is_empty() {
        return;
    }
    let whole = Value::Object(schema.clone());
    for (at, rule) in rules {
        match rules::reads_the_past(rule, &whole, context.is_root) {
            Err(why) => found.push(Cause::invalid_text(format!("{at}.rule"), &shown(rule), &why)),
            Ok(true) => {
                if let Some(list) = &context.uncorrelated {
                    let hint =
                        format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
                    found.push(Cause::invalid(format!("{at}.rule"), &rule["rule"], &hint));
                }
            }
            Ok(false) if has_value(rule, "optionalOldSelf") => {
                let (at, hint) = (format!("{at}.optionalOldSelf"), "may not be set if oldSelf is not used in rule");
                found.push(Cause::invalid(at, &rule["optionalOldSelf"], hint));
            }
            Ok(false) => {}
        }
    }
}

/// A rule as Go's struct of it is written.
fn shown(rule: &Value) -> String {
    let text = |field: &str| rule.get(field).cloned().unwrap_or_else(|| json!(""));
    let pointer = |field: &str| rule.get(field).cloned().unwrap_or_default();
    go::record(&[
        ("Rule", text("rule")),
        ("Message", text("message")),
        ("MessageExpression", text("messageExpression")),
        ("Reason", pointer("reason")),
        ("FieldPath", text("fieldPath")),
        ("OptionalOldSelf", pointer("optionalOldSelf")),
    ])
}

fn all_rules<'s>(schema: &'s Schema, path: &str) -> Vec<(String, &'s Value)> {
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten().enumerate();
    rules.map(|(index, rule)| (format!("{path}.x-kubernetes-validations[{index}]"), rule)).collect()
}

fn has(schema: &Schema, keyword: &str) -> bool {
    schema.get(keyword).is_some_and(|value| !value.is_null() && value != "")
}

fn has_value(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|value| !value.is_null())
}
