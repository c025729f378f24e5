//! Warns about Pods that no node could run.

use std::collections::BTreeSet;

use decide::{Inventory, UnschedulableReason, Warning};

use crate::code;
use crate::role::Role;

/// Returns a warning for each role whose Pods none of the known nodes could run.
pub(crate) fn warnings<'r>(roles: impl IntoIterator<Item = &'r Role>, inventory: &Inventory) -> Vec<Warning> {
    roles.into_iter().filter_map(|role| Some(warning(role, &reason(role, inventory)?))).collect()
}

/// Returns a warning for each role whose Pods request a resource, such as network devices, of which no known node has as much. The
/// decision has checked accelerators, CPU, memory and placement.
pub(crate) fn resource_warnings<'r>(
    roles: impl IntoIterator<Item = &'r Role>,
    inventory: &Inventory,
    accelerators: &BTreeSet<String>,
) -> Vec<Warning> {
    let is_other_resource = |reason: &UnschedulableReason| match reason {
        UnschedulableReason::InsufficientResource { resource, .. } => {
            resource.contains('/') && !accelerators.contains(resource)
        }
        _ => false,
    };
    let reason = |role: &Role| reason(role, inventory).filter(is_other_resource);
    roles.into_iter().filter_map(|role| Some(warning(role, &reason(role)?))).collect()
}

fn reason(role: &Role, inventory: &Inventory) -> Option<UnschedulableReason> {
    let mut templates = std::iter::once(&role.template).chain(&role.worker_template);
    templates.find_map(|template| decide::unschedulable_reason(inventory.nodes(), template))
}

fn warning(role: &Role, reason: &UnschedulableReason) -> Warning {
    let remedy = match reason {
        UnschedulableReason::NoMatchingNode => "correct them, or label a node".to_owned(),
        UnschedulableReason::TaintNotTolerated { taint, .. } => format!("add a toleration of {}", taint.key),
        UnschedulableReason::InsufficientResource { resource, .. } if reason.has_some() => {
            format!("request less {resource}, or add a larger node")
        }
        UnschedulableReason::InsufficientResource { resource, .. } => {
            format!("remove the request for {resource}, or add a node with it")
        }
        UnschedulableReason::InsufficientCombination { .. } => "request less, or add a larger node".to_owned(),
    };
    let message = format!("No node could run the Pods of {}, so they stay pending: {reason}; {remedy}", role.name);
    Warning::new(code::warning::PODS_UNSCHEDULABLE, message)
}
