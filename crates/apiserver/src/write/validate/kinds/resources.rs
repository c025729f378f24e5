//! Validation of container resources: quantities, and requests that must not exceed limits.

use apimachinery::{Quantity, StatusCause};
use serde_json::Value;

use super::field::{Field, NEGATIVE_MESSAGE};
use crate::resources::Resource;
use crate::write::UndecodableObject;
use apimachinery::object::items;

const STANDARD_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const INVALID_QUANTITY_MESSAGE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Checks that limits and requests are valid quantities.
///
/// # Errors
/// If one of them is not.
pub(in crate::write::validate) fn check_quantities(
    resource: &Resource,
    object: &Value,
) -> Result<(), UndecodableObject> {
    let spec = match resource.storage.as_str() {
        "pods" => object.get("spec"),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "jobs.batch" => {
            object.pointer("/spec/template/spec")
        }
        _ => None,
    };
    let containers =
        ["containers", "initContainers"].into_iter().flat_map(|list| items(spec.and_then(|spec| spec.get(list))));
    for container in containers {
        for field in ["limits", "requests"] {
            let quantities =
                container.pointer(&format!("/resources/{field}")).and_then(Value::as_object).into_iter().flatten();
            if quantities.into_iter().any(|(_, quantity)| parse_quantity(quantity).is_none()) {
                return Err(UndecodableObject::new(resource, INVALID_QUANTITY_MESSAGE));
            }
        }
    }
    Ok(())
}

/// Validates the limits and requests of a container.
pub(super) fn causes(container: &Field<'_>) -> Vec<StatusCause> {
    let (limits, requests) = (container.get("resources.limits"), container.get("resources.requests"));
    let mut causes: Vec<StatusCause> =
        limits.entries().flat_map(|(name, limit)| resource_causes(name, &limit)).collect();
    for (name, request) in requests.entries() {
        causes.extend(resource_causes(name, &request));
        let limit = limits.entries().find(|(limit_name, _)| *limit_name == name).map(|(_, limit)| limit);
        let limit_quantity = limit.as_ref().and_then(Field::quantity);
        let Some(requested) = request.quantity() else { continue };
        match limit_quantity {
            Some(limit_quantity) if requested != limit_quantity && !is_overcommittable(name) => {
                let hint = format!("must be equal to {name} limit of {limit_quantity}");
                causes.push(StatusCause::invalid(&requests.path, request.value, &hint));
            }
            Some(limit_quantity) if requested > limit_quantity => {
                let hint = format!("must be less than or equal to {name} limit of {limit_quantity}");
                causes.push(StatusCause::invalid(&requests.path, request.value, &hint));
            }
            None if !is_overcommittable(name) && name.contains('/') => {
                causes.push(limits.required_with_hint("Limit must be set for non overcommitable resources"));
            }
            _ => {}
        }
    }
    causes
}

/// Validates the name and the quantity of a resource.
fn resource_causes(name: &str, field: &Field<'_>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let invalid_name = |hint: &str| StatusCause::invalid(&field.path, &name.into(), hint);
    let is_standard = STANDARD_RESOURCES.contains(&name) || name.starts_with("hugepages-");
    if !name.contains('/') && !is_standard {
        causes.push(invalid_name("must be a standard resource type or fully qualified"));
        causes.push(invalid_name("must be a standard resource for containers"));
    }
    let Some(quantity) = field.quantity() else { return causes };
    if quantity < Quantity::ZERO {
        causes.push(field.invalid(NEGATIVE_MESSAGE));
    }
    if name.contains('/') && !name.contains("kubernetes.io/") && Quantity::from_units(quantity.value()) != quantity {
        causes.push(field.invalid("must be an integer"));
    }
    causes
}

/// Reports whether the request may be lower than the limit. This is not allowed for extended resources and huge pages.
fn is_overcommittable(name: &str) -> bool {
    (!name.contains('/') || name.contains("kubernetes.io/")) && !name.starts_with("hugepages-")
}

fn parse_quantity(quantity: &Value) -> Option<Quantity> {
    Field::at(quantity, "").quantity()
}
