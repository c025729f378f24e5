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

/// Whether the objects of a kind are cached, or why they are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListState {
    /// The first list is complete.
    Listed,
    /// The first list is not complete. Contains the error of the last attempt if it failed, for example because the
    /// operator may not list the kind.
    NotListed(Option<String>),
    /// The cluster does not serve the kind.
    NotServed,
}

/// Returns whether `kind` is listed. Until the CustomResourceDefinitions are listed, nothing is reported as not served.
#[must_use]
pub fn list_state(stores: &Stores, kind: Kind) -> ListState {
    if stores.has_synced(kind) {
        return ListState::Listed;
    }
    match stores.list_error(kind) {
        Some(error) if error.code == Some(404) => ListState::NotServed,
        Some(error) => ListState::NotListed(Some(error.message)),
        None if stores.has_kind(kind) || is_served(stores, kind) => ListState::NotListed(None),
        None if stores.has_synced(CUSTOM_RESOURCE_DEFINITION) => ListState::NotServed,
        None => ListState::NotListed(stores.list_error(CUSTOM_RESOURCE_DEFINITION).map(|error| error.message)),
    }
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
    use std::collections::BTreeSet;

    use super::*;
    use crate::stores::ListError;
    use kube::runtime::watcher::Event;
    use rstest::rstest;
    use serde_json::json;

    const POD_GROUP: Kind = Kind::namespaced("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups");
    const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");

    fn definition() -> Value {
        json!({"metadata": {"name": POD_GROUP.group_resource()},
            "spec": {"versions": [{"name": POD_GROUP.version, "served": true}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}})
    }

    /// Returns caches that have listed these definitions.
    fn stores_with(definitions: Vec<Value>) -> Stores {
        let stores = Stores::new("us");
        let events = definitions.into_iter().map(Event::InitApply);
        for event in [Event::Init].into_iter().chain(events).chain([Event::InitDone]) {
            let _ = stores.apply_event(CUSTOM_RESOURCE_DEFINITION, event);
        }
        stores
    }

    /// Returns the scope of a watch in all namespaces.
    fn whole_kind() -> BTreeSet<String> {
        BTreeSet::from([String::new()])
    }

    fn forbidden() -> ListError {
        ListError { code: Some(403), message: "podgroups is forbidden".to_owned() }
    }

    #[test]
    fn kind_without_definition_and_without_watch_is_not_served() {
        let stores = stores_with(Vec::new());
        assert_eq!(list_state(&stores, POD_GROUP), ListState::NotServed);
    }

    #[test]
    fn nothing_is_missing_before_the_definitions_are_listed() {
        let stores = Stores::new("us");
        assert_eq!(list_state(&stores, POD_GROUP), ListState::NotListed(None));
        stores.add_kind(CUSTOM_RESOURCE_DEFINITION, whole_kind());
        stores.record_list_error(CUSTOM_RESOURCE_DEFINITION, forbidden());
        assert_eq!(list_state(&stores, POD_GROUP), ListState::NotListed(Some("podgroups is forbidden".to_owned())));
    }

    #[test]
    fn served_kind_is_not_listed_until_its_list_is_complete() {
        let stores = stores_with(vec![definition()]);
        assert_eq!(list_state(&stores, POD_GROUP), ListState::NotListed(None), "the watch has not started");
        stores.add_kind(POD_GROUP, whole_kind());
        assert_eq!(list_state(&stores, POD_GROUP), ListState::NotListed(None));
        stores.record_list_error(POD_GROUP, forbidden());
        assert_eq!(list_state(&stores, POD_GROUP), ListState::NotListed(Some("podgroups is forbidden".to_owned())));
        for event in [Event::Init, Event::InitDone] {
            let _ = stores.apply_event(POD_GROUP, event);
        }
        assert_eq!(list_state(&stores, POD_GROUP), ListState::Listed);
    }

    /// Built-in kinds have no definition: only the response of the API server shows that it does not serve one.
    #[test]
    fn built_in_kind_is_not_served_if_its_list_is_not_found() {
        let stores = stores_with(Vec::new());
        stores.add_kind(SERVICE, whole_kind());
        assert_eq!(list_state(&stores, SERVICE), ListState::NotListed(None));
        stores.record_list_error(SERVICE, ListError { code: Some(404), message: "not found".to_owned() });
        assert_eq!(list_state(&stores, SERVICE), ListState::NotServed);
    }

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
