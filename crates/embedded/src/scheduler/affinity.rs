//! Pods that must be near others, or far from them: what kube-scheduler's `InterPodAffinity` refuses.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::candidate::Candidate;
use super::reason::{Reason, Unfit};
use super::term::{Side, Term, label, required};

/// Pods by place: the label of the node and its value.
type Counts = BTreeMap<(String, String), i64>;

/// How the Pods that are there bear on one that is to be placed.
#[derive(Debug, Clone)]
pub(super) struct Affinity {
    near: Vec<Term>,
    far: Vec<Term>,
    /// The first of a group that wants to be together: it satisfies its own terms.
    is_own_kind: bool,
    /// Pods that all terms of `near` mean, by the places of the terms.
    wanted: Counts,
    /// Pods that a term of `far` means.
    unwanted: Counts,
    /// Pods that do not want this one, by the places of their terms.
    unwilling: Counts,
}

impl Affinity {
    pub(super) fn of(pod: &Value, candidates: &[Candidate], namespaces: &[Arc<Value>]) -> Self {
        let (near, far) = (required(pod, Side::Near, namespaces), required(pod, Side::Far, namespaces));
        let is_own_kind = near.iter().all(|term| term.means(pod));
        let [wanted, unwanted, unwilling] = [const { Counts::new() }; 3];
        let mut affinity = Self { near, far, is_own_kind, wanted, unwanted, unwilling };
        let asks = !affinity.near.is_empty() || !affinity.far.is_empty();
        for candidate in candidates {
            for tenant in if asks { &candidate.tenants } else { &candidate.particular } {
                affinity.count(pod, tenant, &candidate.node, 1, namespaces);
            }
        }
        affinity
    }

    /// A Pod came to the node (`by` 1) or left it (-1).
    pub(super) fn count(&mut self, pod: &Value, tenant: &Value, node: &Value, by: i64, namespaces: &[Arc<Value>]) {
        if !self.near.is_empty() && self.near.iter().all(|term| term.means(tenant)) {
            self.near.iter().for_each(|term| note(&mut self.wanted, term, node, by));
        }
        for term in self.far.iter().filter(|term| term.means(tenant)) {
            note(&mut self.unwanted, term, node, by);
        }
        for term in required(tenant, Side::Far, namespaces).iter().filter(|term| term.means(pod)) {
            note(&mut self.unwilling, term, node, by);
        }
    }

    pub(super) fn refuse(&self, node: &Value) -> Option<Unfit> {
        if !self.is_near(node) {
            return Some(Unfit::lasting(Reason::NotNear));
        }
        let has = |counts: &Counts, term: &Term| place(term, node).is_some_and(|place| counts.contains_key(&place));
        if self.far.iter().any(|term| has(&self.unwanted, term)) {
            return Some(Unfit::curable(Reason::NotFar));
        }
        let unwilling = self.unwilling.keys().any(|(key, value)| label(node, key) == Some(value));
        unwilling.then(|| Unfit::curable(Reason::OthersStayFar))
    }

    fn is_near(&self, node: &Value) -> bool {
        let mut everywhere = true;
        for term in &self.near {
            let Some(place) = place(term, node) else { return false };
            everywhere &= self.wanted.contains_key(&place);
        }
        everywhere || self.wanted.is_empty() && self.is_own_kind
    }
}

fn place(term: &Term, node: &Value) -> Option<(String, String)> {
    Some((term.topology.clone(), label(node, &term.topology)?.to_owned()))
}

/// Nobody at a place is no entry.
fn note(counts: &mut Counts, term: &Term, node: &Value, by: i64) {
    let Some(place) = place(term, node) else { return };
    let count = counts.entry(place.clone()).or_default();
    *count += by;
    if *count == 0 {
        counts.remove(&place);
    }
}
