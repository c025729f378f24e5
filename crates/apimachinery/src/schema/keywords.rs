//! Validation of schema keywords in definitions, as in `apiextensions-apiserver/pkg/apis/apiextensions/validation`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::openapi::{OBJECT_FIELDS, SchemaObject, VALIDATION_RULES, fields, flag, preserve_unknown_fields, text};
use super::{paths, rules};
use crate::go;
use crate::status::StatusCause;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
const UNSUPPORTED_KEYWORDS: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// Position of a schema, which determines the keywords it may have.
#[derive(Clone, Default)]
struct Context {
    is_root: bool,
    /// Reason why a default is forbidden here.
    default_forbidden_reason: Option<String>,
    is_in_metadata: bool,
    /// Path of the enclosing list or map whose elements cannot be correlated with their old values.
    uncorrelatable: Option<String>,
    /// Whether rules are compiled; false within logical junctors and for schemas that are not structural.
    compile_rules: bool,
}

/// Errors of a schema; kube-apiserver reports those of rules last.
#[derive(Default)]
struct SchemaErrors {
    keywords: Vec<StatusCause>,
    rules: Vec<StatusCause>,
}

/// Returns the errors of the schema at `path`; its rules are compiled only if it is structural.
pub(super) fn check(schema: &Value, path: &str, is_structural: bool) -> Vec<StatusCause> {
    let Some(schema) = schema.as_object() else { return Vec::new() };
    let context = Context { is_root: true, compile_rules: is_structural, ..Context::default() };
    let SchemaErrors { keywords, rules } = visit(schema, path, &context);
    keywords.into_iter().chain(rules).collect()
}

/// Checks a schema and its nested schemas.
fn visit(schema: &SchemaObject, path: &str, context: &Context) -> SchemaErrors {
    let mut errors = SchemaErrors::default();
    check_keywords(schema, path, context, &mut errors.keywords);
    for (nested, nested_path, context) in nested_schemas(schema, path, context) {
        let nested_errors = visit(nested, &nested_path, &context);
        errors.keywords.extend(nested_errors.keywords);
        errors.rules.extend(nested_errors.rules);
    }
    check_extensions(schema, path, &mut errors.keywords);
    check_list_map(schema, path, &mut errors.keywords);
    check_rule_fields(schema, path, &mut errors.keywords);
    if errors.keywords.is_empty() && context.compile_rules {
        check_rules(schema, path, context, &mut errors.rules);
    }
    errors
}

/// Returns the schemas directly nested in a schema, each with its path and context.
fn nested_schemas<'s>(
    schema: &'s SchemaObject,
    path: &str,
    context: &Context,
) -> Vec<(&'s SchemaObject, String, Context)> {
    let nested = Context { is_root: false, ..context.clone() };
    let mut schemas = Vec::new();
    let mut add = |schema: Option<&'s Value>, step: &str, context: &Context| {
        if let Some(schema) = schema.and_then(Value::as_object) {
            schemas.push((schema, format!("{path}.{step}"), context.clone()));
        }
    };
    let mut additional = nested.clone();
    if context.is_in_metadata {
        additional.default_forbidden_reason =
            Some("inside additionalProperties applying to object metadata".to_owned());
    }
    add(schema.get("additionalProperties"), "additionalProperties", &additional);
    for (name, _) in fields(schema) {
        let mut field = nested.clone();
        if OBJECT_FIELDS.contains(&name.as_str()) && (context.is_root || flag(schema, "x-kubernetes-embedded-resource"))
        {
            field.is_in_metadata = true;
            if context.is_root {
                field.default_forbidden_reason = Some(format!("in top-level {name}"));
            }
        }
        if text(schema, "x-kubernetes-map-type") == "atomic" {
            field.uncorrelatable.get_or_insert_with(|| path.to_owned());
        }
        add(
            schema.get("properties").and_then(|properties| properties.get(name)),
            &format!("properties[{name}]"),
            &field,
        );
    }
    let junctor = Context { compile_rules: false, ..nested.clone() };
    add(schema.get("not"), "not", &junctor);
    for name in ["allOf", "oneOf", "anyOf"] {
        for (index, schema) in schema.get(name).and_then(Value::as_array).into_iter().flatten().enumerate() {
            add(Some(schema), &format!("{name}[{index}]"), &junctor);
        }
    }
    let mut item = nested;
    if text(schema, "x-kubernetes-list-type") != "map" {
        item.uncorrelatable.get_or_insert_with(|| path.to_owned());
    }
    add(schema.get("items"), "items", &item);
    schemas
}

fn check_keywords(schema: &SchemaObject, path: &str, context: &Context, causes: &mut Vec<StatusCause>) {
    let type_name = text(schema, "type");
    if !type_name.is_empty() && !TYPES.contains(&type_name) {
        causes.push(StatusCause::not_supported(format!("{path}.type"), &json!(type_name), &TYPES.map(Value::from)));
    }
    if let (Some(reason), true) = (&context.default_forbidden_reason, has(schema, "default")) {
        causes.push(StatusCause::forbidden(format!("{path}.default"), &format!("must not be set {reason}")));
    }
    for keyword in UNSUPPORTED_KEYWORDS.into_iter().filter(|keyword| has(schema, keyword)) {
        causes.push(StatusCause::forbidden(format!("{path}.{keyword}"), &format!("{keyword} is not supported")));
    }
    if type_name == "null" {
        let hint = "type cannot be set to null, use nullable as an alternative";
        causes.push(StatusCause::forbidden(format!("{path}.type"), hint));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        causes.push(StatusCause::forbidden(format!("{path}.items"), "items must be a schema object and not an array"));
    }
    if context.is_in_metadata && flag(schema, "x-kubernetes-embedded-resource") {
        let field_path = format!("{path}.x-kubernetes-embedded-resource");
        causes.push(StatusCause::forbidden(field_path, "must not be used inside of resource meta"));
    }
    if flag(schema, "uniqueItems") {
        let hint = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(StatusCause::forbidden(format!("{path}.uniqueItems"), hint));
    }
    let restricts_fields = has(schema, "additionalProperties") && schema["additionalProperties"] != true;
    if restricts_fields && fields(schema).next().is_some() {
        let hint = "additionalProperties and properties are mutual exclusive";
        causes.push(StatusCause::forbidden(format!("{path}.additionalProperties"), hint));
    }
}

fn check_extensions(schema: &SchemaObject, path: &str, causes: &mut Vec<StatusCause>) {
    if preserve_unknown_fields(schema) == Some(false) {
        let field_path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        causes.push(StatusCause::invalid(field_path, &json!(false), "must be true or undefined"));
    }
    for (keyword, required_type, supported) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
    ] {
        let value = text(schema, keyword);
        if value.is_empty() {
            continue;
        }
        let (type_path, actual_type) = (format!("{path}.type"), text(schema, "type"));
        let hint = format!("must be {required_type} if {keyword} is specified");
        if actual_type.is_empty() {
            causes.push(StatusCause::required(type_path, &hint));
        } else if actual_type != required_type {
            causes.push(StatusCause::invalid(type_path, &json!(actual_type), &hint));
        } else if value == "set" && required_type == "array" {
            check_set_items(schema, path, causes);
        }
        if !supported.contains(&value) {
            let supported: Vec<Value> = supported.iter().map(|value| json!(value)).collect();
            causes.push(StatusCause::not_supported(format!("{path}.{keyword}"), &json!(value), &supported));
        }
    }
}

/// Checks that the items of a set are atomic.
fn check_set_items(schema: &SchemaObject, path: &str, causes: &mut Vec<StatusCause>) {
    let Some(items) = schema.get("items").and_then(Value::as_object) else { return };
    let (list, map) = (text(items, "x-kubernetes-list-type"), text(items, "x-kubernetes-map-type"));
    let keyword = match text(items, "type") {
        "array" if !list.is_empty() && list != "atomic" => "x-kubernetes-list-type",
        "object" if map != "atomic" => "x-kubernetes-map-type",
        _ => return,
    };
    let value = if list.is_empty() { Value::Null } else { json!(list) };
    let hint = "must be atomic as item of a list with x-kubernetes-list-type=set";
    causes.push(StatusCause::invalid(format!("{path}.items.{keyword}"), &value, hint));
}

/// Checks lists of type `map` and `set`.
fn check_list_map(schema: &SchemaObject, path: &str, causes: &mut Vec<StatusCause>) {
    const LIST_MAP_KEYS: &str = "x-kubernetes-list-map-keys";
    let list_type = text(schema, "x-kubernetes-list-type");
    let keys: Vec<&str> =
        schema.get(LIST_MAP_KEYS).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if !keys.is_empty() && list_type != "map" {
        let (field_path, hint) =
            (format!("{path}.x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty");
        causes.push(if list_type.is_empty() {
            StatusCause::required(field_path, hint)
        } else {
            StatusCause::invalid(field_path, &json!(list_type), hint)
        });
    }
    let items = schema.get("items").and_then(Value::as_object);
    if list_type == "map" {
        if keys.is_empty() {
            let hint = "must not be empty if x-kubernetes-list-type is map";
            causes.push(StatusCause::required(format!("{path}.{LIST_MAP_KEYS}"), hint));
        }
        match items {
            None => {
                let hint = "must have a schema if x-kubernetes-list-type is map";
                causes.push(StatusCause::required(format!("{path}.items"), hint));
            }
            Some(items) if text(items, "type") != "object" => {
                let hint = "must be object if parent array's x-kubernetes-list-type is map";
                causes.push(StatusCause::invalid(format!("{path}.items.type"), &json!(text(items, "type")), hint));
            }
            Some(items) => check_key_names(items, &keys, path, causes),
        }
    }
    if let (Some(items), "map" | "set") = (items, list_type) {
        check_nulls_and_defaults(items, list_type, &keys, path, causes);
    }
}

fn check_key_names(items: &SchemaObject, keys: &[&str], path: &str, causes: &mut Vec<StatusCause>) {
    let mut seen = BTreeSet::new();
    let keys_path = || format!("{path}.x-kubernetes-list-map-keys");
    for key in keys {
        match fields(items).find(|(name, _)| name == key) {
            None => causes.push(StatusCause::invalid(
                keys_path(),
                &json!(keys),
                "entries must all be names of item properties",
            )),
            Some((_, field)) if matches!(text(field, "type"), "array" | "object") => {
                let field_path = format!("{path}.items.properties[{key}].type");
                let hint = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                causes.push(StatusCause::invalid(field_path, &json!(text(items, "type")), hint));
            }
            Some(_) => {}
        }
        if !seen.insert(key) {
            causes.push(StatusCause::invalid(keys_path(), &json!(keys), "must not contain duplicate entries"));
        }
    }
}

fn check_nulls_and_defaults(
    items: &SchemaObject,
    list_type: &str,
    keys: &[&str],
    path: &str,
    causes: &mut Vec<StatusCause>,
) {
    if flag(items, "nullable") {
        let hint = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        causes.push(StatusCause::forbidden(format!("{path}.items.nullable"), &hint));
    }
    if list_type != "map" {
        return;
    }
    let required = items.get("required").and_then(Value::as_array);
    for key in keys {
        let Some((_, field)) = fields(items).find(|(name, _)| name == key) else { continue };
        let field_path = format!("{path}.items.properties[{key}]");
        let subject = "this property is in x-kubernetes-list-map-keys, so it";
        let is_required = required.is_some_and(|all| all.iter().any(|name| name == key));
        if !is_required && !has(field, "default") {
            let hint = format!("{subject} must have a default or be a required property");
            causes.push(StatusCause::required(format!("{field_path}.default"), &hint));
        }
        if flag(field, "nullable") {
            causes.push(StatusCause::forbidden(
                format!("{field_path}.nullable"),
                &format!("{subject} cannot be nullable"),
            ));
        }
    }
}

fn check_rule_fields(schema: &SchemaObject, path: &str, causes: &mut Vec<StatusCause>) {
    for (rule_path, rule) in rules_of(schema, path) {
        let value = |field: &str| rule.get(field).and_then(Value::as_str).unwrap_or_default();
        let has_line_break = |text: &str| text.contains(['\n', '\r']);
        let (text, message) = (value("rule").trim(), value("message").trim());
        let is_blank = |field: &str| !value(field).is_empty() && value(field).trim().is_empty();
        let field_path = |field: &str| format!("{rule_path}.{field}");
        if text.is_empty() {
            causes.push(StatusCause::required(field_path("rule"), "rule is not specified"));
        } else if is_blank("message") {
            causes.push(StatusCause::invalid(
                field_path("message"),
                &rule["message"],
                "must be non-empty if specified",
            ));
        } else if has_line_break(message) {
            causes.push(StatusCause::invalid(field_path("message"), &rule["message"], "must not contain line breaks"));
        } else if has_line_break(text) && message.is_empty() {
            let hint = "message must be specified if rule contains line breaks";
            causes.push(StatusCause::required(field_path("message"), hint));
        }
        if is_blank("messageExpression") {
            let hint = "messageExpression must be non-empty if specified";
            causes.push(StatusCause::required(field_path("messageExpression"), hint));
        }
        if !value("reason").is_empty() && !REASONS.contains(&value("reason")) {
            causes.push(StatusCause::not_supported(field_path("reason"), &rule["reason"], &REASONS.map(Value::from)));
        }
        if is_blank("fieldPath") {
            causes.push(StatusCause::invalid(
                field_path("fieldPath"),
                &rule["fieldPath"],
                "must be non-empty if specified",
            ));
        }
        if has_line_break(value("fieldPath")) {
            causes.push(StatusCause::invalid(
                field_path("fieldPath"),
                &rule["fieldPath"],
                "must not contain line breaks",
            ));
        }
        if !value("fieldPath").is_empty() && paths::schema_at(schema, value("fieldPath")).is_err() {
            causes.push(StatusCause::invalid(field_path("fieldPath"), &rule["fieldPath"], "must be a valid path"));
        }
    }
}

fn check_rules(schema: &SchemaObject, path: &str, context: &Context, causes: &mut Vec<StatusCause>) {
    let rules = rules_of(schema, path);
    if rules.is_empty() {
        return;
    }
    let schema = Value::Object(schema.clone());
    for (rule_path, rule) in rules {
        match rules::uses_old_self(rule, &schema, context.is_root) {
            Err(error) => {
                causes.push(StatusCause::invalid_json(format!("{rule_path}.rule"), &format_rule(rule), &error));
            }
            Ok(true) => {
                if let Some(list) = &context.uncorrelatable {
                    let hint =
                        format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
                    causes.push(StatusCause::invalid(format!("{rule_path}.rule"), &rule["rule"], &hint));
                }
            }
            Ok(false) if is_non_null(rule, "optionalOldSelf") => {
                let (field_path, hint) =
                    (format!("{rule_path}.optionalOldSelf"), "may not be set if oldSelf is not used in rule");
                causes.push(StatusCause::invalid(field_path, &rule["optionalOldSelf"], hint));
            }
            Ok(false) => {}
        }
    }
}

/// Formats a rule as kube-apiserver quotes it: the JSON encoding of its Go struct.
fn format_rule(rule: &Value) -> String {
    let text = |field: &str| rule.get(field).cloned().unwrap_or_else(|| json!(""));
    let pointer = |field: &str| rule.get(field).cloned().unwrap_or_default();
    go::go_format_struct(&[
        ("Rule", text("rule")),
        ("Message", text("message")),
        ("MessageExpression", text("messageExpression")),
        ("Reason", pointer("reason")),
        ("FieldPath", text("fieldPath")),
        ("OptionalOldSelf", pointer("optionalOldSelf")),
    ])
}

/// Returns the rules of a schema, each with its path.
fn rules_of<'s>(schema: &'s SchemaObject, path: &str) -> Vec<(String, &'s Value)> {
    let rules = schema.get(VALIDATION_RULES).and_then(Value::as_array).into_iter().flatten().enumerate();
    rules.map(|(index, rule)| (format!("{path}.{VALIDATION_RULES}[{index}]"), rule)).collect()
}

/// Reports whether a keyword is neither null nor empty.
fn has(schema: &SchemaObject, keyword: &str) -> bool {
    schema.get(keyword).is_some_and(|value| !value.is_null() && value != "")
}

fn is_non_null(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|value| !value.is_null())
}
