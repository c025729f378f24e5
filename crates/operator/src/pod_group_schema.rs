//! Determines the PodGroup fields that the installed Volcano supports from its CustomResourceDefinition, because older
//! API servers drop unknown fields silently.

use cluster::{CUSTOM_RESOURCE_DEFINITION, Change, NamespacedName, Stores};
use plan::PodGroupSchema;
use serde_json::Value;

use crate::kinds::POD_GROUP;

/// Returns the schema of the installed PodGroup definition; the latest one if Volcano is not installed, since no gang
/// is scheduled then.
pub(crate) fn installed_schema(stores: &Stores) -> PodGroupSchema {
    stores
        .get(CUSTOM_RESOURCE_DEFINITION, &NamespacedName::new("", &POD_GROUP.group_resource()))
        .map_or_else(PodGroupSchema::default, |definition| schema_of(&definition))
}

/// Returns whether `change` changes the supported fields.
pub(crate) fn has_changed(change: &Change) -> bool {
    let Change::Object { kind: CUSTOM_RESOURCE_DEFINITION, key, old, new } = change else { return false };
    key.name == POD_GROUP.group_resource() && old.as_deref().map(schema_of) != new.as_deref().map(schema_of)
}

fn schema_of(definition: &Value) -> PodGroupSchema {
    let versions = definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let served_version = versions.iter().find(|version| version["name"] == POD_GROUP.version);
    match served_version
        .and_then(|version| version.pointer("/schema/openAPIV3Schema/properties/spec/properties/subGroupPolicy"))
    {
        Some(_) => PodGroupSchema::SubGroupPolicy,
        None => PodGroupSchema::MinTaskMember,
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
    #[case::not_installed(None, PodGroupSchema::SubGroupPolicy)]
    #[case::volcano_before_1_14(Some(json!({"minMember": {}, "minTaskMember": {}})), PodGroupSchema::MinTaskMember)]
    #[case::volcano_since_1_14(Some(json!({"minMember": {}, "subGroupPolicy": {}})), PodGroupSchema::SubGroupPolicy)]
    fn reads_the_definition(#[case] fields: Option<Value>, #[case] expect: PodGroupSchema) {
        let stores = Stores::new("operator");
        if let Some(fields) = fields {
            let mut changes = stores.apply_event(CUSTOM_RESOURCE_DEFINITION, Event::Apply(definition(fields)));
            assert!(changes.all(|change| has_changed(&change)));
        }
        assert_eq!(installed_schema(&stores), expect);
    }
}
