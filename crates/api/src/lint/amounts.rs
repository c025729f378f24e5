//! Container resources that no Pod can have: requests above limits.

use apimachinery::quantity::Quantity;
use serde_json::Value;

use super::Finding;

/// Requests anywhere below `spec` that are above the limit beside them.
pub(super) fn check(document: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    walk(&document["spec"], &mut "spec".to_owned(), &mut findings);
    findings
}

fn walk(value: &Value, path: &mut String, findings: &mut Vec<Finding>) {
    let own = path.len();
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                path.push('.');
                path.push_str(name);
                if name == "resources" {
                    compare(field, path, findings);
                }
                walk(field, path, findings);
                path.truncate(own);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                walk(item, path, findings);
                path.truncate(own);
            }
        }
        _ => {}
    }
}

fn compare(resources: &Value, path: &str, findings: &mut Vec<Finding>) {
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let (Some(requested), Some(limit)) = (amount(request), amount(&resources["limits"][name])) else { continue };
        if requested > limit {
            let message = format!("{name}: the request {request} is above the limit {}", resources["limits"][name]);
            findings.push(
                Finding::error(format!("{path}.requests"), message).hint("raise the limit, or lower the request"),
            );
        }
    }
}

/// None where there is no amount yet, such as in a template.
fn amount(stated: &Value) -> Option<Quantity> {
    let text = stated.as_str().map_or_else(|| stated.to_string(), str::to_owned);
    text.parse().ok()
}
