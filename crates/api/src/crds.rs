//! The CRDs of our kinds, from the Rust types.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use apimachinery::schema::Schema;
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{fusioninfer, inference, ome};

/// Every CRD that ostler serves, in the order to install them.
pub fn crds() -> Vec<Value> {
    vec![
        crd::<ome::AcceleratorClass>(),
        crd::<ome::BaseModel>(),
        crd::<ome::ClusterBaseModel>(),
        crd::<ome::ServingRuntime>(),
        crd::<ome::ClusterServingRuntime>(),
        crd::<ome::InferenceService>(),
        crd::<fusioninfer::InferenceService>(),
        crd::<inference::BackendPool>(),
        crd::<inference::LLMUseCaseSet>(),
        crd::<inference::LLMUseCase>(),
    ]
}

/// The schema of one of our kinds, as written and compiled; compiling takes longer than checking a document.
pub(crate) struct KindSchema {
    /// `openAPIV3Schema`.
    pub(crate) json: Value,
    compiled: OnceLock<Option<Schema>>,
}

impl KindSchema {
    /// None for a schema that does not compile: a bug that `schemas_are_structural` shows.
    pub(crate) fn compiled(&self) -> Option<&Schema> {
        self.compiled.get_or_init(|| Schema::from_json(&self.json).ok()).as_ref()
    }
}

/// The schema of one of our kinds.
pub(crate) fn schema(api_version: &str, kind: &str) -> Option<&'static KindSchema> {
    SCHEMAS.get(&(api_version.to_owned(), kind.to_owned()))
}

/// `apiVersion` and kind of each of ours.
pub(crate) fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    SCHEMAS.keys().map(|(api_version, kind)| (api_version.as_str(), kind.as_str()))
}

static SCHEMAS: LazyLock<BTreeMap<(String, String), KindSchema>> = LazyLock::new(schemas);

fn schemas() -> BTreeMap<(String, String), KindSchema> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut schemas = BTreeMap::new();
    for crd in crds() {
        let spec = &crd["spec"];
        let version = &spec["versions"][0];
        let api_version = format!("{}/{}", text(&spec["group"]), text(&version["name"]));
        let json = version["schema"]["openAPIV3Schema"].clone();
        let schema = KindSchema { json, compiled: OnceLock::new() };
        schemas.insert((api_version, text(&spec["names"]["kind"])), schema);
    }
    schemas
}

fn crd<K: CustomResourceExt>() -> Value {
    // The generated struct holds only JSON-compatible values, so this cannot fail; `schemas_are_structural` would show it.
    let mut crd = serde_json::to_value(K::crd()).unwrap_or_default();
    crd["spec"]["names"]["listKind"] = Value::from(format!("{}List", K::crd().spec.names.kind));
    crd
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[test]
    fn schemas_are_structural() {
        for crd in crds() {
            let name = &crd["metadata"]["name"];
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            Schema::from_json(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(crd["spec"]["names"]["categories"].as_array().unwrap().contains(&json!("inference")));
            assert!(!crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap().is_empty());
        }
    }

    /// Client-side `kubectl apply` keeps the object in an annotation of at most 256 KiB.
    #[test]
    fn small_enough_for_kubectl_apply() {
        for crd in crds() {
            let bytes = crd.to_string().len();
            assert!(bytes < 250_000, "{}: {bytes} bytes", crd["metadata"]["name"]);
        }
    }

    /// The API server warns about formats that it does not know.
    #[test]
    fn formats_are_known() {
        fn formats(value: &Value, into: &mut std::collections::BTreeSet<String>) {
            match value {
                Value::Object(map) => {
                    into.extend(map.get("format").and_then(Value::as_str).map(str::to_owned));
                    map.values().for_each(|value| formats(value, into));
                }
                Value::Array(list) => list.iter().for_each(|value| formats(value, into)),
                _ => {}
            }
        }
        let mut found = std::collections::BTreeSet::new();
        crds().iter().for_each(|crd| formats(crd, &mut found));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["double", "int32", "int64"]);
    }

    fn compiled(api_version: &str, kind: &str) -> Schema {
        Schema::from_json(&schema(api_version, kind).unwrap().json).unwrap()
    }

    #[test]
    fn strategy_and_quantity_have_defaults() {
        let mut service = json!({"spec": {"acceleratorSelector": {"preferredClasses": ["a"]}}});
        compiled(ome::API_VERSION, "InferenceService").default(&mut service);
        assert_eq!(service["spec"]["acceleratorSelector"]["strategy"], "balanced");
        let mut class = json!({"spec": {"resources": [{"name": "nvidia.com/gpu"}]}});
        compiled(ome::API_VERSION, "AcceleratorClass").default(&mut class);
        assert_eq!(class["spec"]["resources"][0]["quantity"], "1");
    }

    #[rstest]
    #[case(json!({"discovery": {}}), "spec.capabilities")]
    #[case(json!({"discovery": {}, "capabilities": {}, "cost": {"tier": "huge"}}), "spec.cost.tier")]
    #[case(json!({"discovery": {}, "capabilities": {}, "resources": [{}]}), "spec.resources[0].name")]
    fn class_refusals_name_the_field(#[case] spec: Value, #[case] field: &str) {
        let class = json!({"apiVersion": ome::API_VERSION, "kind": "AcceleratorClass", "metadata": {"name": "a"}, "spec": spec});
        let causes = compiled(ome::API_VERSION, "AcceleratorClass").validate(&class);
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, [field]);
    }

    #[rstest]
    #[case(json!({"strategy": "fastest"}), "spec.acceleratorSelector.strategy")]
    #[case(json!({"policy": "Best"}), "spec.acceleratorSelector.policy")]
    fn selector_refusals_name_the_field(#[case] selector: Value, #[case] field: &str) {
        let service = json!({"metadata": {"name": "a"}, "spec": {"acceleratorSelector": selector}});
        let causes = compiled(ome::API_VERSION, "InferenceService").validate(&service);
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, [field]);
    }

    #[rstest]
    #[case(json!({"acceleratorRequirements": {"preferenceOrder": [{"class": "a", "score": 101}]}}), "spec.acceleratorRequirements.preferenceOrder[0].score")]
    #[case(json!({"acceleratorRequirements": {"preferenceOrder": [{"class": "a"}]}}), "spec.acceleratorRequirements.preferenceOrder[0].score")]
    #[case(json!({"acceleratorConfigurations": [{"env": []}]}), "spec.acceleratorConfigurations[0].selector")]
    #[case(json!({"supportedModelFormats": [{"priority": 0}]}), "spec.supportedModelFormats[0].priority")]
    fn runtime_refusals_name_the_field(#[case] spec: Value, #[case] field: &str) {
        for kind in ["ServingRuntime", "ClusterServingRuntime"] {
            let runtime = json!({"metadata": {"name": "a"}, "spec": spec});
            let causes = compiled(ome::API_VERSION, kind).validate(&runtime);
            let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
            assert_eq!(fields, [field]);
        }
    }

    #[rstest]
    #[case::fits("svc", json!([{"name": "a", "componentType": "worker", "template": {}}]), 0)]
    #[case::two_routers("svc", json!([{"name": "a", "componentType": "router"}, {"name": "b", "componentType": "router"}]), 1)]
    #[case::too_long("a-service-name-of-forty-five-characters-xxxxx", json!([{"name": "abc", "componentType": "worker", "template": {}}]), 1)]
    #[case::starts_with_digit("7b", json!([{"name": "a", "componentType": "worker", "template": {}}]), 1)]
    #[case::no_template("svc", json!([{"name": "a", "componentType": "worker"}]), 1)]
    fn role_rules(#[case] name: &str, #[case] roles: Value, #[case] faults: usize) {
        let service = json!({
            "apiVersion": fusioninfer::API_VERSION,
            "kind": "InferenceService",
            "metadata": {"name": name},
            "spec": {"roles": roles},
        });
        let schema = compiled(fusioninfer::API_VERSION, "InferenceService");
        assert_eq!(schema.validate(&service), []);
        assert_eq!(schema.check_rules(&service, None).len(), faults);
    }
}
