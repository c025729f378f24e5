//! Affinities hold together: required node terms are multiplied out, every other list is concatenated.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// More required node terms than this are no placement that a person wrote, and cost schedulers dearly.
pub const MAX_TERMS: usize = 512;

/// Several affinities, all of which hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedAffinity {
    /// Each a list of `NodeSelectorTerm`s of which one must hold.
    pub required: Vec<Vec<Value>>,
    /// Everything else, concatenated; null if there is nothing.
    rest: Value,
}

/// The required node terms of an affinity, of which one must hold; `None` if it requires nothing of nodes.
pub(crate) fn required(affinity: &Value) -> Option<&[Value]> {
    // Asked for every node: `pointer` would take its path apart each time.
    let node = affinity.get("nodeAffinity")?.get("requiredDuringSchedulingIgnoredDuringExecution")?;
    node.get("nodeSelectorTerms")?.as_array().map(Vec::as_slice).filter(|terms| !terms.is_empty())
}

/// The multiplied terms are too many to be written into a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "node affinities of class, runtime and service multiply to {terms} terms; at most {MAX_TERMS} are written to Pods"
)]
pub struct TooManyTerms {
    pub terms: usize,
}

impl MergedAffinity {
    /// This and `other` hold.
    pub fn add(&mut self, other: &Value) {
        let mut rest = other.clone();
        let terms = rest.pointer_mut("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
        if let Some(terms) =
            terms.and_then(|terms| terms.as_array_mut()).map(std::mem::take).filter(|terms| !terms.is_empty())
        {
            self.add_terms(terms);
        }
        if let Some(node) = rest.get_mut("nodeAffinity").and_then(Value::as_object_mut) {
            node.remove("requiredDuringSchedulingIgnoredDuringExecution");
            if node.is_empty() {
                rest.as_object_mut().map(|rest| rest.remove("nodeAffinity"));
            }
        }
        if rest.as_object().is_some_and(|rest| !rest.is_empty()) {
            self.rest = concatenated(std::mem::take(&mut self.rest), &rest);
        }
    }

    /// One of `terms` must hold as well.
    pub fn add_terms(&mut self, mut terms: Vec<Value>) {
        if terms.is_empty() {
            return;
        }
        // An empty term matches no node, in Kubernetes as here; multiplied with another it would match that one's.
        if terms.iter().any(|term| !is_empty(term)) {
            terms.retain(|term| !is_empty(term));
        }
        if !self.required.contains(&terms) {
            self.required.push(terms);
        }
    }

    /// As a Pod carries it; `None` if nothing is asked.
    ///
    /// # Errors
    /// The product of the terms is out of all proportion.
    pub fn to_pod_affinity(&self) -> Result<Option<Value>, TooManyTerms> {
        let mut affinity = self.rest.clone();
        let all = self.required.iter().fold(1_usize, |product, terms| product.saturating_mul(terms.len()));
        let product = |product, terms: &Vec<Value>| multiplied(product, terms).ok_or(TooManyTerms { terms: all });
        let terms = self.required.iter().try_fold(Vec::new(), product)?;
        if !terms.is_empty() {
            affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": terms});
        }
        Ok(Some(affinity).filter(|affinity| !affinity.is_null()))
    }
}

/// `(a or b) and (c or d)` = `ac or ad or bc or bd`. A term that another one already implies is left out. `None` beyond
/// [`MOST_TERMS`].
fn multiplied(product: Vec<Value>, terms: &[Value]) -> Option<Vec<Value>> {
    if product.is_empty() {
        return Some(terms.to_vec());
    }
    let count = product.len().saturating_mul(terms.len());
    if count > MAX_TERMS {
        return None;
    }
    let all: Vec<Value> = product.iter().flat_map(|one| terms.iter().map(|other| both(one, other))).collect();
    Some(without_implied(all))
}

/// Whether the term says nothing.
fn is_empty(term: &Value) -> bool {
    ["matchExpressions", "matchFields"].iter().all(|list| term[*list].as_array().is_none_or(Vec::is_empty))
}

/// One term with the expressions and fields of two, each once; one that matches nothing stays so.
fn both(one: &Value, other: &Value) -> Value {
    if is_empty(one) || is_empty(other) {
        return json!({});
    }
    let mut term = one.clone();
    for list in ["matchExpressions", "matchFields"] {
        for expression in other[list].as_array().into_iter().flatten() {
            match term.get_mut(list).and_then(Value::as_array_mut) {
                Some(known) if known.contains(expression) => {}
                Some(known) => known.push(expression.clone()),
                None => term[list] = json!([expression]),
            }
        }
    }
    term
}

fn without_implied(terms: Vec<Value>) -> Vec<Value> {
    let sets: Vec<BTreeSet<String>> = terms.iter().map(conditions).collect();
    let implied = |at: usize| {
        sets.iter().enumerate().any(|(other, set)| {
            let weaker = set.is_subset(&sets[at]) && other != at;
            // Of two equal ones the first stays.
            weaker && (set.len() < sets[at].len() || other < at)
        })
    };
    let kept: Vec<bool> = (0..terms.len()).map(|at| !implied(at)).collect();
    terms.into_iter().zip(kept).filter_map(|(term, kept)| kept.then_some(term)).collect()
}

fn conditions(term: &Value) -> BTreeSet<String> {
    let of = |list: &'static str| {
        term[list].as_array().into_iter().flatten().map(move |expression| format!("{list}{expression}"))
    };
    of("matchExpressions").chain(of("matchFields")).collect()
}

/// Maps by key, lists one after the other without what is there already.
fn concatenated(one: Value, other: &Value) -> Value {
    match (one, other) {
        (Value::Null, other) => other.clone(),
        (Value::Object(mut fields), Value::Object(more)) => {
            for (name, value) in more {
                let known = fields.remove(name).unwrap_or_default();
                fields.insert(name.clone(), concatenated(known, value));
            }
            Value::Object(fields)
        }
        (Value::Array(mut items), Value::Array(more)) => {
            let new: Vec<Value> = more.iter().filter(|item| !items.contains(item)).cloned().collect();
            items.extend(new);
            Value::Array(items)
        }
        (_, other) => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::nodes::term_matches;

    fn term(key: &str) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": "Exists"}]})
    }

    fn required(keys: &[&str]) -> Value {
        let terms: Vec<Value> = keys.iter().map(|key| term(key)).collect();
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    }

    fn keys(written: &Value) -> Vec<String> {
        let terms = &written["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let key = |expression: &Value| expression["key"].as_str().unwrap().to_owned();
        let of = |term: &Value| term["matchExpressions"].as_array().unwrap().iter().map(key).collect::<String>();
        terms.as_array().unwrap().iter().map(of).collect()
    }

    fn all(affinities: &[Value]) -> MergedAffinity {
        let mut merged = MergedAffinity::default();
        affinities.iter().for_each(|affinity| merged.add(affinity));
        merged
    }

    // spec: ACC-89
    #[test]
    fn two_terms_and_three_are_six() {
        let written = all(&[required(&["a", "b"]), required(&["x", "y", "z"])]).to_pod_affinity().unwrap().unwrap();
        assert_eq!(keys(&written), ["ax", "ay", "az", "bx", "by", "bz"]);
    }

    #[test]
    fn merging_twice_is_merging_once() {
        let layers = [required(&["a", "b"]), required(&["x", "y", "z"])];
        let once = all(&layers).to_pod_affinity().unwrap().unwrap();
        let twice = all(&[once.clone(), layers[0].clone(), layers[1].clone()]).to_pod_affinity().unwrap().unwrap();
        assert_eq!(once, twice);
    }

    #[test]
    fn other_lists_are_concatenated() {
        let prefer = |weight: i32| json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight}]}});
        let written = all(&[prefer(1), required(&["a"]), prefer(2), prefer(1)]).to_pod_affinity().unwrap().unwrap();
        let weights = &written["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(weights, &json!([{"weight": 1}, {"weight": 2}]));
        assert_eq!(keys(&written), ["a"]);
    }

    #[test]
    fn a_product_out_of_proportion_is_refused() {
        let many: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
        let other: Vec<String> = (0..100).map(|n| format!("l{n}")).collect();
        let names = |many: &[String]| required(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(all(&[names(&many), names(&other)]).to_pod_affinity(), Err(TooManyTerms { terms: 10_000 }));
        // The first two are too many already; what is told is what all of them come to.
        let layers = [names(&many[..1]), names(&many), names(&other[..50]), names(&other)];
        assert_eq!(all(&layers).to_pod_affinity(), Err(TooManyTerms { terms: 500_000 }));
    }

    fn some_term() -> impl Strategy<Value = Value> {
        let values = prop::sample::subsequence(vec!["0", "1", "2"], 1..=2);
        let expression = (prop::sample::select(vec!["a", "b", "c"]), prop::option::of(values));
        let expression = expression.prop_map(|(key, values)| match values {
            Some(values) => json!({"key": key, "operator": "In", "values": values}),
            None => json!({"key": key, "operator": "Exists"}),
        });
        prop::collection::vec(expression, 0..3).prop_map(|expressions| json!({"matchExpressions": expressions}))
    }

    /// What one layer asks for: required terms, and a preference that it must not lose.
    fn some_affinity() -> impl Strategy<Value = Value> {
        (prop::collection::vec(some_term(), 0..4), 0..3i32).prop_map(|(terms, weight)| {
            let mut affinity = json!({});
            if !terms.is_empty() {
                affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
                    terms.into();
            }
            if weight > 0 {
                affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                    json!([{"weight": weight}]);
            }
            affinity
        })
    }

    fn accepts(affinity: &Value, labels: &BTreeMap<String, String>) -> bool {
        let terms = affinity
            .pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms")
            .and_then(Value::as_array);
        terms.is_none_or(|terms| terms.is_empty() || terms.iter().any(|term| term_matches(term, labels)))
    }

    proptest! {
        // spec: ACC-89
        #[test]
        fn a_node_is_accepted_if_every_layer_accepts_it(
            layers in prop::collection::vec(some_affinity(), 0..4),
            labels in prop::collection::btree_map("[abc]", "[012]", 0..4),
        ) {
            let written = all(&layers).to_pod_affinity().unwrap().unwrap_or_default();
            let every = layers.iter().all(|layer| accepts(layer, &labels));
            prop_assert_eq!(accepts(&written, &labels), every, "{}", written);
        }

        #[test]
        fn what_was_merged_merges_into_itself(layers in prop::collection::vec(some_affinity(), 0..4)) {
            let once = all(&layers).to_pod_affinity().unwrap();
            let twice = once.clone().into_iter().chain(layers).collect::<Vec<_>>();
            prop_assert_eq!(all(&twice).to_pod_affinity().unwrap(), once);
        }

        #[test]
        fn no_layers_wish_is_lost(layers in prop::collection::vec(some_affinity(), 0..4)) {
            let written = all(&layers).to_pod_affinity().unwrap().unwrap_or_default();
            let wishes = |of: &Value| {
                let list = "/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution";
                of.pointer(list).and_then(Value::as_array).cloned().unwrap_or_default()
            };
            for wish in layers.iter().flat_map(wishes) {
                let times = wishes(&written).iter().filter(|other| **other == wish).count();
                prop_assert_eq!(times, 1, "{}", wish);
            }
        }
    }
}
