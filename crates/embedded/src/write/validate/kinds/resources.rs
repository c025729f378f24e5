//! The resources of containers: quantities that are some, and no request above its limit.

use apimachinery::quantity::Quantity;
use apimachinery::status::{Cause, Status};
use serde_json::Value;

use super::field::Field;
use super::{NOT_NEGATIVE, items};
use crate::resources::Resource;

const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
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

/// Limits, and requests that keep to them.
pub(super) fn causes(container: &Field<'_>) -> Vec<Cause> {
    let (limits, requests) = (container.get("resources.limits"), container.get("resources.requests"));
    let mut causes: Vec<Cause> = limits.entries().flat_map(|(name, limit)| one(name, &limit)).collect();
    for (name, request) in requests.entries() {
        causes.extend(one(name, &request));
        let limit = limits.entries().find(|(limited, _)| *limited == name).map(|(_, limit)| limit);
        let most = limit.as_ref().and_then(Field::quantity);
        let Some(asked) = request.quantity() else { continue };
        match most {
            Some(most) if asked != most && !is_overcommittable(name) => {
                let hint = format!("must be equal to {name} limit of {most}");
                causes.push(Cause::invalid(&requests.path, request.value, &hint));
            }
            Some(most) if asked > most => {
                let hint = format!("must be less than or equal to {name} limit of {most}");
                causes.push(Cause::invalid(&requests.path, request.value, &hint));
            }
            None if !is_overcommittable(name) && name.contains('/') => {
                causes.push(limits.required_because("Limit must be set for non overcommitable resources"));
            }
            _ => {}
        }
    }
    causes
}

/// The name of a resource, and how much of it there may be.
fn one(name: &str, amount: &Field<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let named = |hint: &str| Cause::invalid(&amount.path, &name.into(), hint);
    let is_standard = STANDARD.contains(&name) || name.starts_with("hugepages-");
    if !name.contains('/') && !is_standard {
        causes.push(named("must be a standard resource type or fully qualified"));
        causes.push(named("must be a standard resource for containers"));
    }
    let Some(quantity) = amount.quantity() else { return causes };
    if quantity < Quantity::ZERO {
        causes.push(amount.invalid(NOT_NEGATIVE));
    }
    if name.contains('/') && !name.contains("kubernetes.io/") && Quantity::from_units(quantity.value()) != quantity {
        causes.push(amount.invalid("must be an integer"));
    }
    causes
}

/// Whether more may be asked of a node than it has: not of devices and large pages.
fn is_overcommittable(name: &str) -> bool {
    (!name.contains('/') || name.contains("kubernetes.io/")) && !name.starts_with("hugepages-")
}

fn parse(quantity: &Value) -> Option<Quantity> {
    Field::at(quantity, "").quantity()
}
