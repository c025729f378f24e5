use rstest::rstest;
use serde_json::json;

use super::*;
use crate::inference::{FailureMode, ImplicitUseCases, ModelServer, QueueLimits};

#[test]
fn schemas_are_structural() {
    for crd in crds() {
        let name = &crd["metadata"]["name"];
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        Schema::from_json(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap().is_empty());
    }
}

/// `kubectl get inference` lists what runs, without the catalog.
#[test]
fn catalog_has_its_own_category() {
    for crd in crds() {
        let names = &crd["spec"]["names"];
        let is_catalog =
            ["AcceleratorClass", "ServingRuntime", "ClusterServingRuntime", "BaseModel", "ClusterBaseModel"]
                .iter()
                .any(|kind| names["kind"] == *kind);
        let category = if is_catalog { "inference-catalog" } else { "inference" };
        assert_eq!(names["categories"], json!([category]), "{}", names["kind"]);
    }
}

/// Client-side `kubectl apply` stores the object in an annotation of at most 256 KiB.
#[test]
fn crds_are_small_enough_for_kubectl_apply() {
    for crd in crds() {
        let bytes = crd.to_string().len();
        assert!(bytes < 250_000, "{}: {bytes} bytes", crd["metadata"]["name"]);
    }
}

/// The API server warns about unknown formats.
#[test]
fn formats_are_supported() {
    fn collect_formats(value: &Value, formats: &mut std::collections::BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                formats.extend(map.get("format").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| collect_formats(value, formats));
            }
            Value::Array(list) => list.iter().for_each(|value| collect_formats(value, formats)),
            _ => {}
        }
    }
    let mut formats = std::collections::BTreeSet::new();
    crds().iter().for_each(|crd| collect_formats(crd, &mut formats));
    assert_eq!(formats.into_iter().collect::<Vec<_>>(), ["double", "int32", "int64"]);
}

/// How endpoints are scored is the configuration of the picker: the only weights of pools and use cases are those of targets.
/// The platform team states what concerns Pods, ports and limits, and owners of use cases state models, weights and objectives.
// spec: GW-4
// spec: GW-9
// spec: GW-77
#[rstest]
#[case("BackendPool", &["failureMode", "implicitUseCases", "modelServer", "queue", "scaleToZero", "selector", "targetPorts"])]
#[case("LLMUseCase", &["modelName", "objective", "poolRef", "targetModels"])]
#[case("LLMUseCaseSet", &["poolRef", "useCases"])]
fn pools_and_use_cases_have_no_scorer_settings(#[case] kind: &str, #[case] fields: &[&str]) {
    fn collect_weights(schema: &Value, path: &str, weights: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if name.to_lowercase().contains("weight") || name.to_lowercase().contains("scor") {
                weights.push(path.clone());
            }
            collect_weights(property, &path, weights);
            collect_weights(&property["items"], &path, weights);
        }
    }
    let crd = crds().into_iter().find(|crd| crd["spec"]["names"]["kind"] == kind).unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec["properties"].as_object().unwrap().keys().collect::<Vec<_>>(), fields);
    let mut weights = Vec::new();
    collect_weights(spec, "spec", &mut weights);
    assert!(weights.iter().all(|path| path.ends_with("targetModels.weight")), "{weights:?}");
}

/// The API group is experimental, and extends no kind of the Gateway API.
/// The description of each administrative field of a pool states the default that applies.
// spec: GW-20
#[rstest]
#[case::model_server("/modelServer", "vllm", json!(ModelServer::default()))]
#[case::implicit_use_cases("/implicitUseCases", "Deny", json!(ImplicitUseCases::default()))]
#[case::failure_mode("/failureMode", "FailClose", json!(FailureMode::default()))]
#[case::max_requests("/queue/properties/maxRequests", "1000", json!(QueueLimits::DEFAULT_MAX_REQUESTS.to_string()))]
#[case::max_bytes("/queue/properties/maxBytes", "256Mi", json!(format!("{}Mi", QueueLimits::DEFAULT_MAX_BYTES >> 20)))]
#[case::timeout("/queue/properties/timeout", "30s", json!(QueueLimits::DEFAULT_TIMEOUT))]
fn administrative_fields_of_pools_state_their_defaults(
    #[case] pointer: &str,
    #[case] stated: &str,
    #[case] default: Value,
) {
    let crd = crds().into_iter().find(|crd| crd["spec"]["names"]["kind"] == "BackendPool").unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let description = spec["properties"].pointer(pointer).unwrap()["description"].as_str().unwrap().replace('`', "");
    assert!(description.contains(&format!("; {stated} if unset")), "{description}");
    assert_eq!(default, stated);
    assert!(!spec["required"].as_array().unwrap().iter().any(|field| pointer[1..] == *field));
}

// spec: GW-10
// spec: GW-64
#[test]
fn inference_group_has_experimental_pools_and_use_cases_only() {
    let crds = crds();
    let routing: Vec<_> = crds.iter().filter(|crd| crd["spec"]["group"] == inference::GROUP).collect();
    let kinds: std::collections::BTreeSet<_> =
        routing.iter().map(|crd| crd["spec"]["names"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["BackendPool", "LLMUseCase", "LLMUseCaseSet"]);
    for crd in routing {
        let versions: Vec<_> =
            crd["spec"]["versions"].as_array().unwrap().iter().map(|version| &version["name"]).collect();
        assert_eq!(versions, ["v1alpha1"]);
    }
    assert!(crds.iter().all(|crd| !crd["spec"]["names"]["kind"].as_str().unwrap().contains("Route")));
}

/// Optional fields state their default, also fields whose absence has a meaning of its own.
// spec: GW-8
#[test]
fn fields_of_pools_and_use_cases_are_described() {
    fn check(schema: &Value, path: &str, problems: &mut Vec<String>) {
        let is_required = |name: &str| {
            schema["required"].as_array().is_some_and(|required| required.iter().any(|field| field == name))
        };
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let description = property["description"].as_str().unwrap_or_default();
            let states_default = ["unset", "empty", "default"].iter().any(|word| description.contains(word));
            if description.is_empty() || !(states_default || is_required(name)) {
                problems.push(format!("{path}: {description}"));
            }
            check(property, &path, problems);
            check(&property["items"], &path, problems);
        }
    }
    let mut problems = Vec::new();
    for crd in crds().iter().filter(|crd| crd["spec"]["group"] == inference::GROUP) {
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        check(schema, crd["spec"]["names"]["kind"].as_str().unwrap(), &mut problems);
    }
    assert_eq!(problems, Vec::<String>::new());
    let page = include_str!("../../../../docs/endpoint-picker.md");
    for term in ["**priority**", "**fairness**"] {
        assert!(page.contains(term), "the glossary defines {term}");
    }
}

// spec: RT-1
#[rstest]
#[case("ServingRuntime", "ClusterServingRuntime")]
#[case("BaseModel", "ClusterBaseModel")]
fn namespaced_and_cluster_kinds_differ_in_scope_only(#[case] namespaced: &str, #[case] cluster: &str) {
    let spec_of = |kind: &str| {
        crds().into_iter().find(|crd| crd["spec"]["names"]["kind"] == kind).map(|crd| crd["spec"].clone()).unwrap()
    };
    let (namespaced, cluster) = (spec_of(namespaced), spec_of(cluster));
    let properties = |crd: &Value| {
        let mut properties = crd["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clone();
        properties["spec"]["description"] = Value::Null;
        properties
    };
    assert_eq!(properties(&cluster), properties(&namespaced));
    assert_eq!((namespaced["scope"].as_str(), cluster["scope"].as_str()), (Some("Namespaced"), Some("Cluster")));
    assert_eq!((&namespaced["group"], &namespaced["versions"][0]["name"]), (&json!("ome.io"), &json!("v1beta1")));
}

fn compiled_schema(api_version: &str, kind: &str) -> Schema {
    Schema::from_json(schema(api_version, kind).unwrap().json).unwrap()
}

// spec: ACC-57
// spec: ACC-129
#[test]
fn strategy_and_quantity_have_defaults() {
    let mut service = json!({"spec": {"acceleratorSelector": {"preferredClasses": ["a"]}}});
    compiled_schema(ome::API_VERSION, "InferenceService").default(&mut service);
    assert_eq!(service["spec"]["acceleratorSelector"]["strategy"], "balanced");
    let mut class = json!({"spec": {"resources": [{"name": "nvidia.com/gpu"}]}});
    compiled_schema(ome::API_VERSION, "AcceleratorClass").default(&mut class);
    assert_eq!(class["spec"]["resources"][0], json!({"name": "nvidia.com/gpu", "quantity": "1", "divisible": false}));
}

// spec: RT-17
// spec: RT-24
#[test]
fn runtime_defaults_to_no_auto_select_and_one_replica() {
    for kind in ["ServingRuntime", "ClusterServingRuntime"] {
        let mut runtime = json!({"spec": {"supportedModelFormats": [{}], "engineConfig": {}, "decoderConfig": {}}});
        compiled_schema(ome::API_VERSION, kind).default(&mut runtime);
        assert_eq!(runtime["spec"]["supportedModelFormats"][0]["autoSelect"], false);
        assert_eq!(runtime["spec"]["engineConfig"]["minReplicas"], 1);
    }
    // Services have no default, so they inherit the replica count of the runtime.
    let mut service = json!({"spec": {"engine": {}}});
    compiled_schema(ome::API_VERSION, "InferenceService").default(&mut service);
    assert_eq!(service["spec"]["engine"], json!({}));
}

#[rstest]
#[case(json!({"discovery": {}}), "spec.capabilities")]
#[case(json!({"discovery": {}, "capabilities": {}, "cost": {"tier": "huge"}}), "spec.cost.tier")]
#[case(json!({"discovery": {}, "capabilities": {}, "resources": [{}]}), "spec.resources[0].name")]
fn class_errors_have_the_field_path(#[case] spec: Value, #[case] field: &str) {
    let class =
        json!({"apiVersion": ome::API_VERSION, "kind": "AcceleratorClass", "metadata": {"name": "a"}, "spec": spec});
    let causes = compiled_schema(ome::API_VERSION, "AcceleratorClass").validate(&class);
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(fields, [field]);
}

#[rstest]
#[case(json!({"strategy": "fastest"}), "spec.acceleratorSelector.strategy")]
#[case(json!({"policy": "Best"}), "spec.acceleratorSelector.policy")]
fn selector_errors_have_the_field_path(#[case] selector: Value, #[case] field: &str) {
    let service = json!({"metadata": {"name": "a"}, "spec": {"acceleratorSelector": selector}});
    let causes = compiled_schema(ome::API_VERSION, "InferenceService").validate(&service);
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(fields, [field]);
}

#[rstest]
#[case(json!({"acceleratorRequirements": {"preferenceOrder": [{"class": "a", "score": 101}]}}), "spec.acceleratorRequirements.preferenceOrder[0].score")]
#[case(json!({"acceleratorRequirements": {"preferenceOrder": [{"class": "a"}]}}), "spec.acceleratorRequirements.preferenceOrder[0].score")]
#[case(json!({"acceleratorConfigurations": [{"env": []}]}), "spec.acceleratorConfigurations[0].selector")]
#[case(json!({"supportedModelFormats": [{"priority": 0}]}), "spec.supportedModelFormats[0].priority")]
fn runtime_errors_have_the_field_path(#[case] spec: Value, #[case] field: &str) {
    for kind in ["ServingRuntime", "ClusterServingRuntime"] {
        let runtime = json!({"metadata": {"name": "a"}, "spec": spec});
        let causes = compiled_schema(ome::API_VERSION, kind).validate(&runtime);
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, [field]);
    }
}

#[rstest]
#[case::valid("svc", json!([{"name": "a", "componentType": "worker", "template": {}}]), 0)]
#[case::two_routers("svc", json!([{"name": "a", "componentType": "router"}, {"name": "b", "componentType": "router"}]), 1)]
#[case::too_long("a-service-name-of-forty-five-characters-xxxxx", json!([{"name": "abc", "componentType": "worker", "template": {}}]), 1)]
#[case::starts_with_digit("7b", json!([{"name": "a", "componentType": "worker", "template": {}}]), 1)]
#[case::no_template("svc", json!([{"name": "a", "componentType": "worker"}]), 1)]
fn validates_roles(#[case] name: &str, #[case] roles: Value, #[case] violations: usize) {
    let service = json!({
        "apiVersion": fusioninfer::API_VERSION,
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"roles": roles},
    });
    let schema = compiled_schema(fusioninfer::API_VERSION, "InferenceService");
    assert_eq!(schema.validate(&service), []);
    assert_eq!(schema.check_rules(&service, None).len(), violations);
}
