//! Room for what a Pod requests (`NodeResourcesFit`).

use apimachinery::pod::Amounts;
use apimachinery::quantity::Quantity;
use serde_json::Value;

use super::candidate::{Candidate, allocatable, requests};
use super::reason::{Reason, Unfit};

pub(super) fn insufficient(pod: &Value, candidate: &Candidate) -> Option<Unfit> {
    let allocatable = allocatable(&candidate.node);
    let of = |amounts: &Amounts, name: &str| amounts.get(name).copied().unwrap_or(Quantity::ZERO);
    let mut unfit = Unfit { reasons: Vec::new(), preemptable: true };
    for (name, wanted) in requests(pod) {
        let total = of(&allocatable, &name);
        let used = of(&candidate.used, &name);
        if wanted.is_zero() || wanted + used <= total {
            continue;
        }
        unfit.preemptable &= wanted <= total;
        let free = (total - used).max(Quantity::ZERO);
        unfit.reasons.push(match name.as_str() {
            "pods" => Reason::TooManyPods { most: total },
            _ => Reason::Insufficient { resource: name, needs: wanted, free, total },
        });
    }
    (!unfit.reasons.is_empty()).then_some(unfit)
}
