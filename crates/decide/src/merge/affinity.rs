//! Combines affinities with AND: required node selector terms are multiplied out, and all other lists are concatenated.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// Maximum number of merged required terms; more would slow down the scheduler.
pub(crate) const MAX_TERMS: usize = 512;

/// The conjunction of several affinities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedAffinity {
    /// Lists of `NodeSelectorTerm`s; at least one term of each list must match.
    pub required: Vec<Vec<Value>>,
    /// All other fields, concatenated; null if there are none.
    other_fields: Value,
}

/// The merged required terms exceed the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node affinities of class, runtime and service multiply to {terms} terms; the maximum is {MAX_TERMS}")]
pub struct TooManyTerms {
    /// Number of merged terms.
    pub terms: usize,
}

/// Returns the required node selector terms of an affinity; `None` if it has none.
pub(crate) fn required_terms(affinity: &Value) -> Option<&[Value]> {
    // Avoids `Value::pointer`, which parses its path on each call, because this runs for every node.
    let node = affinity.get("nodeAffinity")?.get("requiredDuringSchedulingIgnoredDuringExecution")?;
    node.get("nodeSelectorTerms")?.as_array().map(Vec::as_slice).filter(|terms| !terms.is_empty())
}

// === impl MergedAffinity ===

impl MergedAffinity {
    /// Adds an affinity that must match in addition to the existing ones.
    pub fn add(&mut self, affinity: &Value) {
        let mut rest = affinity.clone();
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
            self.other_fields = concatenate(std::mem::take(&mut self.other_fields), &rest);
        }
    }

    /// Adds required terms; in addition to the existing ones, at least one of them must match.
    pub fn add_terms(&mut self, mut terms: Vec<Value>) {
        if terms.is_empty() {
            return;
        }
        // Empty terms are dropped: they match no node, but combined with another term they would match that term's
        // nodes.
        if terms.iter().any(|term| !is_empty(term)) {
            terms.retain(|term| !is_empty(term));
        }
        if !self.required.contains(&terms) {
            self.required.push(terms);
        }
    }

    /// Returns the affinity for a Pod; `None` if it is empty.
    ///
    /// # Errors
    /// The required terms multiply to more than the maximum.
    pub fn to_pod_affinity(&self) -> Result<Option<Value>, TooManyTerms> {
        let mut affinity = self.other_fields.clone();
        let count = self.required.iter().fold(1_usize, |product, terms| product.saturating_mul(terms.len()));
        let multiply =
            |product, terms: &Vec<Value>| multiply_terms(product, terms).ok_or(TooManyTerms { terms: count });
        let terms = self.required.iter().try_fold(Vec::new(), multiply)?;
        if !terms.is_empty() {
            affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": terms});
        }
        Ok(Some(affinity).filter(|affinity| !affinity.is_null()))
    }
}

/// Multiplies terms: `(a or b) and (c or d)` = `ac or ad or bc or bd`, without terms that another one implies. Returns `None`
/// beyond [`MAX_TERMS`].
fn multiply_terms(product: Vec<Value>, terms: &[Value]) -> Option<Vec<Value>> {
    if product.is_empty() {
        return Some(terms.to_vec());
    }
    let count = product.len().saturating_mul(terms.len());
    if count > MAX_TERMS {
        return None;
    }
    let combined = product.iter().flat_map(|a| terms.iter().map(|b| combine_terms(a, b))).collect();
    Some(without_implied_terms(combined))
}

/// Whether the term has no expressions and no fields.
fn is_empty(term: &Value) -> bool {
    ["matchExpressions", "matchFields"].iter().all(|list| term[*list].as_array().is_none_or(Vec::is_empty))
}

/// Returns a term with the expressions and fields of both. An empty term matches nothing, so a
/// combination with it matches nothing either.
fn combine_terms(a: &Value, b: &Value) -> Value {
    if is_empty(a) || is_empty(b) {
        return json!({});
    }
    let mut term = a.clone();
    for list in ["matchExpressions", "matchFields"] {
        for expression in b[list].as_array().into_iter().flatten() {
            match term.get_mut(list).and_then(Value::as_array_mut) {
                Some(known) if known.contains(expression) => {}
                Some(known) => known.push(expression.clone()),
                None => term[list] = json!([expression]),
            }
        }
    }
    term
}

/// Removes terms that imply another term, because the weaker term already matches their nodes.
fn without_implied_terms(terms: Vec<Value>) -> Vec<Value> {
    let condition_sets: Vec<BTreeSet<String>> = terms.iter().map(conditions).collect();
    let is_redundant = |index: usize| {
        condition_sets.iter().enumerate().any(|(other, set)| {
            let is_weaker = set.is_subset(&condition_sets[index]) && other != index;
            // The first of several equal terms is retained.
            is_weaker && (set.len() < condition_sets[index].len() || other < index)
        })
    };
    let retained: Vec<bool> = (0..terms.len()).map(|index| !is_redundant(index)).collect();
    terms.into_iter().zip(retained).filter_map(|(term, retained)| retained.then_some(term)).collect()
}

fn conditions(term: &Value) -> BTreeSet<String> {
    let conditions_in = |list: &'static str| {
        term[list].as_array().into_iter().flatten().map(move |expression| format!("{list}{expression}"))
    };
    conditions_in("matchExpressions").chain(conditions_in("matchFields")).collect()
}

/// Merges maps by key and concatenates lists without duplicates.
fn concatenate(lower: Value, upper: &Value) -> Value {
    match (lower, upper) {
        (Value::Null, upper) => upper.clone(),
        (Value::Object(mut fields), Value::Object(more)) => {
            for (name, value) in more {
                let lower = fields.remove(name).unwrap_or_default();
                fields.insert(name.clone(), concatenate(lower, value));
            }
            Value::Object(fields)
        }
        (Value::Array(mut items), Value::Array(more)) => {
            let new: Vec<Value> = more.iter().filter(|item| !items.contains(item)).cloned().collect();
            items.extend(new);
            Value::Array(items)
        }
        (_, upper) => upper.clone(),
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

    fn required_affinity(keys: &[&str]) -> Value {
        let terms: Vec<Value> = keys.iter().map(|key| term(key)).collect();
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    }

    fn keys(affinity: &Value) -> Vec<String> {
        let terms = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let key = |expression: &Value| expression["key"].as_str().unwrap().to_owned();
        let keys = |term: &Value| term["matchExpressions"].as_array().unwrap().iter().map(key).collect::<String>();
        terms.as_array().unwrap().iter().map(keys).collect()
    }

    fn merge(affinities: &[Value]) -> MergedAffinity {
        let mut merged = MergedAffinity::default();
        affinities.iter().for_each(|affinity| merged.add(affinity));
        merged
    }

    // spec: ACC-89
    #[test]
    fn multiplies_required_terms() {
        let merged = merge(&[required_affinity(&["a", "b"]), required_affinity(&["x", "y", "z"])])
            .to_pod_affinity()
            .unwrap()
            .unwrap();
        assert_eq!(keys(&merged), ["ax", "ay", "az", "bx", "by", "bz"]);
    }

    #[test]
    fn merging_is_idempotent() {
        let layers = [required_affinity(&["a", "b"]), required_affinity(&["x", "y", "z"])];
        let once = merge(&layers).to_pod_affinity().unwrap().unwrap();
        let twice = merge(&[once.clone(), layers[0].clone(), layers[1].clone()]).to_pod_affinity().unwrap().unwrap();
        assert_eq!(once, twice);
    }

    #[test]
    fn concatenates_other_lists() {
        let preferred_anti_affinity = |weight: i32| json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight}]}});
        let merged = merge(&[
            preferred_anti_affinity(1),
            required_affinity(&["a"]),
            preferred_anti_affinity(2),
            preferred_anti_affinity(1),
        ])
        .to_pod_affinity()
        .unwrap()
        .unwrap();
        let weights = &merged["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(weights, &json!([{"weight": 1}, {"weight": 2}]));
        assert_eq!(keys(&merged), ["a"]);
    }

    #[test]
    fn rejects_too_many_terms() {
        let first_keys: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
        let second_keys: Vec<String> = (0..100).map(|n| format!("l{n}")).collect();
        let requires_keys = |keys: &[String]| required_affinity(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(
            merge(&[requires_keys(&first_keys), requires_keys(&second_keys)]).to_pod_affinity(),
            Err(TooManyTerms { terms: 10_000 })
        );
        // The error counts the terms of all layers, even if the first two already exceed the maximum.
        let layers = [
            requires_keys(&first_keys[..1]),
            requires_keys(&first_keys),
            requires_keys(&second_keys[..50]),
            requires_keys(&second_keys),
        ];
        assert_eq!(merge(&layers).to_pod_affinity(), Err(TooManyTerms { terms: 500_000 }));
    }

    fn any_term() -> impl Strategy<Value = Value> {
        let values = prop::sample::subsequence(vec!["0", "1", "2"], 1..=2);
        let expression = (prop::sample::select(vec!["a", "b", "c"]), prop::option::of(values));
        let expression = expression.prop_map(|(key, values)| match values {
            Some(values) => json!({"key": key, "operator": "In", "values": values}),
            None => json!({"key": key, "operator": "Exists"}),
        });
        prop::collection::vec(expression, 0..3).prop_map(|expressions| json!({"matchExpressions": expressions}))
    }

    /// Required terms and a preferred anti-affinity.
    fn any_affinity() -> impl Strategy<Value = Value> {
        (prop::collection::vec(any_term(), 0..4), 0..3i32).prop_map(|(terms, weight)| {
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
        fn merged_affinity_accepts_nodes_that_all_layers_accept(
            layers in prop::collection::vec(any_affinity(), 0..4),
            labels in prop::collection::btree_map("[abc]", "[012]", 0..4),
        ) {
            let merged = merge(&layers).to_pod_affinity().unwrap().unwrap_or_default();
            let expected = layers.iter().all(|layer| accepts(layer, &labels));
            prop_assert_eq!(accepts(&merged, &labels), expected, "{}", merged);
        }

        #[test]
        fn merging_the_result_again_changes_nothing(layers in prop::collection::vec(any_affinity(), 0..4)) {
            let once = merge(&layers).to_pod_affinity().unwrap();
            let twice = once.clone().into_iter().chain(layers).collect::<Vec<_>>();
            prop_assert_eq!(merge(&twice).to_pod_affinity().unwrap(), once);
        }

        #[test]
        fn preferences_of_every_layer_are_retained(layers in prop::collection::vec(any_affinity(), 0..4)) {
            let merged = merge(&layers).to_pod_affinity().unwrap().unwrap_or_default();
            let preferences = |affinity: &Value| {
                let list = "/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution";
                affinity.pointer(list).and_then(Value::as_array).cloned().unwrap_or_default()
            };
            for preference in layers.iter().flat_map(preferences) {
                let count = preferences(&merged).iter().filter(|other| **other == preference).count();
                prop_assert_eq!(count, 1, "{}", preference);
            }
        }
    }
}
