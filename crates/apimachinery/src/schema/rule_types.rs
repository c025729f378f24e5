//! What is known of a rule's types without evaluating it: fields of `self` that no schema declares, and rules that cannot
//! be true or false. What cannot be known this way is taken for right.

use kube_cel::cel::common::ast::{Expr, LiteralValue};
use serde_json::Value;

use super::OBJECT_FIELDS;
use super::cost::children;

/// Operators whose results are no conditions.
const ARITHMETIC: [&str; 6] = ["_+_", "_-_", "_*_", "_/_", "_%_", "-_"];

/// Why a rule about a value of `schema` cannot be right.
pub(super) fn refuse(rule: &Expr, schema: &Value, is_root: bool) -> Option<String> {
    if let Some(name) = undeclared(rule, schema, is_root) {
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

fn undeclared(expression: &Expr, schema: &Value, is_root: bool) -> Option<String> {
    if let Expr::Select(select) = expression
        && let Some(of) = schema_of(&select.operand.expr, schema)
    {
        let is_whole = is_root && matches!(select.operand.expr, Expr::Ident(_));
        let is_known = is_whole && OBJECT_FIELDS.contains(&select.field.as_str());
        if !is_known && is_closed(of) && of["properties"].get(&select.field).is_none() {
            return Some(select.field.clone());
        }
    }
    children(expression).into_iter().find_map(|inner| undeclared(inner, schema, is_root))
}

/// The schema of `self`, `oldSelf` and of fields of theirs.
fn schema_of<'s>(expression: &Expr, schema: &'s Value) -> Option<&'s Value> {
    match expression {
        Expr::Ident(name) => (name == "self" || name == "oldSelf").then_some(schema),
        Expr::Select(select) => schema_of(&select.operand.expr, schema)?["properties"].get(&select.field),
        _ => None,
    }
}

/// Whether it has the fields that it declares and no others. Names that CEL would have to escape are left alone.
fn is_closed(schema: &Value) -> bool {
    let is_plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    schema["type"] == "object"
        && schema["x-kubernetes-preserve-unknown-fields"] != true
        && schema["x-kubernetes-embedded-resource"] != true
        && schema.get("additionalProperties").is_none()
        && schema["properties"].as_object().is_some_and(|fields| fields.keys().all(is_plain))
}
