//! Provenance of generated objects, and whether a user modified them.
//!
//! Annotations of a generated object record its provenance and a fingerprint of its spec. If the fingerprint does not
//! match the spec, a user modified the object; it is no longer updated or deleted.

use std::fmt;

use api::ome::AcceleratorClassSpec;
use serde::Deserialize as _;
use serde_json::{Value, json};
use xxhash_rust::xxh64::xxh64;

/// Annotation with the provenance: `Kind/name`, or `nodes`.
pub const PROVENANCE_ANNOTATION: &str = "ome.io/made-from";
/// Annotation with the fingerprint of the generated spec.
const FINGERPRINT_ANNOTATION: &str = "ome.io/made-spec";

/// The source from which an object is generated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provenance {
    /// Labels of nodes.
    Nodes,
    /// A document of the base set in the ConfigMap `namespace/name`.
    ConfigMap(String),
    /// The Kueue ResourceFlavor of this name.
    ResourceFlavor(String),
    /// The AcceleratorClass of this name.
    AcceleratorClass(String),
}

/// Sets the annotations of a generated object that is otherwise complete.
pub(crate) fn set_provenance(object: &mut Value, provenance: &Provenance) {
    let fingerprint = fingerprint(object);
    object["metadata"]["annotations"][PROVENANCE_ANNOTATION] = json!(provenance.to_string());
    object["metadata"]["annotations"][FINGERPRINT_ANNOTATION] = json!(fingerprint);
}

/// Returns the provenance of an object; `None` if a user created it.
#[must_use]
pub fn provenance(object: &Value) -> Option<Provenance> {
    Provenance::parse(object["metadata"]["annotations"][PROVENANCE_ANNOTATION].as_str()?)
}

/// Whether the object is generated and no user modified its spec.
#[must_use]
pub fn is_unmodified(object: &Value) -> bool {
    let annotations = &object["metadata"]["annotations"];
    provenance(object).is_some() && annotations[FINGERPRINT_ANNOTATION].as_str() == Some(fingerprint(object).as_str())
}

/// Returns a hash of the spec that ignores API server defaults and the notation of quantities.
fn fingerprint(object: &Value) -> String {
    format!("{:016x}", xxh64(canonical(object).to_string().as_bytes(), 0))
}

fn canonical(object: &Value) -> Value {
    let spec = object["spec"].clone();
    if object["kind"] != "AcceleratorClass" {
        return spec;
    }
    let Ok(mut typed) = AcceleratorClassSpec::deserialize(&spec) else { return spec };
    for resource in &mut typed.resources {
        resource.quantity = resource.quantity.take().or_else(|| "1".parse().ok());
        resource.divisible.get_or_insert(false);
    }
    serde_json::to_value(typed).unwrap_or(spec)
}

// === impl Provenance ===

impl Provenance {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "nodes" {
            return Some(Self::Nodes);
        }
        let (kind, name) = text.split_once('/')?;
        let name = name.to_owned();
        match kind {
            "ConfigMap" => Some(Self::ConfigMap(name)),
            "ResourceFlavor" => Some(Self::ResourceFlavor(name)),
            "AcceleratorClass" => Some(Self::AcceleratorClass(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes => f.write_str("nodes"),
            Self::ConfigMap(name) => write!(f, "ConfigMap/{name}"),
            Self::ResourceFlavor(name) => write!(f, "ResourceFlavor/{name}"),
            Self::AcceleratorClass(name) => write!(f, "AcceleratorClass/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn generated() -> Value {
        let mut class = json!({"kind": "AcceleratorClass", "metadata": {"name": "a"}, "spec": {
            "discovery": {"nodeSelector": {"gpu": "a"}}, "capabilities": {"memoryGB": "40Gi"},
            "resources": [{"name": "nvidia.com/gpu"}]}});
        set_provenance(&mut class, &Provenance::ConfigMap("ome-system/accelerator-classes-base".to_owned()));
        class
    }

    #[rstest]
    #[case::label_added("/metadata/labels", json!({"team": "a"}), true)]
    #[case::server_default("/spec/resources/0/quantity", json!("1"), true)]
    #[case::other_spelling("/spec/capabilities/memoryGB", json!(40), true)]
    #[case::other_value("/spec/capabilities/memoryGB", json!("48Gi"), false)]
    #[case::other_selector("/spec/discovery/nodeSelector/gpu", json!("b"), false)]
    #[case::field_added("/spec/vendor", json!("nvidia"), false)]
    #[case::annotations_removed("/metadata/annotations", json!({}), false)]
    fn detects_modifications(#[case] path: &str, #[case] value: Value, #[case] expected: bool) {
        let mut class = generated();
        let (parent, field) = path.rsplit_once('/').unwrap();
        class.pointer_mut(parent).unwrap()[field] = value;
        assert_eq!(is_unmodified(&class), expected);
    }

    #[test]
    fn provenance_round_trips() {
        assert_eq!(
            provenance(&generated()),
            Some(Provenance::ConfigMap("ome-system/accelerator-classes-base".to_owned()))
        );
        for expected in [
            Provenance::Nodes,
            Provenance::ResourceFlavor("f".to_owned()),
            Provenance::AcceleratorClass("c".to_owned()),
        ] {
            assert_eq!(Provenance::parse(&expected.to_string()), Some(expected));
        }
        assert_eq!(provenance(&json!({"metadata": {"name": "created-by-user"}})), None);
    }
}
