//! Merges node selectors and affinities, weakest first: class, runtime, acceleratorSelector, component. A stronger layer
//! overrides keys of a node selector; all affinities must match.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::Quantity;
use serde_json::{Value, json};

use super::affinity::{self, MergedAffinity};
use super::origin::{Origin, Setting, SettingField};
use crate::code;
use crate::demand::ComponentDemand;
use crate::nodes::{self, ClassNode, Discovery, MEMORY_TOLERANCE};
use crate::reason::Warning;
use crate::supply::{Class, RuntimeComponent};
use crate::taint::{Taint, Toleration};

/// Merged node selector and affinity of the Pods of a component.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// The node selector.
    pub node_selector: BTreeMap<String, String>,
    /// The affinity.
    pub affinity: MergedAffinity,
    /// Origin of each key of the node selector, then of each affinity.
    pub settings: Vec<Setting>,
    /// Overridden keys.
    pub warnings: Vec<Warning>,
}

/// Placement that a class requires for its Pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClassPlacement {
    pub(crate) node_selector: BTreeMap<String, String>,
    /// `NodeSelectorTerm`s, at least one of which must match; empty if the node selector suffices.
    pub(crate) terms: Vec<Value>,
}

/// The merged placement without the terms of the class, as a filter that borrows its layers.
pub(crate) struct PlacementFilter<'a> {
    /// Node selectors, strongest first. A key of a stronger layer overrides that of a weaker one.
    selectors: [&'a BTreeMap<String, String>; 4],
    /// Lists of terms; at least one term of each list must match.
    required: Vec<&'a [Value]>,
    /// Tolerations of all layers; `None` accepts every taint.
    tolerations: Option<Tolerations<'a>>,
}

/// Tolerations of the Pods of a component.
struct Tolerations<'a> {
    runtime: &'a [Toleration],
    service: &'a [Toleration],
    resource: Toleration,
}

// === impl Placement ===

impl Placement {
    /// Whether the placement allows a node with this name and these labels.
    #[must_use]
    pub fn accepts(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let matches = |terms: &Vec<Value>| terms.iter().any(|term| nodes::term_matches_node(term, name, labels));
        nodes::labels_match_selector(labels, &self.node_selector) && self.affinity.required.iter().all(matches)
    }
}

// === impl ClassPlacement ===

impl ClassPlacement {
    /// Whether the terms match the node. A node without known labels always matches.
    pub(crate) fn accepts(&self, node: &ClassNode) -> bool {
        let Some(labels) = &node.labels else { return true };
        self.terms.is_empty() || self.terms.iter().any(|term| nodes::term_matches_node(term, &node.name, labels))
    }
}

// === impl PlacementFilter ===

impl<'a> PlacementFilter<'a> {
    pub(crate) fn new(
        class: &'a ClassPlacement,
        runtime: &'a RuntimeComponent,
        component: &'a ComponentDemand,
    ) -> Self {
        let selectors =
            [&component.node_selector, &component.selector.node_selector, &runtime.node_selector, &class.node_selector];
        let required =
            runtime.affinities.iter().chain(&component.affinity).filter_map(affinity::required_terms).collect();
        Self { selectors, required, tolerations: None }
    }

    /// Also requires that the Pods tolerate the taints of the node. They tolerate that of their accelerator `resource`.
    #[must_use]
    pub(crate) fn with_taints(
        self,
        runtime: &'a RuntimeComponent,
        component: &'a ComponentDemand,
        resource: &str,
    ) -> Self {
        let resource = Toleration::of_resource(resource);
        let tolerations = Tolerations { runtime: &runtime.tolerations, service: &component.tolerations, resource };
        Self { tolerations: Some(tolerations), ..self }
    }

    /// Whether the placement allows the node. Labels that are not known are always allowed.
    pub(crate) fn accepts(&self, node: &ClassNode) -> bool {
        // A new taint does not stop the Pods of the service that already run on the node.
        if node.used_by_service == 0 && !node.taints.iter().all(|taint| self.tolerates(taint)) {
            return false;
        }
        let Some(labels) = &node.labels else { return true };
        let matches = |terms: &&[Value]| terms.iter().any(|term| nodes::term_matches_node(term, &node.name, labels));
        self.matches_selectors(labels) && self.required.iter().all(matches)
    }

    /// Whether the Pods tolerate the taint; true if taints are not considered.
    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.as_ref().is_none_or(|known| known.tolerate(taint))
    }

    fn matches_selectors(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selectors.iter().enumerate().all(|(index, layer)| {
            let stronger = self.selectors.get(..index).unwrap_or_default();
            layer.iter().all(|(key, value)| {
                stronger.iter().any(|layer| layer.contains_key(key))
                    || labels.get(key).is_some_and(|label| nodes::label_value_matches(key, label, value))
            })
        })
    }
}

// === impl Tolerations ===

impl Tolerations<'_> {
    fn tolerate(&self, taint: &Taint) -> bool {
        let mut all = self.runtime.iter().chain(self.service).chain([&self.resource]);
        all.any(|toleration| toleration.tolerates(taint))
    }
}

/// Merges all layers. Overridden keys of the node selector are warnings (`NodeSelectorOverridden`).
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
    for (origin, layer, owner) in layers {
        overlay_node_selector(&mut keys, layer, origin, owner, &mut placement.warnings);
    }
    placement.node_selector = keys.iter().map(|(key, setting)| (key.clone(), setting.value.clone())).collect();
    placement.settings = keys.into_values().collect();
    placement.affinity.add_terms(class_terms.clone());
    if !class_terms.is_empty() {
        placement.settings.push(Setting::new(
            SettingField::named("affinity"),
            Value::Array(class_terms).to_string(),
            Origin::Class,
        ));
    }
    let runtime_affinities = runtime.affinities.iter().map(|affinity| (Origin::Runtime, affinity));
    for (origin, affinity) in
        runtime_affinities.chain(component.affinity.iter().map(|affinity| (Origin::Service, affinity)))
    {
        placement.affinity.add(affinity);
        placement.settings.push(Setting::new(SettingField::named("affinity"), affinity.to_string(), origin));
    }
    placement
}

fn overlay_node_selector(
    keys: &mut BTreeMap<String, Setting>,
    layer: &BTreeMap<String, String>,
    origin: Origin,
    owner: &str,
    warnings: &mut Vec<Warning>,
) {
    for (key, value) in layer {
        let Some(setting) = keys.get_mut(key) else {
            keys.insert(key.clone(), Setting::new(SettingField::NodeSelector(key.clone()), value, origin));
            continue;
        };
        if setting.value != *value {
            let message = format!("Node selector {key}: {value} of {owner} overrides the value {}", setting.value);
            warnings.push(Warning::new(code::warning::NODE_SELECTOR_OVERRIDDEN, message));
        }
        setting.override_with(value.clone(), origin);
    }
}

/// Returns the placement of a class: a node selector if `discovery` sets nothing else (seed 000, Story 4), otherwise
/// terms, at least one of which must match. PCI IDs become terms if `discovery` sets nothing else, or if a known node
/// matches only by PCI ID.
pub(crate) fn class_placement(class: &Class) -> ClassPlacement {
    let discovery = &class.discovery;
    let (single_valued, multi_valued) = node_spellings(class);
    let has_selectors = !discovery.node_selector.is_empty() || !discovery.terms.is_empty();
    let mut terms: Vec<Value> = discovery.terms.iter().map(|term| schedulable_term(class, term)).collect();
    if !has_selectors || has_node_matched_by_pci_only(class) {
        terms.extend(pci_terms(&discovery.pci_vendor, &discovery.device_ids));
    }
    if terms.is_empty() && multi_valued.is_empty() {
        return ClassPlacement { node_selector: single_valued, terms };
    }
    if !discovery.node_selector.is_empty() {
        let single_valued_expressions =
            single_valued.iter().map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
        let multi_valued_expressions =
            multi_valued.iter().map(|(key, values)| json!({"key": key, "operator": "In", "values": values}));
        terms.insert(
            0,
            json!({"matchExpressions": single_valued_expressions.chain(multi_valued_expressions).collect::<Vec<_>>()}),
        );
    }
    ClassPlacement { node_selector: BTreeMap::new(), terms }
}

fn has_node_matched_by_pci_only(class: &Class) -> bool {
    if class.discovery.pci_vendor.is_none() {
        return false;
    }
    let without_pci = Discovery { pci_vendor: None, ..class.discovery.clone() };
    let nodes = class.availability.iter().flat_map(|known| &known.nodes);
    nodes.filter_map(|node| Some((&node.name, node.labels.as_ref()?))).any(|(name, labels)| {
        !nodes::matches_discovery(&without_pci, name, labels)
            && nodes::matches_discovery(&class.discovery, name, labels)
    })
}

/// Node selector split into keys with a single value, and keys with several spellings of a value.
type Spellings = (BTreeMap<String, String>, BTreeMap<String, BTreeSet<String>>);

/// Returns the node selector with its values spelled as on the known nodes. Product names match with and without the
/// vendor prefix, but the scheduler compares values exactly. Without a known node, the class's spelling is used.
fn node_spellings(class: &Class) -> Spellings {
    let (mut single_valued, mut multi_valued) = Spellings::default();
    for (key, value) in &class.discovery.node_selector {
        let values: BTreeSet<&String> =
            node_label_values(class, key).filter(|label| nodes::label_value_matches(key, label, value)).collect();
        match (values.len(), values.first()) {
            (1, Some(only)) => drop(single_valued.insert(key.clone(), (*only).clone())),
            (0, _) => drop(single_valued.insert(key.clone(), value.clone())),
            _ => drop(multi_valued.insert(key.clone(), values.into_iter().cloned().collect())),
        }
    }
    (single_valued, multi_valued)
}

/// Returns the values of a label on the known nodes of the class.
fn node_label_values<'c>(class: &'c Class, key: &str) -> impl Iterator<Item = &'c String> {
    let nodes = class.availability.iter().flat_map(|known| &known.nodes);
    nodes.filter_map(move |node| node.labels.as_ref()?.get(key))
}

/// PCI device classes of accelerators: display controllers, 3D controllers, processing accelerators.
const PCI_CLASSES: [&str; 3] = ["0300", "0302", "1200"];

/// Returns terms on labels of node-feature-discovery for PCI IDs.
fn pci_terms(vendor: &Option<String>, devices: &[String]) -> Vec<Value> {
    let Some(vendor) = vendor.as_deref().map(str::to_ascii_lowercase) else { return Vec::new() };
    let label = |device: &String, class: &str| {
        format!("feature.node.kubernetes.io/pci-{class}_{vendor}_{}.present", device.to_ascii_lowercase())
    };
    let term = |key: String| json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]});
    devices.iter().flat_map(|device| PCI_CLASSES.map(|class| term(label(device, class)))).collect()
}

/// Converts a term for the scheduler: `Gte`, `Lte` and quantities become integer `Gt` and `Lt` in the unit of the label, and
/// listed products also get the spelling of the known nodes.
fn schedulable_term(class: &Class, term: &Value) -> Value {
    let mut term = term.clone();
    let expressions = term.get_mut("matchExpressions").and_then(Value::as_array_mut);
    for expression in expressions.into_iter().flatten() {
        if let Some(integer_bound) = as_integer_bound(expression) {
            *expression = integer_bound;
        } else if expression["operator"] == "In" {
            add_node_spellings(class, expression);
        }
    }
    term
}

fn add_node_spellings(class: &Class, expression: &mut Value) {
    let Some(key) = expression["key"].as_str().map(str::to_owned) else { return };
    let Some(values) = expression["values"].as_array_mut() else { return };
    let listed_values = values.clone();
    let is_listed = |label: &&String| {
        listed_values.iter().filter_map(Value::as_str).any(|value| nodes::label_value_matches(&key, label, value))
    };
    let spellings: BTreeSet<&String> = node_label_values(class, &key).filter(is_listed).collect();
    values.extend(spellings.into_iter().map(|label| json!(label)).filter(|label| !listed_values.contains(label)));
}

fn as_integer_bound(expression: &Value) -> Option<Value> {
    let key = expression["key"].as_str()?;
    let value = &expression["values"][0];
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (is_exact, low, high) = bounds(key, &text)?;
    let (operator, bound) = match expression["operator"].as_str()? {
        "Gte" => ("Gt", low.saturating_sub(1)),
        "Gt" => ("Gt", if is_exact { low } else { high }),
        "Lte" => ("Lt", high.saturating_add(1)),
        "Lt" => ("Lt", low),
        _ => return None,
    };
    Some(json!({"key": key, "operator": operator, "values": [bound.to_string()]}))
}

/// Returns whether `text` is an integer, and the least and greatest label value that count as equal to it.
fn bounds(key: &str, text: &str) -> Option<(bool, i64, i64)> {
    if let Ok(integer) = text.parse::<i64>() {
        return Some((true, integer, integer));
    }
    let value = text.parse::<Quantity>().ok()?.as_f64() / nodes::bytes_per_label_unit(key);
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
    fn merges_node_selectors_of_all_layers() {
        let class = class(product("A100-SXM4-40GB"), &[]);
        let runtime = RuntimeComponent { node_selector: labels(&[("node-pool", "gpu-pool")]), ..Default::default() };
        let mut service =
            ComponentDemand { node_selector: labels(&[("dedicated", "team-alpha")]), ..Default::default() };
        let merged = merge_placement(&class, &runtime, &service);
        let expected =
            [("dedicated", "team-alpha"), ("node-pool", "gpu-pool"), ("nvidia.com/gpu.product", "A100-SXM4-40GB")];
        assert_eq!(merged.node_selector, labels(&expected));
        assert!(merged.warnings.is_empty());
        let origins: Vec<Origin> = merged.settings.iter().map(|setting| setting.origin).collect();
        assert_eq!(origins, [Origin::Service, Origin::Runtime, Origin::Class]);

        service.node_selector.insert("node-pool".to_owned(), "other-pool".to_owned());
        let merged = merge_placement(&class, &runtime, &service);
        assert_eq!(merged.node_selector["node-pool"], "other-pool");
        assert_eq!(merged.warnings[0].code, "NodeSelectorOverridden");
        assert_eq!(merged.settings[1].overridden[0].value, "gpu-pool");
    }

    #[rstest]
    #[case::no_known_node(&[], "H100-SXM5-80GB", 0)]
    #[case::spelling_of_the_node(&["NVIDIA-H100-SXM5-80GB"], "NVIDIA-H100-SXM5-80GB", 0)]
    #[case::both_spellings(&["NVIDIA-H100-SXM5-80GB", "H100-SXM5-80GB"], "", 2)]
    #[case::other_product(&["NVIDIA-L40S"], "H100-SXM5-80GB", 0)]
    fn selects_products_by_node_spelling(#[case] nodes: &[&str], #[case] selector: &str, #[case] values: usize) {
        let merged =
            merge_placement(&class(product("H100-SXM5-80GB"), nodes), &Default::default(), &Default::default());
        let selected = merged.node_selector.get("nvidia.com/gpu.product").map(String::as_str).unwrap_or_default();
        let affinity = merged.affinity.to_pod_affinity().unwrap().unwrap_or_default();
        let values_pointer = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/values";
        let value_count = affinity.pointer(values_pointer).and_then(Value::as_array).map_or(0, Vec::len);
        assert_eq!((selected, value_count), (selector, values));
    }

    #[rstest]
    #[case::no_known_node(&[], &["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"])]
    #[case::listed_spelling(&["NVIDIA-A100-PCIE-40GB"], &["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"])]
    #[case::without_vendor_prefix(&["A100-SXM4-40GB"], &["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB", "A100-SXM4-40GB"])]
    fn adds_node_spelling_to_listed_products(#[case] nodes: &[&str], #[case] expected: &[&str]) {
        let expression = json!({"key": "nvidia.com/gpu.product", "operator": "In",
            "values": ["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"]});
        let discovery = Discovery { terms: vec![json!({"matchExpressions": [expression]})], ..Discovery::default() };
        let merged = merge_placement(&class(discovery, nodes), &Default::default(), &Default::default());
        assert_eq!(merged.affinity.required[0][0]["matchExpressions"][0]["values"], json!(expected));
        for product in nodes {
            assert!(merged.accepts("n", &labels(&[("nvidia.com/gpu.product", product)])));
        }
    }

    #[test]
    fn selects_by_pci_ids() {
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
    fn adds_terms_for_nodes_that_match_by_pci_id_only() {
        const KEY: &str = "feature.node.kubernetes.io/pci-0302_10de_20b0.present";
        let by_pci = labels(&[(KEY, "true")]);
        let discovery = Discovery {
            pci_vendor: Some("10de".to_owned()),
            device_ids: vec!["20b0".to_owned()],
            ..product("NVIDIA-A100")
        };
        let mut class = class(discovery, &["NVIDIA-A100"]);
        let merged = |class: &Class| merge_placement(class, &Default::default(), &Default::default());
        assert!(!merged(&class).accepts("n", &by_pci), "no known node matches by PCI ID");
        let node = ClassNode { labels: Some(by_pci.clone().into()), ..ClassNode::default() };
        class.availability.as_mut().unwrap().nodes.push(node);
        assert!(merged(&class).accepts("n", &by_pci));
        assert!(merged(&class).accepts("n", &labels(&[("nvidia.com/gpu.product", "NVIDIA-A100")])));
    }

    // spec: ACC-38
    #[rstest]
    #[case("Gte", "80Gi", "Gt", "76595")]
    #[case("Lt", "24Gi", "Lt", "22979")]
    #[case("Gte", "40960", "Gt", "40959")]
    #[case("Lte", "40960", "Lt", "40961")]
    fn converts_quantities_to_integer_bounds(
        #[case] operator: &str,
        #[case] value: &str,
        #[case] expected: &str,
        #[case] bound: &str,
    ) {
        let converted =
            as_integer_bound(&json!({"key": "nvidia.com/gpu.memory", "operator": operator, "values": [value]}));
        let expected = json!({"key": "nvidia.com/gpu.memory", "operator": expected, "values": [bound]});
        assert_eq!(converted, Some(expected));
    }

    fn any_labels() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map("[a-d]", "[0-2]", 0..4)
    }

    proptest! {
        /// Each key has the value of the strongest layer, with one warning per overridden value.
        #[test]
        fn strongest_layer_takes_precedence(of_class in any_labels(), of_runtime in any_labels(), of_selector in any_labels(), own in any_labels()) {
            let class = class(Discovery { node_selector: of_class.clone(), ..Discovery::default() }, &[]);
            let runtime = RuntimeComponent { node_selector: of_runtime.clone(), ..Default::default() };
            let mut service = ComponentDemand { node_selector: own.clone(), ..Default::default() };
            service.selector.node_selector.clone_from(&of_selector);
            let merged = merge_placement(&class, &runtime, &service);
            let layers = [of_class, of_runtime, of_selector, own];
            let mut expected = BTreeMap::new();
            layers.iter().for_each(|layer| expected.extend(layer.clone()));
            prop_assert_eq!(&merged.node_selector, &expected);
            let mut overridden = 0;
            for key in expected.keys() {
                let values: Vec<&String> = layers.iter().filter_map(|layer| layer.get(key)).collect();
                overridden += values.windows(2).filter(|pair| pair[0] != pair[1]).count();
            }
            prop_assert_eq!(merged.warnings.len(), overridden);
            // Merging is idempotent.
            let runtime = RuntimeComponent { node_selector: merged.node_selector.clone(), ..Default::default() };
            prop_assert_eq!(merge_placement(&class, &runtime, &service).node_selector, merged.node_selector);
        }
    }
}
