//! Taints of nodes, and tolerations of Pods.

use std::fmt;

use serde_json::Value;

/// A taint that keeps Pods without a matching toleration off a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value; empty if the taint has none.
    pub value: String,
    /// `NoSchedule` or `NoExecute`.
    pub effect: String,
}

/// A toleration of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// Key; empty matches any key if the operator is `Exists`.
    pub key: String,
    /// Whether the operator is `Exists`, which matches any value.
    pub exists: bool,
    /// Value.
    pub value: String,
    /// Effect; empty matches any.
    pub effect: String,
}

/// Prefixes of the keys of taints that Kubernetes and cloud providers add and remove with the state of a node.
const TRANSIENT_PREFIXES: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

// === impl Taint ===

impl Taint {
    /// Reads the taints of a Node that keep Pods off it permanently. Taints that follow from its state are not part of them:
    /// whether a node is ready and schedulable is known otherwise.
    pub(crate) fn of_node(node: &Value) -> Vec<Self> {
        let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
        let mut taints: Vec<Self> = taints.filter_map(Self::read).collect();
        taints.sort_unstable();
        taints
    }

    fn read(taint: &Value) -> Option<Self> {
        let (key, effect) = (taint["key"].as_str()?, text(taint, "effect"));
        let is_permanent = !TRANSIENT_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        let keeps_pods_off = effect == "NoSchedule" || effect == "NoExecute";
        (is_permanent && keeps_pods_off).then(|| Self { key: key.to_owned(), value: text(taint, "value"), effect })
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        if value.is_empty() { write!(f, "{key}:{effect}") } else { write!(f, "{key}={value}:{effect}") }
    }
}

// === impl Toleration ===

impl Toleration {
    /// Reads tolerations of a PodSpec.
    pub(crate) fn read_all(tolerations: &[Value]) -> Vec<Self> {
        let read = |toleration: &Value| Self {
            key: text(toleration, "key"),
            exists: toleration["operator"] == "Exists",
            value: text(toleration, "value"),
            effect: text(toleration, "effect"),
        };
        tolerations.iter().map(read).collect()
    }

    /// Returns the toleration of the taint that dedicates nodes to an extended resource, which its Pods get as from the admission
    /// plugin `ExtendedResourceToleration` of Kubernetes.
    pub(crate) fn of_resource(resource: &str) -> Self {
        Self { key: resource.to_owned(), exists: true, value: String::new(), effect: "NoSchedule".to_owned() }
    }

    /// Returns a toleration of exactly this taint.
    pub(crate) fn of_taint(taint: &Taint) -> Self {
        Self { key: taint.key.clone(), exists: false, value: taint.value.clone(), effect: taint.effect.clone() }
    }

    /// Whether the toleration matches the taint, as `Toleration.ToleratesTaint` of Kubernetes decides.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key == taint.key || self.key.is_empty() && self.exists)
            && (self.exists || self.value == taint.value)
    }
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::any_value(json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}), true)]
    #[case::any_effect(json!({"key": "gpu", "operator": "Exists"}), true)]
    #[case::every_taint(json!({"operator": "Exists"}), true)]
    #[case::equal_value(json!({"key": "gpu", "value": "team-a"}), true)]
    #[case::other_value(json!({"key": "gpu", "operator": "Equal", "value": "team-b"}), false)]
    #[case::no_value(json!({"key": "gpu"}), false)]
    #[case::other_effect(json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}), false)]
    #[case::other_key(json!({"key": "gpus", "operator": "Exists"}), false)]
    #[case::empty_key(json!({"value": "team-a"}), false)]
    fn matches_taints(#[case] toleration: Value, #[case] expected: bool) {
        let node = json!({"spec": {"taints": [{"key": "gpu", "value": "team-a", "effect": "NoSchedule"}]}});
        let [taint] = Taint::of_node(&node).try_into().unwrap();
        let [toleration] = Toleration::read_all(&[toleration]).try_into().unwrap();
        assert_eq!(toleration.tolerates(&taint), expected);
        assert_eq!(taint.to_string(), "gpu=team-a:NoSchedule");
    }

    #[test]
    fn ignores_preferences_and_states() {
        let node = json!({"spec": {"taints": [
            {"key": "a", "effect": "PreferNoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
            {"key": "b", "effect": "NoExecute"}
        ]}});
        let taints: Vec<String> = Taint::of_node(&node).iter().map(ToString::to_string).collect();
        assert_eq!(taints, ["b:NoExecute"]);
    }
}
