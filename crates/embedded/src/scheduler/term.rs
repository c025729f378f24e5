//! Terms of Pod affinity and anti-affinity: which other Pods are meant, and what counts as one place.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::selector::{LabelSelector, Operator, Requirement};
use serde_json::Value;

use super::world::selected;
use crate::object;

/// Whether Pods want to be near others or far from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Near,
    Far,
}

/// One `PodAffinityTerm` of a Pod.
#[derive(Debug, Clone)]
pub(super) struct Term {
    /// The label of nodes whose value is the place.
    pub(super) topology: String,
    /// `None` means nobody.
    selector: Option<LabelSelector>,
    namespaces: Namespaces,
}

#[derive(Debug, Clone)]
enum Namespaces {
    All,
    These(BTreeSet<String>),
}

/// What must hold. An empty list where the Pod asks for nothing.
pub(super) fn required(pod: &Value, side: Side, namespaces: &[Arc<Value>]) -> Vec<Term> {
    let terms = list(pod, side, "requiredDuringSchedulingIgnoredDuringExecution");
    terms.map(|term| Term::of(term, pod, namespaces)).collect()
}

/// What is wished for, each with its weight.
pub(super) fn preferred(pod: &Value, side: Side, namespaces: &[Arc<Value>]) -> Vec<(i64, Term)> {
    let terms = list(pod, side, "preferredDuringSchedulingIgnoredDuringExecution");
    let weighed = terms.filter_map(|wish| Some((wish.get("weight")?.as_i64()?, wish.get("podAffinityTerm")?)));
    weighed.map(|(weight, term)| (weight, Term::of(term, pod, namespaces))).collect()
}

fn list<'a>(pod: &'a Value, side: Side, field: &str) -> impl Iterator<Item = &'a Value> {
    let side = match side {
        Side::Near => "podAffinity",
        Side::Far => "podAntiAffinity",
    };
    let terms = pod.pointer("/spec/affinity").and_then(|affinity| affinity.get(side)?.get(field)?.as_array());
    terms.into_iter().flatten()
}

/// The value of a label of a node or a Pod.
pub(super) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
}

/// A label selector with what `matchLabelKeys` and `mismatchLabelKeys` add from the labels of the Pod itself; an API
/// server that has merged them already asks the same twice. `None` where the selector is absent or cannot be read.
pub(super) fn selector(holder: &Value, pod: &Value) -> Option<LabelSelector> {
    let stated = holder.get("labelSelector").filter(|selector| !selector.is_null())?;
    let mut selector = LabelSelector::from_json(stated).ok()?;
    let mut merge = |field: &str, operator: fn(Vec<String>) -> Operator| {
        for key in object::strings(holder.get(field)) {
            if let Some(value) = label(pod, key) {
                let operator = operator(vec![value.to_owned()]);
                selector.requirements.push(Requirement { key: key.to_owned(), operator });
            }
        }
    };
    merge("matchLabelKeys", Operator::In);
    merge("mismatchLabelKeys", Operator::NotIn);
    Some(selector)
}

// === impl Term ===

impl Term {
    fn of(term: &Value, pod: &Value, namespaces: &[Arc<Value>]) -> Self {
        let topology = object::text(term, "/topologyKey").to_owned();
        Self { topology, selector: selector(term, pod), namespaces: Namespaces::of(term, pod, namespaces) }
    }

    /// Whether the term means this Pod.
    pub(super) fn means(&self, other: &Value) -> bool {
        self.namespaces.contain(object::namespace(other))
            && self.selector.as_ref().is_some_and(|selector| selector.matches_object(other))
    }
}

impl Namespaces {
    /// The named and the selected; the Pod's own where the term says nothing.
    fn of(term: &Value, pod: &Value, all: &[Arc<Value>]) -> Self {
        let mut these: BTreeSet<String> =
            object::strings(term.get("namespaces")).into_iter().map(str::to_owned).collect();
        match term.get("namespaceSelector").filter(|selector| !selector.is_null()).map(LabelSelector::from_json) {
            Some(Ok(selector)) if selector.is_empty() => return Self::All,
            Some(Ok(selector)) => these.extend(selected(all, &selector)),
            Some(Err(_)) => {}
            None if these.is_empty() => {
                these.insert(object::namespace(pod).to_owned());
            }
            None => {}
        }
        Self::These(these)
    }

    fn contain(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(these) => these.contains(namespace),
        }
    }
}
