//! Optional APIs that the cluster serves, read from the cache of CustomResourceDefinitions.
//!
//! The API of every optional integration (LeaderWorkerSet, Volcano, Kueue, …) is a CRD. A watch of CRDs reports when a kind
//! is installed or removed, without polling discovery.

use serde_json::Value;

use crate::Kind;
use crate::conditions::find_condition;
use crate::namespaced_name::NamespacedName;
use crate::stores::Stores;

/// Kind of CustomResourceDefinitions.
pub const CUSTOM_RESOURCE_DEFINITION: Kind =
    Kind::cluster_scoped("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");

/// Returns whether an established CRD serves `kind` at its version; false for built-in kinds, which have no CRD.
#[must_use]
pub fn is_served(stores: &Stores, kind: Kind) -> bool {
    let definition = stores.get(CUSTOM_RESOURCE_DEFINITION, &NamespacedName::new("", &kind.group_resource()));
    definition.is_some_and(|definition| serves_version(&definition, kind.version))
}

fn serves_version(definition: &Value, version: &str) -> bool {
    let established = find_condition(&definition["status"]["conditions"], "Established")
        .is_some_and(|condition| condition["status"] == "True");
    let versions = definition["spec"]["versions"].as_array();
    let is_served = |entry: &Value| entry["name"] == version && entry["served"] == true;
    established && versions.is_some_and(|versions| versions.iter().any(is_served))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::served("True", "v1", true, true)]
    #[case::not_established("False", "v1", true, false)]
    #[case::other_version("True", "v1alpha1", true, false)]
    #[case::not_served("True", "v1", false, false)]
    fn kind_is_served_by_established_definition(
        #[case] established: &str,
        #[case] version: &str,
        #[case] served: bool,
        #[case] expect: bool,
    ) {
        let definition = json!({"spec": {"versions": [{"name": version, "served": served}]},
            "status": {"conditions": [{"type": "Established", "status": established}]}});
        assert_eq!(serves_version(&definition, "v1"), expect);
    }
}
