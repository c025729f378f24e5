//! Static checks of rules: undeclared fields of `self`, and rules whose result cannot be a bool. Rules that cannot be
//! checked statically are accepted.

use kube_cel::cel::common::ast::{Expr, LiteralValue};
use serde_json::Value;

use super::cost::children;
use super::openapi::OBJECT_FIELDS;

/// Operators whose result is not a bool.
const ARITHMETIC: [&str; 6] = ["_+_", "_-_", "_*_", "_/_", "_%_", "-_"];

/// Returns the error of a rule on a value of `schema`, if it has one.
pub(super) fn check_rule(rule: &Expr, schema: &Value, is_root: bool) -> Option<String> {
    if let Some(name) = undeclared_field(rule, schema, is_root) {
        return Some(format!("compilation failed: undefined field '{name}'"));
    }
    (!may_be_bool(rule)).then(|| "cel expression must evaluate to a bool".to_owned())
}

fn may_be_bool(rule: &Expr) -> bool {
    match rule {
        Expr::Literal(literal) => matches!(literal, LiteralValue::Boolean(_)),
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => false,
        Expr::Call(call) => !ARITHMETIC.contains(&call.func_name.as_str()) && call.func_name != "size",
        Expr::Ident(_) | Expr::Select(_) | Expr::Comprehension(_) | Expr::Unspecified => true,
    }
}

fn undeclared_field(expression: &Expr, schema: &Value, is_root: bool) -> Option<String> {
    if let Expr::Select(select) = expression
        && let Some(operand_schema) = schema_of(&select.operand.expr, schema)
    {
        let is_object = is_root && matches!(select.operand.expr, Expr::Ident(_));
        let is_object_field = is_object && OBJECT_FIELDS.contains(&select.field.as_str());
        if !is_object_field && is_closed(operand_schema) && operand_schema["properties"].get(&select.field).is_none() {
            return Some(select.field.clone());
        }
    }
    children(expression).into_iter().find_map(|child| undeclared_field(child, schema, is_root))
}

/// Returns the schema of `self`, `oldSelf` or one of their fields.
fn schema_of<'s>(expression: &Expr, schema: &'s Value) -> Option<&'s Value> {
    match expression {
        Expr::Ident(name) => (name == "self" || name == "oldSelf").then_some(schema),
        Expr::Select(select) => schema_of(&select.operand.expr, schema)?["properties"].get(&select.field),
        _ => None,
    }
}

/// Reports whether the schema permits declared fields only. Schemas with field names that CEL escapes are skipped.
fn is_closed(schema: &Value) -> bool {
    let is_unescaped = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    schema["type"] == "object"
        && schema["x-kubernetes-preserve-unknown-fields"] != true
        && schema["x-kubernetes-embedded-resource"] != true
        && schema.get("additionalProperties").is_none()
        && schema["properties"].as_object().is_some_and(|fields| fields.keys().all(is_unescaped))
}
