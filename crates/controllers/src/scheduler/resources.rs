//! Resource requests: the `NodeResourcesFit` plugin.

use apimachinery::{Quantity, ResourceList};
use serde_json::Value;

use super::node_info::{NodeInfo, allocatable, requests};
use super::reason::{FilterFailure, UnschedulableReason};

/// Returns a failure that lists the resources of which the node has too little available, or `None` if the Pod fits.
pub(super) fn filter(pod: &Value, node_info: &NodeInfo) -> Option<FilterFailure> {
    let allocatable = allocatable(&node_info.node);
    let amount = |amounts: &ResourceList, name: &str| amounts.get(name).copied().unwrap_or(Quantity::ZERO);
    let mut failure = FilterFailure { reasons: Vec::new(), resolvable: true };
    for (name, request) in requests(pod) {
        let allocatable_amount = amount(&allocatable, &name);
        let requested = amount(&node_info.requested, &name);
        if request.is_zero() || request + requested <= allocatable_amount {
            continue;
        }
        failure.resolvable &= request <= allocatable_amount;
        let free = (allocatable_amount - requested).max(Quantity::ZERO);
        failure.reasons.push(match name.as_str() {
            "pods" => UnschedulableReason::TooManyPods { limit: allocatable_amount },
            _ => UnschedulableReason::InsufficientResource {
                resource: name,
                requested: request,
                free,
                allocatable: allocatable_amount,
            },
        });
    }
    (!failure.reasons.is_empty()).then_some(failure)
}
