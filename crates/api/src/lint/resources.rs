//! Invalid container resources: requests that exceed limits, and fractional extended resources.

use apimachinery::Quantity;
use serde_json::Value;

use super::finding::Finding;

/// Checks all resource requirements below `spec`.
pub(super) fn check(document: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    walk(&document["spec"], &mut "spec".to_owned(), &mut findings);
    findings
}

fn walk(value: &Value, path: &mut String, findings: &mut Vec<Finding>) {
    let parent_length = path.len();
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                path.push('.');
                path.push_str(name);
                if name == "resources" {
                    requests_exceeding_limits(field, path, findings);
                    fractional_extended_resources(field, path, findings);
                }
                walk(field, path, findings);
                path.truncate(parent_length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                walk(item, path, findings);
                path.truncate(parent_length);
            }
        }
        _ => {}
    }
}

fn requests_exceeding_limits(resources: &Value, path: &str, findings: &mut Vec<Finding>) {
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let (Some(requested), Some(limit)) = (parse_quantity(request), parse_quantity(&resources["limits"][name]))
        else {
            continue;
        };
        if requested > limit {
            let message = format!("{name}: request {request} exceeds limit {}", resources["limits"][name]);
            let finding = Finding::error(format!("{path}.requests"), message);
            findings.push(finding.with_hint("increase the limit or decrease the request"));
        }
    }
}

/// Extended resources must be whole numbers.
fn fractional_extended_resources(resources: &Value, path: &str, findings: &mut Vec<Finding>) {
    for field in ["requests", "limits"] {
        let extended = resources[field].as_object().into_iter().flatten().filter(|(name, _)| is_extended(name));
        for (name, value) in extended {
            let Some(amount) = parse_quantity(value).map(|quantity| quantity.as_f64()) else { continue };
            if amount < 0.0 || amount.fract() != 0.0 {
                let message = format!("{name}: {value} is not a whole number; extended resources cannot be fractional");
                let finding = Finding::error(format!("{path}.{field}"), message);
                let hint = "use a whole number of at least 1; to request part of a device, use a resource such as `nvidia.com/mig-1g.10gb: 1`";
                findings.push(finding.with_hint(hint));
            }
        }
    }
}

/// Reports whether a resource name has a domain other than `kubernetes.io`.
fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| !domain.ends_with("kubernetes.io"))
}

/// Parses a quantity; returns `None` for text that is not a quantity, such as a template expression.
fn parse_quantity(value: &Value) -> Option<Quantity> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::fractional(json!({"limits": {"nvidia.com/gpu": "0.5"}}), Some("nvidia.com/gpu: \"0.5\" is not a whole number"))]
    #[case::fractional_in_milli(json!({"requests": {"amd.com/gpu": "1500m"}}), Some("amd.com/gpu: \"1500m\" is not a whole number"))]
    #[case::negative(json!({"limits": {"nvidia.com/gpu": -1}}), Some("nvidia.com/gpu: -1 is not a whole number"))]
    #[case::whole_number(json!({"limits": {"nvidia.com/gpu": "2", "rdma/hca": 1}}), None)]
    #[case::thousands(json!({"limits": {"nvidia.com/gpu": "1k"}}), None)]
    #[case::not_extended(json!({"limits": {"cpu": "0.5", "memory": "1.5Gi"}}), None)]
    #[case::template(json!({"limits": {"nvidia.com/gpu": "{{.Labels.gpus}}"}}), None)]
    fn rejects_fractional_extended_resources(#[case] resources: Value, #[case] expect: Option<&str>) {
        let document = json!({"spec": {"engine": {"runner": {"resources": resources}}}});
        let messages: Vec<String> = check(&document).into_iter().map(|finding| finding.message).collect();
        match expect {
            Some(expect) => assert!(messages[0].starts_with(expect), "{messages:?}"),
            None => assert_eq!(messages, Vec::<String>::new()),
        }
    }
}
