//! `PodAffinityTerm`s: which Pods a term selects, and its topology key.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::{LabelSelector, Requirement, SelectorOperator, object};
use serde_json::Value;

use super::snapshot::select_namespaces;

/// The kind of an affinity term: `podAffinity` or `podAntiAffinity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AffinityKind {
    Affinity,
    AntiAffinity,
}

/// One `PodAffinityTerm` of a Pod.
#[derive(Debug, Clone)]
pub(super) struct AffinityTerm {
    /// `topologyKey`: the node label whose value is the topology domain.
    pub(super) topology_key: String,
    /// `None` selects no Pod.
    selector: Option<LabelSelector>,
    namespaces: NamespaceSet,
}

/// The namespaces in which a term selects Pods.
#[derive(Debug, Clone)]
enum NamespaceSet {
    /// The term has an empty `namespaceSelector`.
    All,
    /// The listed and the selected namespaces, or that of the Pod itself.
    Named(BTreeSet<String>),
}

/// Returns the affinity terms in `requiredDuringSchedulingIgnoredDuringExecution`.
pub(super) fn required_terms(pod: &Value, kind: AffinityKind, namespaces: &[Arc<Value>]) -> Vec<AffinityTerm> {
    let terms = term_list(pod, kind, "requiredDuringSchedulingIgnoredDuringExecution");
    terms.map(|term| AffinityTerm::new(term, pod, namespaces)).collect()
}

/// Returns the affinity terms in `preferredDuringSchedulingIgnoredDuringExecution`, each with its weight.
pub(super) fn preferred_terms(pod: &Value, kind: AffinityKind, namespaces: &[Arc<Value>]) -> Vec<(i64, AffinityTerm)> {
    let terms = term_list(pod, kind, "preferredDuringSchedulingIgnoredDuringExecution");
    let weighted = terms.filter_map(|entry| Some((entry.get("weight")?.as_i64()?, entry.get("podAffinityTerm")?)));
    weighted.map(|(weight, term)| (weight, AffinityTerm::new(term, pod, namespaces))).collect()
}

fn term_list<'a>(pod: &'a Value, kind: AffinityKind, field: &str) -> impl Iterator<Item = &'a Value> {
    let affinity_field = match kind {
        AffinityKind::Affinity => "podAffinity",
        AffinityKind::AntiAffinity => "podAntiAffinity",
    };
    let terms = pod.pointer("/spec/affinity").and_then(|affinity| affinity.get(affinity_field)?.get(field)?.as_array());
    terms.into_iter().flatten()
}

/// Returns the `labelSelector` of an affinity term or topology spread constraint. For each key in `matchLabelKeys` and
/// `mismatchLabelKeys`, it adds a requirement with the Pod's value of that label. Returns `None` when the selector is
/// absent or invalid. If the API server has already merged the keys into the selector, the requirements are duplicated,
/// which does not change the result.
pub(super) fn label_selector(owner: &Value, pod: &Value) -> Option<LabelSelector> {
    let declared_selector = owner.get("labelSelector").filter(|label_selector| !label_selector.is_null())?;
    let mut label_selector = LabelSelector::from_json(declared_selector).ok()?;
    let mut merge = |field: &str, operator: fn(Vec<String>) -> SelectorOperator| {
        for key in object::strings(owner.get(field)) {
            if let Some(value) = object::label(pod, key) {
                let operator = operator(vec![value.to_owned()]);
                label_selector.requirements.push(Requirement { key: key.to_owned(), operator });
            }
        }
    };
    merge("matchLabelKeys", SelectorOperator::In);
    merge("mismatchLabelKeys", SelectorOperator::NotIn);
    Some(label_selector)
}

// === impl AffinityTerm ===

impl AffinityTerm {
    fn new(term: &Value, pod: &Value, namespaces: &[Arc<Value>]) -> Self {
        let topology_key = object::text(term, "/topologyKey").to_owned();
        Self {
            topology_key,
            selector: label_selector(term, pod),
            namespaces: NamespaceSet::from_term(term, pod, namespaces),
        }
    }

    /// Whether the term selects this Pod.
    pub(super) fn matches(&self, pod: &Value) -> bool {
        self.namespaces.contains(object::namespace(pod))
            && self.selector.as_ref().is_some_and(|selector| selector.matches_object(pod))
    }
}

// === impl NamespaceSet ===

impl NamespaceSet {
    /// Creates a term. It applies to the namespaces in `namespaces` and those that `namespaceSelector` selects, or to
    /// the Pod's own namespace if neither is set.
    fn from_term(term: &Value, pod: &Value, all: &[Arc<Value>]) -> Self {
        let mut names: BTreeSet<String> =
            object::strings(term.get("namespaces")).into_iter().map(str::to_owned).collect();
        match term.get("namespaceSelector").filter(|selector| !selector.is_null()).map(LabelSelector::from_json) {
            Some(Ok(selector)) if selector.is_empty() => return Self::All,
            Some(Ok(selector)) => names.extend(select_namespaces(all, &selector)),
            Some(Err(_)) => {}
            None if names.is_empty() => {
                names.insert(object::namespace(pod).to_owned());
            }
            None => {}
        }
        Self::Named(names)
    }

    fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(namespace),
        }
    }
}
