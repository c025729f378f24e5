//! Container resources that no Pod can have: requests above limits, and parts of devices.

use apimachinery::quantity::Quantity;
use serde_json::Value;

use super::Finding;

/// Amounts anywhere below `spec` that Kubernetes would refuse in the Pods.
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
                    whole(field, path, findings);
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

/// Extended resources are counted in whole devices.
fn whole(resources: &Value, path: &str, findings: &mut Vec<Finding>) {
    for side in ["requests", "limits"] {
        let extended = resources[side].as_object().into_iter().flatten().filter(|(name, _)| is_extended(name));
        for (name, stated) in extended {
            let Some(amount) = amount(stated).map(|amount| amount.as_f64()) else { continue };
            if amount < 0.0 || amount.fract() != 0.0 {
                let message =
                    format!("{name}: {stated} is no number of whole devices, as extended resources are counted");
                let finding = Finding::error(format!("{path}.{side}"), message);
                let hint = "write 1 or more; a part of a device has a resource of its own, such as `nvidia.com/mig-1g.10gb: 1`";
                findings.push(finding.hint(hint));
            }
        }
    }
}

/// What Kubernetes counts itself has no domain, or its own.
fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| !domain.ends_with("kubernetes.io"))
}

/// None where there is no amount yet, such as in a template.
fn amount(stated: &Value) -> Option<Quantity> {
    let text = stated.as_str().map_or_else(|| stated.to_string(), str::to_owned);
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::half(json!({"limits": {"nvidia.com/gpu": "0.5"}}), Some("nvidia.com/gpu: \"0.5\" is no number of whole devices"))]
    #[case::thousandths(json!({"requests": {"amd.com/gpu": "1500m"}}), Some("amd.com/gpu: \"1500m\" is no number"))]
    #[case::below_zero(json!({"limits": {"nvidia.com/gpu": -1}}), Some("nvidia.com/gpu: -1 is no number"))]
    #[case::whole(json!({"limits": {"nvidia.com/gpu": "2", "rdma/hca": 1}}), None)]
    #[case::thousands(json!({"limits": {"nvidia.com/gpu": "1k"}}), None)]
    #[case::not_extended(json!({"limits": {"cpu": "0.5", "memory": "1.5Gi"}}), None)]
    #[case::a_template(json!({"limits": {"nvidia.com/gpu": "{{.Labels.gpus}}"}}), None)]
    fn extended_resources_are_whole(#[case] resources: Value, #[case] expect: Option<&str>) {
        let document = json!({"spec": {"engine": {"runner": {"resources": resources}}}});
        let messages: Vec<String> = check(&document).into_iter().map(|finding| finding.message).collect();
        match expect {
            Some(expect) => assert!(messages[0].starts_with(expect), "{messages:?}"),
            None => assert_eq!(messages, Vec::<String>::new()),
        }
    }
}
