//! Pods spread evenly over places: what kube-scheduler's `PodTopologySpread` refuses.

use std::collections::BTreeMap;

use apimachinery::selector::LabelSelector;
use serde_json::Value;

use super::candidate::Candidate;
use super::reason::{Reason, Unfit};
use super::term::{label, selector};
use super::{node_affinity, taints};
use crate::object;

/// `whenUnsatisfiable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Otherwise {
    DoNotSchedule,
    ScheduleAnyway,
}

/// One of `topologySpreadConstraints`.
#[derive(Debug, Clone)]
pub(super) struct Constraint {
    pub(super) key: String,
    pub(super) max_skew: i64,
    /// With fewer places than this, the emptiest place counts as empty.
    min_domains: usize,
    /// `None` counts nobody.
    selector: Option<LabelSelector>,
    namespace: String,
    keeps_affinity: bool,
    keeps_taints: bool,
}

/// How many Pods are at every place, for one Pod that is to be placed.
#[derive(Debug, Clone)]
pub(super) struct Spread {
    constraints: Vec<(Constraint, BTreeMap<String, i64>)>,
}

/// The constraints of a Pod of one kind.
pub(super) fn constraints(pod: &Value, otherwise: Otherwise) -> Vec<Constraint> {
    let all = pod.pointer("/spec/topologySpreadConstraints").and_then(Value::as_array);
    let ours = all.into_iter().flatten().filter(|constraint| Otherwise::of(constraint) == otherwise);
    ours.map(|constraint| Constraint::of(constraint, pod)).collect()
}

/// Whether the node has every label that the constraints spread over.
pub(super) fn has_places<'a>(mut constraints: impl Iterator<Item = &'a Constraint>, node: &Value) -> bool {
    constraints.all(|constraint| label(node, &constraint.key).is_some())
}

// === impl Spread ===

impl Spread {
    pub(super) fn of(pod: &Value, candidates: &[Candidate]) -> Self {
        let constraints = constraints(pod, Otherwise::DoNotSchedule).into_iter();
        let mut spread = Self { constraints: constraints.map(|constraint| (constraint, BTreeMap::new())).collect() };
        if spread.constraints.is_empty() {
            return spread;
        }
        for candidate in candidates {
            if !spread.has_places(&candidate.node) {
                continue;
            }
            for (constraint, counts) in &mut spread.constraints {
                if let Some(place) = constraint.place(pod, &candidate.node) {
                    let here = candidate.tenants.iter().filter(|tenant| constraint.counts(tenant)).count();
                    *counts.entry(place.to_owned()).or_default() += i64::try_from(here).unwrap_or(i64::MAX);
                }
            }
        }
        spread
    }

    /// A Pod came to the node (`by` 1) or left it (-1).
    pub(super) fn count(&mut self, pod: &Value, tenant: &Value, node: &Value, by: i64) {
        if !self.has_places(node) {
            return;
        }
        for (constraint, counts) in self.constraints.iter_mut().filter(|(constraint, _)| constraint.counts(tenant)) {
            if let Some(place) = constraint.place(pod, node) {
                *counts.entry(place.to_owned()).or_default() += by;
            }
        }
    }

    pub(super) fn refuse(&self, pod: &Value, node: &Value) -> Option<Unfit> {
        self.constraints.iter().find_map(|(constraint, counts)| {
            let Some(place) = label(node, &constraint.key) else {
                return Some(Unfit::lasting(Reason::NoPlaceToSpread { key: constraint.key.clone() }));
            };
            let with = counts.get(place).copied().unwrap_or(0) + i64::from(constraint.counts(pod));
            let skew = with.saturating_sub(constraint.fewest(counts));
            let uneven = Reason::Uneven { key: constraint.key.clone(), skew, most: constraint.max_skew };
            (skew > constraint.max_skew).then(|| Unfit::curable(uneven))
        })
    }

    fn has_places(&self, node: &Value) -> bool {
        has_places(self.constraints.iter().map(|(constraint, _)| constraint), node)
    }
}

// === impl Constraint ===

impl Constraint {
    fn of(constraint: &Value, pod: &Value) -> Self {
        let number = |field: &str| constraint.get(field).and_then(Value::as_i64).unwrap_or(1);
        let keeps = |field: &str, default: &str| match object::text(constraint, field) {
            "" => default == "Honor",
            policy => policy == "Honor",
        };
        Self {
            key: object::text(constraint, "/topologyKey").to_owned(),
            max_skew: number("maxSkew"),
            min_domains: usize::try_from(number("minDomains")).unwrap_or(1),
            // kube-scheduler counts nobody by an empty selector.
            selector: selector(constraint, pod).filter(|selector| !selector.is_empty()),
            namespace: object::namespace(pod).to_owned(),
            keeps_affinity: keeps("/nodeAffinityPolicy", "Honor"),
            keeps_taints: keeps("/nodeTaintsPolicy", "Ignore"),
        }
    }

    /// Whether the Pod is one of those that are spread. Who is about to leave is not.
    pub(super) fn counts(&self, pod: &Value) -> bool {
        object::namespace(pod) == self.namespace
            && !object::is_deleting(pod)
            && self.selector.as_ref().is_some_and(|selector| selector.matches_object(pod))
    }

    /// The place of a node, where the Pod could be by its affinity and tolerations as far as the constraint keeps to them.
    pub(super) fn place<'a>(&self, pod: &Value, node: &'a Value) -> Option<&'a str> {
        let counts = (!self.keeps_affinity || node_affinity::not_selected(pod, node).is_none())
            && (!self.keeps_taints || taints::tainted(pod, node).is_none());
        label(node, &self.key).filter(|_| counts)
    }

    /// Pods at the emptiest place.
    fn fewest(&self, counts: &BTreeMap<String, i64>) -> i64 {
        match counts.len() < self.min_domains {
            true => 0,
            false => counts.values().min().copied().unwrap_or(i64::MAX),
        }
    }
}

impl Otherwise {
    fn of(constraint: &Value) -> Self {
        match object::text(constraint, "/whenUnsatisfiable") {
            "ScheduleAnyway" => Self::ScheduleAnyway,
            _ => Self::DoNotSchedule,
        }
    }
}
