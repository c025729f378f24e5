//! Who made an object of ours, and whether a person has edited it since.
//!
//! What is made carries its maker and a fingerprint of the specification that was written. An object whose
//! specification has another fingerprint was edited: it is a person's from then on and is neither changed nor removed.

use std::fmt;

use api::ome::AcceleratorClassSpec;
use serde::Deserialize as _;
use serde_json::{Value, json};
use xxhash_rust::xxh64::xxh64;

/// Annotation that names the maker, as `Kind/name` or `nodes`.
const MADE_FROM: &str = "ome.io/made-from";
/// Annotation with the fingerprint of the specification as it was made.
const MADE_SPEC: &str = "ome.io/made-spec";

/// What an object was made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provenance {
    /// Labels of nodes.
    ReplicaNodes,
    /// A document of the base-set ConfigMap; its `namespace/name`.
    ConfigMap(String),
    /// Kueue's ResourceFlavor of that name.
    ResourceFlavor(String),
    /// The AcceleratorClass of that name.
    AcceleratorClass(String),
}

/// Writes maker and fingerprint into the annotations of an object that is complete but for them.
pub fn set_provenance(object: &mut Value, maker: &Provenance) {
    let fingerprint = fingerprint(object);
    object["metadata"]["annotations"][MADE_FROM] = json!(maker.to_string());
    object["metadata"]["annotations"][MADE_SPEC] = json!(fingerprint);
}

/// Who made the object; `None` for a person's.
#[must_use]
pub fn provenance(object: &Value) -> Option<Provenance> {
    Provenance::read(object["metadata"]["annotations"][MADE_FROM].as_str()?)
}

/// Whether the object is as its maker wrote it. False for what a person made.
#[must_use]
pub fn is_unmodified(object: &Value) -> bool {
    let annotations = &object["metadata"]["annotations"];
    provenance(object).is_some() && annotations[MADE_SPEC].as_str() == Some(fingerprint(object).as_str())
}

/// Equal for specifications that mean the same: defaults of the API server and spellings of quantities play no part.
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

// === impl Maker ===

impl Provenance {
    fn read(text: &str) -> Option<Self> {
        if text == "nodes" {
            return Some(Self::ReplicaNodes);
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
            Self::ReplicaNodes => f.write_str("nodes"),
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

    fn made() -> Value {
        let mut class = json!({"kind": "AcceleratorClass", "metadata": {"name": "a"}, "spec": {
            "discovery": {"nodeSelector": {"gpu": "a"}}, "capabilities": {"memoryGB": "40Gi"},
            "resources": [{"name": "nvidia.com/gpu"}]}});
        set_provenance(&mut class, &Provenance::ConfigMap("ome-system/accelerator-classes-base".to_owned()));
        class
    }

    #[rstest]
    #[case::as_written("/metadata/labels", json!({"team": "a"}), true)]
    #[case::default_of_the_server("/spec/resources/0/quantity", json!("1"), true)]
    #[case::another_spelling("/spec/capabilities/memoryGB", json!(40), true)]
    #[case::another_value("/spec/capabilities/memoryGB", json!("48Gi"), false)]
    #[case::another_node("/spec/discovery/nodeSelector/gpu", json!("b"), false)]
    #[case::more("/spec/vendor", json!("nvidia"), false)]
    #[case::taken_over("/metadata/annotations", json!({}), false)]
    fn edits_are_seen(#[case] path: &str, #[case] value: Value, #[case] expect: bool) {
        let mut class = made();
        let (parent, field) = path.rsplit_once('/').unwrap();
        class.pointer_mut(parent).unwrap()[field] = value;
        assert_eq!(is_unmodified(&class), expect);
    }

    #[test]
    fn the_maker_is_read_back() {
        assert_eq!(provenance(&made()), Some(Provenance::ConfigMap("ome-system/accelerator-classes-base".to_owned())));
        for maker in [
            Provenance::ReplicaNodes,
            Provenance::ResourceFlavor("f".to_owned()),
            Provenance::AcceleratorClass("c".to_owned()),
        ] {
            assert_eq!(Provenance::read(&maker.to_string()), Some(maker));
        }
        assert_eq!(provenance(&json!({"metadata": {"name": "by-hand"}})), None);
    }
}
