//! Amounts in container resources, which the schema leaves open because containers are the user's.

use apimachinery::quantity::Quantity;
use serde_json::Value;

use super::Finding;

/// Requests and limits anywhere below `spec` that are no quantity, or are negative.
pub(super) fn check(document: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    walk(&document["spec"], "spec", &mut findings);
    findings
}

fn walk(value: &Value, path: &str, findings: &mut Vec<Finding>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let at = format!("{path}.{name}");
                if name == "resources" {
                    ["requests", "limits"].iter().for_each(|of| amounts(&field[of], &format!("{at}.{of}"), findings));
                }
                walk(field, &at, findings);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| walk(item, &format!("{path}[{index}]"), findings));
        }
        _ => {}
    }
}

fn amounts(stated: &Value, path: &str, findings: &mut Vec<Finding>) {
    for (name, amount) in stated.as_object().into_iter().flatten() {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        // A template's expression is filled in later.
        if text.contains("{{") || text.contains("$(") {
            continue;
        }
        let wrong = match text.parse::<Quantity>() {
            Ok(_) if text.starts_with('-') => "is negative",
            Ok(_) => continue,
            Err(_) => "is not a quantity",
        };
        let finding = Finding::error(format!("{path}.{name}"), format!("`{text}` {wrong}"));
        findings.push(finding.hint("write an amount such as `4Gi`, `500m` or `8`"));
    }
}
