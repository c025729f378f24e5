//! What the PodGroups of the installed Volcano can say: read from their definition, since older API servers drop what a
//! schema does not know without a word.

use cluster::neighbours::DEFINITIONS;
use cluster::{Change, Key, Stores};
use plan::gang::PodGroupSchema;
use serde_json::Value;

use crate::kinds::POD_GROUP;

/// Of the definition in `stores`. Without one nothing is placed anyway, and the newest is assumed.
pub(crate) fn schema(stores: &Stores) -> PodGroupSchema {
    stores
        .get(DEFINITIONS, &Key::new("", &POD_GROUP.resource()))
        .map_or_else(PodGroupSchema::default, |found| of(&found))
}

/// Whether `change` lets gangs say more, or less, than before.
pub(crate) fn altered(change: &Change) -> bool {
    let Change::Object { kind: DEFINITIONS, key, old, new } = change else { return false };
    key.name == POD_GROUP.resource() && old.as_deref().map(of) != new.as_deref().map(of)
}

fn of(definition: &Value) -> PodGroupSchema {
    let versions = definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ours = versions.iter().find(|version| version["name"] == POD_GROUP.version);
    match ours.and_then(|version| version.pointer("/schema/openAPIV3Schema/properties/spec/properties/subGroupPolicy"))
    {
        Some(_) => PodGroupSchema::SubGroups,
        None => PodGroupSchema::Tasks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher::Event;
    use rstest::rstest;
    use serde_json::json;

    fn definition(fields: Value) -> Value {
        json!({"metadata": {"name": "podgroups.scheduling.volcano.sh"}, "spec": {"versions": [
            {"name": "v1alpha1", "schema": {}},
            {"name": "v1beta1", "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": fields}}}}},
        ]}})
    }

    #[rstest]
    #[case::not_installed(None, PodGroupSchema::SubGroups)]
    #[case::before_1_14(Some(json!({"minMember": {}, "minTaskMember": {}})), PodGroupSchema::Tasks)]
    #[case::since_1_14(Some(json!({"minMember": {}, "subGroupPolicy": {}})), PodGroupSchema::SubGroups)]
    fn the_definition_tells(#[case] fields: Option<Value>, #[case] expect: PodGroupSchema) {
        let stores = Stores::new("us");
        if let Some(fields) = fields {
            let mut changes = stores.accept(DEFINITIONS, Event::Apply(definition(fields)));
            assert!(changes.all(|change| altered(&change)));
        }
        assert_eq!(schema(&stores), expect);
    }
}
