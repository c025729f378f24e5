//! Which optional kinds the cluster serves, read from the store of its CustomResourceDefinitions.
//!
//! Every optional neighbour (LeaderWorkerSet, Volcano, Kueue, …) is a CRD, so a watch of the definitions tells when a
//! kind comes and goes, and nobody polls.

use serde_json::Value;

use crate::Kind;
use crate::conditions::find;
use crate::stores::{Key, Stores};

/// The kind of definitions.
pub const DEFINITIONS: Kind =
    Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");

/// Whether `kind` is served at its version. Kinds of built-in groups (no dot in the group, or `*.k8s.io` kinds that
/// are not CRDs) are for the caller to know.
#[must_use]
pub fn served(stores: &Stores, kind: Kind) -> bool {
    stores.get(DEFINITIONS, &Key::new("", &kind.resource())).is_some_and(|definition| serves(&definition, kind.version))
}

fn serves(definition: &Value, version: &str) -> bool {
    let established =
        find(&definition["status"]["conditions"], "Established").is_some_and(|found| found["status"] == "True");
    let versions = definition["spec"]["versions"].as_array();
    established && versions.is_some_and(|all| all.iter().any(|one| one["name"] == version && one["served"] == true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::served("True", "v1", true, true)]
    #[case::not_established_yet("False", "v1", true, false)]
    #[case::another_version("True", "v1alpha1", true, false)]
    #[case::not_served("True", "v1", false, false)]
    fn a_kind_is_served(#[case] established: &str, #[case] version: &str, #[case] served: bool, #[case] expect: bool) {
        let definition = json!({"spec": {"versions": [{"name": version, "served": served}]},
            "status": {"conditions": [{"type": "Established", "status": established}]}});
        assert_eq!(serves(&definition, "v1"), expect);
    }
}
