//! Where Pods may run: class < runtime < selector < component; affinities are ANDed.

use std::collections::BTreeMap;

use apimachinery::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::demand::ComponentDemand;
use crate::inventory::{self, TOLERANCE};
use crate::reason::Warning;
use crate::supply::{Class, RuntimeComponent};

/// Node selector and affinity of a component's Pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    pub node_selector: BTreeMap<String, String>,
    pub affinity: Option<Value>,
    pub warnings: Vec<Warning>,
}

impl Placement {
    /// Would a node with these labels be allowed?
    #[must_use]
    pub fn accepts(&self, labels: &BTreeMap<String, String>) -> bool {
        let terms = self.affinity.as_ref().map(required_terms).unwrap_or_default();
        let within = terms.is_empty() || terms.iter().any(|term| inventory::term_matches(term, labels));
        within && inventory::has_all(labels, &self.node_selector)
    }
}

/// Merges all layers. A later layer that overrides a key says so (`NodeSelectorOverridden`).
#[must_use]
pub fn merge(class: &Class, runtime: &RuntimeComponent, component: &ComponentDemand) -> Placement {
    let (node_selector, class_terms) = of_class(class);
    let mut placement = Placement { node_selector, ..Placement::default() };
    overlay(&mut placement, &runtime.node_selector, "the runtime");
    overlay(&mut placement, &component.selector.node_selector, "acceleratorSelector.nodeSelector");
    overlay(&mut placement, &component.node_selector, "the service");
    let of_class = (!class_terms.is_empty()).then(|| required(&class_terms));
    let affinities = [of_class.as_ref(), runtime.affinity.as_ref(), component.affinity.as_ref()];
    placement.affinity = affinities.into_iter().flatten().fold(None, |merged, affinity| Some(and(merged, affinity)));
    placement
}

fn overlay(placement: &mut Placement, layer: &BTreeMap<String, String>, who: &str) {
    for (key, value) in layer {
        let before = placement.node_selector.insert(key.clone(), value.clone());
        if let Some(before) = before.filter(|before| before != value) {
            let message = format!("nodeSelector {key}: {before} → {value} ({who} wins)");
            placement.warnings.push(Warning::new("NodeSelectorOverridden", message));
        }
    }
}

/// With a selector only the Pod gets a nodeSelector (Story 4); with terms one affinity of ORed terms.
fn of_class(class: &Class) -> (BTreeMap<String, String>, Vec<Value>) {
    let discovery = &class.discovery;
    if discovery.terms.is_empty() {
        return (discovery.node_selector.clone(), Vec::new());
    }
    let mut terms: Vec<Value> = Vec::new();
    if !discovery.node_selector.is_empty() {
        let equals =
            discovery.node_selector.iter().map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
        terms.push(json!({"matchExpressions": equals.collect::<Vec<_>>()}));
    }
    terms.extend(discovery.terms.iter().map(schedulable_term));
    (BTreeMap::new(), terms)
}

/// Writes `Gte`, `Lte` and quantities as the integer `Gt` and `Lt` that schedulers know, in the label's own unit.
fn schedulable_term(term: &Value) -> Value {
    let mut term = term.clone();
    let expressions = term.get_mut("matchExpressions").and_then(Value::as_array_mut);
    for expression in expressions.into_iter().flatten() {
        if let Some(written) = as_integer_bound(expression) {
            *expression = written;
        }
    }
    term
}

fn as_integer_bound(expression: &Value) -> Option<Value> {
    let key = expression["key"].as_str()?;
    let value = &expression["values"][0];
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (exact, low, high) = bounds(key, &text)?;
    let (operator, bound) = match expression["operator"].as_str()? {
        "Gte" => ("Gt", low - 1),
        "Gt" => ("Gt", if exact { low } else { high }),
        "Lte" => ("Lt", high + 1),
        "Lt" => ("Lt", low),
        _ => return None,
    };
    Some(json!({"key": key, "operator": operator, "values": [bound.to_string()]}))
}

/// Least and greatest label value that count as equal to `text`; a plain integer only itself.
fn bounds(key: &str, text: &str) -> Option<(bool, i64, i64)> {
    if let Ok(exact) = text.parse::<i64>() {
        return Some((true, exact, exact));
    }
    let value = text.parse::<Quantity>().ok()?.as_f64() / inventory::label_unit(key);
    Some((false, (value * (1.0 - TOLERANCE)).ceil() as i64, (value * (1.0 + TOLERANCE)).floor() as i64))
}

fn required(terms: &[Value]) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn required_terms(affinity: &Value) -> Vec<Value> {
    let terms = affinity.pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    terms.and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Both hold: required node terms are multiplied out, every other list is concatenated.
fn and(merged: Option<Value>, affinity: &Value) -> Value {
    let Some(merged) = merged else { return affinity.clone() };
    let (ours, theirs) = (required_terms(&merged), required_terms(affinity));
    let mut joined = concatenated(merged, affinity);
    if !ours.is_empty() && !theirs.is_empty() {
        let product = ours.iter().flat_map(|one| theirs.iter().map(|other| both(one, other))).collect::<Vec<_>>();
        joined["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": product});
    }
    joined
}

/// One term with the expressions and fields of two.
fn both(one: &Value, other: &Value) -> Value {
    concatenated(one.clone(), other)
}

fn concatenated(one: Value, other: &Value) -> Value {
    match (one, other) {
        (Value::Object(mut fields), Value::Object(more)) => {
            for (name, value) in more {
                let joined = match fields.remove(name) {
                    Some(known) => concatenated(known, value),
                    None => value.clone(),
                };
                fields.insert(name.clone(), joined);
            }
            Value::Object(Map::from_iter(fields))
        }
        (Value::Array(mut items), Value::Array(more)) => {
            items.extend(more.iter().cloned());
            Value::Array(items)
        }
        (_, other) => other.clone(),
    }
}
