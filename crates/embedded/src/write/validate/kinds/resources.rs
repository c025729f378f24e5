//! The resources of containers: quantities that are some, and no request above its limit.

use apimachinery::quantity::Quantity;
use apimachinery::status::{Cause, Status};
use serde_json::Value;

use super::items;
use crate::resources::Resource;

const QUANTITY: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// # Errors
/// 400 for a quantity that is none: it does not even decode.
pub(in crate::write::validate) fn quantities(resource: &Resource, object: &Value) -> Result<(), Status> {
    let spec = match resource.storage.as_str() {
        "pods" => object.get("spec"),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "jobs.batch" => {
            object.pointer("/spec/template/spec")
        }
        _ => None,
    };
    let containers =
        ["containers", "initContainers"].into_iter().flat_map(|list| items(spec.and_then(|it| it.get(list))));
    for container in containers {
        for part in ["limits", "requests"] {
            let all = container.pointer(&format!("/resources/{part}")).and_then(Value::as_object).into_iter().flatten();
            if all.into_iter().any(|(_, quantity)| parse(quantity).is_none()) {
                let (kind, version) = (&resource.kind, &resource.version);
                return Err(Status::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {kind}: {QUANTITY}"
                )));
            }
        }
    }
    Ok(())
}

/// Requests that are more than their limit.
pub(super) fn causes(container: &Value, field: &str) -> Vec<Cause> {
    let part = |name: &str| container.pointer(&format!("/resources/{name}")).and_then(Value::as_object);
    let mut causes = Vec::new();
    for (name, request) in part("requests").into_iter().flatten() {
        let Some(limit) = part("limits").and_then(|limits| limits.get(name)) else { continue };
        if let (Some(asked), Some(most)) = (parse(request), parse(limit))
            && asked > most
        {
            let hint = format!("must be less than or equal to {name} limit of {most}");
            causes.push(Cause::invalid(format!("{field}.resources.requests"), request, &hint));
        }
    }
    causes
}

fn parse(quantity: &Value) -> Option<Quantity> {
    match quantity {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}
