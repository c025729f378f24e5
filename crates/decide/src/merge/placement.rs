//! Where Pods may run: class < runtime < selector < component; affinities are ANDed.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::Quantity;
use serde_json::{Value, json};

use super::affinity::{self, MergedAffinity};
use super::origin::{Origin, Setting};
use crate::code;
use crate::demand::ComponentDemand;
use crate::nodes::{self, ClassNode, Discovery, MEMORY_TOLERANCE};
use crate::reason::Warning;
use crate::supply::{Class, RuntimeComponent};

/// Node selector and affinity of a component's Pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    pub node_selector: BTreeMap<String, String>,
    pub affinity: MergedAffinity,
    /// One per key of the selector, in its order; then one per affinity, all of which hold.
    pub settings: Vec<Setting>,
    pub warnings: Vec<Warning>,
}

impl Placement {
    /// Would the node of this name with these labels be allowed?
    #[must_use]
    pub fn accepts(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let within = |terms: &Vec<Value>| terms.iter().any(|term| nodes::term_matches_node(term, name, labels));
        nodes::labels_match_selector(labels, &self.node_selector) && self.affinity.required.iter().all(within)
    }
}

/// What a class itself says of where its Pods may run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassPlacement {
    pub node_selector: BTreeMap<String, String>,
    /// `NodeSelectorTerm`s of which one must hold; empty if the selector says it all.
    pub terms: Vec<Value>,
}

impl ClassPlacement {
    /// Whether the terms accept the node. One that is known by name only may be any.
    #[must_use]
    pub fn accepts(&self, node: &ClassNode) -> bool {
        let Some(labels) = &node.labels else { return true };
        self.terms.is_empty() || self.terms.iter().any(|term| nodes::term_matches_node(term, &node.name, labels))
    }
}

/// Whether nodes satisfy what [`merge`] merges, but for the class's terms; nothing is copied for it.
pub(crate) struct PlacementFilter<'a> {
    /// Strongest first: a key that a stronger layer states is not asked of a weaker one.
    selectors: [&'a BTreeMap<String, String>; 4],
    /// Lists of terms, of each of which one must hold.
    required: Vec<&'a [Value]>,
}

impl<'a> PlacementFilter<'a> {
    pub(crate) fn new(
        class: &'a ClassPlacement,
        runtime: &'a RuntimeComponent,
        component: &'a ComponentDemand,
    ) -> Self {
        let selectors =
            [&component.node_selector, &component.selector.node_selector, &runtime.node_selector, &class.node_selector];
        let required = runtime.affinities.iter().chain(&component.affinity).filter_map(affinity::required).collect();
        Self { selectors, required }
    }

    /// One that is known by name only may be any.
    pub(crate) fn accepts(&self, node: &ClassNode) -> bool {
        let Some(labels) = &node.labels else { return true };
        let within = |terms: &&[Value]| terms.iter().any(|term| nodes::term_matches_node(term, &node.name, labels));
        self.selects(labels) && self.required.iter().all(within)
    }

    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selectors.iter().enumerate().all(|(strength, layer)| {
            let stronger = self.selectors.get(..strength).unwrap_or_default();
            layer.iter().all(|(key, value)| {
                stronger.iter().any(|layer| layer.contains_key(key))
                    || labels.get(key).is_some_and(|label| nodes::label_value_matches(key, label, value))
            })
        })
    }
}

/// Merges all layers. A later layer that overrides a key says so (`NodeSelectorOverridden`).
#[must_use]
pub fn merge_placement(class: &Class, runtime: &RuntimeComponent, component: &ComponentDemand) -> Placement {
    let ClassPlacement { node_selector, terms: class_terms } = class_placement(class);
    let mut placement = Placement::default();
    let mut keys = BTreeMap::new();
    let layers = [
        (Origin::Class, &node_selector, "the class"),
        (Origin::Runtime, &runtime.node_selector, "the runtime"),
        (Origin::Service, &component.selector.node_selector, "acceleratorSelector.nodeSelector"),
        (Origin::Service, &component.node_selector, "the service"),
    ];
    for (origin, layer, who) in layers {
        overlay(&mut keys, layer, origin, who, &mut placement.warnings);
    }
    placement.node_selector = keys.iter().map(|(key, setting)| (key.clone(), setting.value.clone())).collect();
    placement.settings = keys.into_values().collect();
    placement.affinity.add_terms(class_terms.clone());
    if !class_terms.is_empty() {
        placement.settings.push(Setting::new("affinity", Value::Array(class_terms).to_string(), Origin::Class));
    }
    let of_runtime = runtime.affinities.iter().map(|affinity| (Origin::Runtime, affinity));
    for (origin, affinity) in of_runtime.chain(component.affinity.iter().map(|affinity| (Origin::Service, affinity))) {
        placement.affinity.add(affinity);
        placement.settings.push(Setting::new("affinity", affinity.to_string(), origin));
    }
    placement
}

fn overlay(
    keys: &mut BTreeMap<String, Setting>,
    layer: &BTreeMap<String, String>,
    origin: Origin,
    who: &str,
    warnings: &mut Vec<Warning>,
) {
    for (key, value) in layer {
        let Some(known) = keys.get_mut(key) else {
            keys.insert(key.clone(), Setting::new(format!("nodeSelector {key}"), value, origin));
            continue;
        };
        if known.value != *value {
            let message = format!("nodeSelector {key}: {} → {value} ({who} wins)", known.value);
            warnings.push(Warning::new(code::warning::NODE_SELECTOR_OVERRIDDEN, message));
        }
        known.override_with(value.clone(), origin);
    }
}

/// With a selector only the Pod gets a nodeSelector (Story 4); with more ways to belong one affinity of ORed terms. PCI ids
/// are written where nothing else is stated, or where a known node belongs by nothing else.
pub(crate) fn class_placement(class: &Class) -> ClassPlacement {
    let discovery = &class.discovery;
    let (equal, several) = as_nodes_spell_it(class);
    let stated = !discovery.node_selector.is_empty() || !discovery.terms.is_empty();
    let mut terms: Vec<Value> = discovery.terms.iter().map(|term| schedulable_term(class, term)).collect();
    if !stated || some_node_belongs_by_pci_alone(class) {
        terms.extend(pci_terms(&discovery.pci_vendor, &discovery.device_ids));
    }
    if terms.is_empty() && several.is_empty() {
        return ClassPlacement { node_selector: equal, terms };
    }
    if !discovery.node_selector.is_empty() {
        let one = equal.iter().map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
        let some = several.iter().map(|(key, values)| json!({"key": key, "operator": "In", "values": values}));
        terms.insert(0, json!({"matchExpressions": one.chain(some).collect::<Vec<_>>()}));
    }
    ClassPlacement { node_selector: BTreeMap::new(), terms }
}

fn some_node_belongs_by_pci_alone(class: &Class) -> bool {
    if class.discovery.pci_vendor.is_none() {
        return false;
    }
    let stated = Discovery { pci_vendor: None, ..class.discovery.clone() };
    let nodes = class.availability.iter().flat_map(|known| &known.nodes);
    nodes.filter_map(|node| Some((&node.name, node.labels.as_ref()?))).any(|(name, labels)| {
        !nodes::matches_discovery(&stated, name, labels) && nodes::matches_discovery(&class.discovery, name, labels)
    })
}

type Spellings = (BTreeMap<String, String>, BTreeMap<String, BTreeSet<String>>);

/// Product names match with and without their vendor when nodes are counted, but a scheduler compares letters: Pods get
/// the value that the class's nodes really carry, or all of them. Where no node is known, the class's own words stand.
fn as_nodes_spell_it(class: &Class) -> Spellings {
    let (mut equal, mut several) = Spellings::default();
    for (key, value) in &class.discovery.node_selector {
        let spelled: BTreeSet<&String> =
            values_on_nodes(class, key).filter(|label| nodes::label_value_matches(key, label, value)).collect();
        match (spelled.len(), spelled.first()) {
            (1, Some(only)) => drop(equal.insert(key.clone(), (*only).clone())),
            (0, _) => drop(equal.insert(key.clone(), value.clone())),
            _ => drop(several.insert(key.clone(), spelled.into_iter().cloned().collect())),
        }
    }
    (equal, several)
}

/// What the class's known nodes carry under the key.
fn values_on_nodes<'c>(class: &'c Class, key: &str) -> impl Iterator<Item = &'c String> {
    let nodes = class.availability.iter().flat_map(|known| &known.nodes);
    nodes.filter_map(move |node| node.labels.as_ref()?.get(key))
}

/// PCI classes of accelerators: display controllers, 3D controllers, processing accelerators.
const PCI_CLASSES: [&str; 3] = ["0300", "0302", "1200"];

/// Labels of node-feature-discovery, for a class that is known by its PCI ids only.
fn pci_terms(vendor: &Option<String>, devices: &[String]) -> Vec<Value> {
    let Some(vendor) = vendor.as_deref().map(str::to_ascii_lowercase) else { return Vec::new() };
    let label = |device: &String, class: &str| {
        format!("feature.node.kubernetes.io/pci-{class}_{vendor}_{}.present", device.to_ascii_lowercase())
    };
    let term = |key: String| json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]});
    devices.iter().flat_map(|device| PCI_CLASSES.map(|class| term(label(device, class)))).collect()
}

/// Writes `Gte`, `Lte` and quantities as the integer `Gt` and `Lt` that schedulers know, in the label's own unit, and
/// listed products also as the class's nodes spell them.
fn schedulable_term(class: &Class, term: &Value) -> Value {
    let mut term = term.clone();
    let expressions = term.get_mut("matchExpressions").and_then(Value::as_array_mut);
    for expression in expressions.into_iter().flatten() {
        if let Some(written) = as_integer_bound(expression) {
            *expression = written;
        } else if expression["operator"] == "In" {
            add_spellings(class, expression);
        }
    }
    term
}

fn add_spellings(class: &Class, expression: &mut Value) {
    let Some(key) = expression["key"].as_str().map(str::to_owned) else { return };
    let Some(values) = expression["values"].as_array_mut() else { return };
    let listed = values.clone();
    let meant = |label: &&String| {
        listed.iter().filter_map(Value::as_str).any(|one| nodes::label_value_matches(&key, label, one))
    };
    let spelled: BTreeSet<&String> = values_on_nodes(class, &key).filter(meant).collect();
    values.extend(spelled.into_iter().map(|label| json!(label)).filter(|label| !listed.contains(label)));
}

fn as_integer_bound(expression: &Value) -> Option<Value> {
    let key = expression["key"].as_str()?;
    let value = &expression["values"][0];
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (exact, low, high) = bounds(key, &text)?;
    let (operator, bound) = match expression["operator"].as_str()? {
        "Gte" => ("Gt", low.saturating_sub(1)),
        "Gt" => ("Gt", if exact { low } else { high }),
        "Lte" => ("Lt", high.saturating_add(1)),
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
    let value = text.parse::<Quantity>().ok()?.as_f64() / nodes::label_unit(key);
    Some((false, (value * (1.0 - MEMORY_TOLERANCE)).ceil() as i64, (value * (1.0 + MEMORY_TOLERANCE)).floor() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::{Availability, ClassNode};
    use proptest::prelude::*;
    use rstest::rstest;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn class(discovery: Discovery, nodes: &[&str]) -> Class {
        let node = |product: &&str| ClassNode {
            labels: Some(labels(&[("nvidia.com/gpu.product", product)]).into()),
            ..ClassNode::default()
        };
        let availability = Some(Availability { nodes: nodes.iter().map(node).collect() });
        Class { discovery, availability: availability.filter(|known| !known.nodes.is_empty()), ..Class::default() }
    }

    fn product(name: &str) -> Discovery {
        Discovery { node_selector: labels(&[("nvidia.com/gpu.product", name)]), ..Discovery::default() }
    }

    // spec: ACC-87
    // spec: ACC-88
    #[test]
    fn the_seeds_example_and_an_override() {
        let class = class(product("A100-SXM4-40GB"), &[]);
        let runtime = RuntimeComponent { node_selector: labels(&[("node-pool", "gpu-pool")]), ..Default::default() };
        let mut service =
            ComponentDemand { node_selector: labels(&[("dedicated", "team-alpha")]), ..Default::default() };
        let merged = merge_placement(&class, &runtime, &service);
        let expect =
            [("dedicated", "team-alpha"), ("node-pool", "gpu-pool"), ("nvidia.com/gpu.product", "A100-SXM4-40GB")];
        assert_eq!(merged.node_selector, labels(&expect));
        assert!(merged.warnings.is_empty());
        let origins: Vec<Origin> = merged.settings.iter().map(|setting| setting.origin).collect();
        assert_eq!(origins, [Origin::Service, Origin::Runtime, Origin::Class]);

        service.node_selector.insert("node-pool".to_owned(), "mine".to_owned());
        let merged = merge_placement(&class, &runtime, &service);
        assert_eq!(merged.node_selector["node-pool"], "mine");
        assert_eq!(merged.warnings[0].code, "NodeSelectorOverridden");
        assert_eq!(merged.settings[1].overridden[0].value, "gpu-pool");
    }

    #[rstest]
    #[case::nobody_is_known(&[], "H100-SXM5-80GB", 0)]
    #[case::as_the_nodes_have_it(&["NVIDIA-H100-SXM5-80GB"], "NVIDIA-H100-SXM5-80GB", 0)]
    #[case::both_spellings(&["NVIDIA-H100-SXM5-80GB", "H100-SXM5-80GB"], "", 2)]
    #[case::other_nodes(&["NVIDIA-L40S"], "H100-SXM5-80GB", 0)]
    fn products_as_nodes_spell_them(#[case] nodes: &[&str], #[case] selector: &str, #[case] values: usize) {
        let merged =
            merge_placement(&class(product("H100-SXM5-80GB"), nodes), &Default::default(), &Default::default());
        let stated = merged.node_selector.get("nvidia.com/gpu.product").map(String::as_str).unwrap_or_default();
        let listed = merged.affinity.to_pod_affinity().unwrap().unwrap_or_default();
        let expressions = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/values";
        let listed = listed.pointer(expressions).and_then(Value::as_array).map_or(0, Vec::len);
        assert_eq!((stated, listed), (selector, values));
    }

    #[rstest]
    #[case::nobody_is_known(&[], &["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"])]
    #[case::as_written(&["NVIDIA-A100-PCIE-40GB"], &["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"])]
    #[case::without_the_vendor(&["A100-SXM4-40GB"], &["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB", "A100-SXM4-40GB"])]
    fn listed_products_as_nodes_spell_them(#[case] nodes: &[&str], #[case] expect: &[&str]) {
        let listed = json!({"key": "nvidia.com/gpu.product", "operator": "In",
            "values": ["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"]});
        let discovery = Discovery { terms: vec![json!({"matchExpressions": [listed]})], ..Discovery::default() };
        let merged = merge_placement(&class(discovery, nodes), &Default::default(), &Default::default());
        assert_eq!(merged.affinity.required[0][0]["matchExpressions"][0]["values"], json!(expect));
        for product in nodes {
            assert!(merged.accepts("n", &labels(&[("nvidia.com/gpu.product", product)])));
        }
    }

    #[test]
    fn a_class_known_by_pci_ids_selects_by_them() {
        let discovery = Discovery {
            pci_vendor: Some("10DE".to_owned()),
            device_ids: vec!["2330".to_owned()],
            ..Default::default()
        };
        let merged = merge_placement(&class(discovery, &[]), &Default::default(), &Default::default());
        assert!(merged.accepts("n", &labels(&[("feature.node.kubernetes.io/pci-0302_10de_2330.present", "true")])));
        assert!(!merged.accepts("n", &labels(&[("feature.node.kubernetes.io/pci-0302_10de_20b0.present", "true")])));
    }

    #[test]
    fn a_node_known_by_its_pci_id_alone_is_selected_beside_the_others() {
        const KEY: &str = "feature.node.kubernetes.io/pci-0302_10de_20b0.present";
        let by_pci = labels(&[(KEY, "true")]);
        let discovery = Discovery {
            pci_vendor: Some("10de".to_owned()),
            device_ids: vec!["20b0".to_owned()],
            ..product("NVIDIA-A100")
        };
        let mut class = class(discovery, &["NVIDIA-A100"]);
        let placed = |class: &Class| merge_placement(class, &Default::default(), &Default::default());
        assert!(!placed(&class).accepts("n", &by_pci), "no such node is known: the selector stands alone");
        let node = ClassNode { labels: Some(by_pci.clone().into()), ..ClassNode::default() };
        class.availability.as_mut().unwrap().nodes.push(node);
        assert!(placed(&class).accepts("n", &by_pci));
        assert!(placed(&class).accepts("n", &labels(&[("nvidia.com/gpu.product", "NVIDIA-A100")])));
    }

    // spec: ACC-38
    #[rstest]
    #[case("Gte", "80Gi", "Gt", "80281")]
    #[case("Lt", "24Gi", "Lt", "24085")]
    #[case("Gte", "40960", "Gt", "40959")]
    #[case("Lte", "40960", "Lt", "40961")]
    fn quantities_become_integers_of_the_label(
        #[case] operator: &str,
        #[case] value: &str,
        #[case] expect: &str,
        #[case] bound: &str,
    ) {
        let written =
            as_integer_bound(&json!({"key": "nvidia.com/gpu.memory", "operator": operator, "values": [value]}));
        let expect = json!({"key": "nvidia.com/gpu.memory", "operator": expect, "values": [bound]});
        assert_eq!(written, Some(expect));
    }

    fn some_labels() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map("[a-d]", "[0-2]", 0..4)
    }

    proptest! {
        /// Each key has the value of the strongest layer that states it; who lost is told, and nobody else is.
        #[test]
        fn the_strongest_layer_has_its_way(of_class in some_labels(), of_runtime in some_labels(), of_selector in some_labels(), own in some_labels()) {
            let class = class(Discovery { node_selector: of_class.clone(), ..Discovery::default() }, &[]);
            let runtime = RuntimeComponent { node_selector: of_runtime.clone(), ..Default::default() };
            let mut service = ComponentDemand { node_selector: own.clone(), ..Default::default() };
            service.selector.node_selector.clone_from(&of_selector);
            let merged = merge_placement(&class, &runtime, &service);
            let layers = [of_class, of_runtime, of_selector, own];
            let mut expect = BTreeMap::new();
            layers.iter().for_each(|layer| expect.extend(layer.clone()));
            prop_assert_eq!(&merged.node_selector, &expect);
            let mut told = 0;
            for key in expect.keys() {
                let said: Vec<&String> = layers.iter().filter_map(|layer| layer.get(key)).collect();
                told += said.windows(2).filter(|pair| pair[0] != pair[1]).count();
            }
            prop_assert_eq!(merged.warnings.len(), told);
            // What was merged, stated by the runtime instead, merges to the same.
            let runtime = RuntimeComponent { node_selector: merged.node_selector.clone(), ..Default::default() };
            prop_assert_eq!(merge_placement(&class, &runtime, &service).node_selector, merged.node_selector);
        }
    }
}
