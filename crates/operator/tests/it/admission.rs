//! Validation of ostler kinds in the embedded API server: schemas, CEL, and rules between objects.

use serde_json::{Value, json};

use crate::test_cluster::{OME_SERVICES, TestCluster};

const CLASSES: &str = "acceleratorclasses.ome.io";
const RUNTIMES: &str = "servingruntimes.ome.io";
const CLUSTER_RUNTIMES: &str = "clusterservingruntimes.ome.io";

fn yaml(text: &str) -> Value {
    api::parse_manifest("test", text).unwrap().remove(0).value
}

/// Returns an object of `resource` with its spec in YAML.
fn object(resource: &str, name: &str, spec: &str) -> Value {
    let kind = match resource {
        CLASSES => "AcceleratorClass",
        RUNTIMES => "ServingRuntime",
        CLUSTER_RUNTIMES => "ClusterServingRuntime",
        "basemodels.ome.io" => "BaseModel",
        _ => "InferenceService",
    };
    let namespace = if [CLASSES, CLUSTER_RUNTIMES].contains(&resource) { "" } else { "namespace: default" };
    yaml(&format!("apiVersion: ome.io/v1beta1\nkind: {kind}\nmetadata:\n  name: {name}\n  {namespace}\nspec: {spec}\n"))
}

/// Resource, spec, and the expected error.
const REJECTED_OBJECTS: &[(&str, &str, &str)] = &[
    (CLASSES, "{discovery: {}}", "spec.capabilities: Required value"),
    (CLASSES, "{capabilities: {}}", "discovery is required"),
    (CLASSES, "{discovery: {}, capabilities: {}, cost: {tier: huge}}", "spec.cost.tier: Unsupported value"),
    (CLASSES, "{discovery: {}, capabilities: {}, resources: [{}]}", "spec.resources[0].name: Required value"),
    (CLASSES, "{discovery: {}, capabilities: {memoryGB: -80Gi}}", "spec.capabilities.memoryGB: Invalid value"),
    (
        OME_SERVICES,
        "{model: {name: m}, acceleratorSelector: {strategy: fastest}}",
        "spec.acceleratorSelector.strategy: Unsupported value",
    ),
    (OME_SERVICES, "{}", "no model, runtime or engine container is set; set `model`"),
    (
        OME_SERVICES,
        "{model: {name: m}, annotations: {ome.io/cost-threshold: cheap}}",
        "spec.annotations[ome.io/cost-threshold]: `cheap` is not a valid price",
    ),
    (
        RUNTIMES,
        "{acceleratorRequirements: {preferenceOrder: [{class: a, score: 101}]}}",
        "spec.acceleratorRequirements.preferenceOrder[0].score: Invalid value: 101",
    ),
    (
        RUNTIMES,
        "{acceleratorRequirements: {preferenceOrder: [{class: a, score: -1}]}}",
        "spec.acceleratorRequirements.preferenceOrder[0].score: Invalid value: -1",
    ),
    (
        RUNTIMES,
        "{acceleratorRequirements: {preferenceOrder: [{class: a}]}}",
        "spec.acceleratorRequirements.preferenceOrder[0].score: Required value",
    ),
    (
        RUNTIMES,
        "{acceleratorConfigurations: [{env: []}]}",
        "spec.acceleratorConfigurations[0].selector: Required value",
    ),
    (
        RUNTIMES,
        "{acceleratorRequirements: {preferenceOrder: [{class: a, score: 1, conditions: [{modelSize: small}]}]}}",
        "`small` is not a comparison",
    ),
    (CLUSTER_RUNTIMES, "{protocolVersions: [grpc]}", "spec.protocolVersions[0]: Unsupported value"),
    (CLUSTER_RUNTIMES, "{modelSizeRange: {min: 9B, max: 5B}}", "spec.modelSizeRange: min 9B is greater than max 5B"),
    (CLUSTER_RUNTIMES, "{modelSizeRange: {min: 7Bx}}", "spec.modelSizeRange.min: Invalid value: \"7Bx\""),
    (
        CLUSTER_RUNTIMES,
        "{supportedModelFormats: [{priority: 0}]}",
        "spec.supportedModelFormats[0].priority: Invalid value: 0",
    ),
    (
        RUNTIMES,
        "{supportedModelFormats: [{priority: -4}]}",
        "spec.supportedModelFormats[0].priority: Invalid value: -4",
    ),
    (
        RUNTIMES,
        "{supportedModelFormats: [{modelFormat: {name: a, version: '1'}, priority: 1}, {modelFormat: {name: a, version: '2'}, priority: 2}]}",
        "spec.supportedModelFormats[1].priority: priority 2 differs from priority 1 of entry 0",
    ),
    ("basemodels.ome.io", "{modelParameterSize: lots}", "spec.modelParameterSize: Invalid value: \"lots\""),
];

// spec: ACC-14
// spec: ACC-27
// spec: ACC-129
// spec: ACC-57
// spec: ACC-63
// spec: RT-19
// spec: RT-20
// spec: RT-72
// spec: RT-74
#[tokio::test(start_paused = true)]
async fn rejects_invalid_objects() {
    let test_cluster = TestCluster::with_catalog();
    for (resource, spec, expect) in REJECTED_OBJECTS {
        let status = test_cluster.server.create(resource, object(resource, "a", spec)).expect_err(spec);
        assert_eq!(status.code, 422, "{}", status.message);
        assert!(status.message.contains(expect), "{}", status.message);
        assert!(["", "default"].iter().all(|namespace| test_cluster.server.get(resource, namespace, "a").is_none()));
    }
}

// spec: ACC-129
// spec: ACC-57
#[tokio::test(start_paused = true)]
async fn sets_defaults() {
    let test_cluster = TestCluster::with_catalog();
    let class = object(CLASSES, "a", "{discovery: {}, capabilities: {}, resources: [{name: acme.com/npu}]}");
    let class = test_cluster.server.create(CLASSES, class).unwrap();
    assert_eq!(class["spec"]["resources"][0]["quantity"], "1");
    let service = object(OME_SERVICES, "a", "{model: {name: m}, acceleratorSelector: {policy: Cheapest}}");
    let service = test_cluster.server.create(OME_SERVICES, service).unwrap();
    assert_eq!(service["spec"]["acceleratorSelector"], json!({"policy": "Cheapest", "strategy": "balanced"}));
    // The user set only the policy, so it overrides the default strategy.
    let read: api::ome::InferenceService = serde_json::from_value((*service).clone()).unwrap();
    let demand = decide::Demand::from_api(&read, None).unwrap();
    let engine = &demand.components[&decide::Component::Engine];
    assert_eq!(engine.selector.ranking.as_str(), "cost");
}

// spec: ACC-24
#[tokio::test(start_paused = true)]
async fn keeps_vendor_fields_without_their_integration() {
    let test_cluster = TestCluster::with_catalog();
    let spec = "{discovery: {}, capabilities: {rocmVersion: '5.7', levelZeroVersion: '1.3'}, integration: {kueueResourceFlavor: f, volcanoGPUType: g}}";
    let manifest = object(CLASSES, "a", spec);
    let stored = test_cluster.server.create(CLASSES, manifest.clone()).unwrap();
    assert_eq!(stored["spec"], manifest["spec"]);
}

// spec: RT-5
#[tokio::test(start_paused = true)]
async fn keeps_the_example_runtime_unchanged() {
    let test_cluster = TestCluster::with_catalog();
    // The catalog's runtimes for the same model would conflict.
    for shipped in test_cluster.server.list(CLUSTER_RUNTIMES) {
        test_cluster.server.delete(CLUSTER_RUNTIMES, "", shipped["metadata"]["name"].as_str().unwrap(), None).unwrap();
    }
    let manifest = yaml(include_str!("../../../api/src/manifest/example_runtime.yaml"));
    test_cluster.server.create(CLUSTER_RUNTIMES, manifest.clone()).unwrap();
    let stored = test_cluster.server.get(CLUSTER_RUNTIMES, "", "srt-mistral-7b-instruct").unwrap();
    assert_eq!(stored["spec"], manifest["spec"]);
}

/// All attributes of the specification tables, each with its own value.
const ATTRIBUTES: &str = "
disabled: true
supportedModelFormats:
- name: safetensors
  modelFormat: {name: safetensors, version: 1.0.0}
  modelFramework: {name: transformers, version: 4.36.2}
  modelArchitecture: LlamaForCausalLM
  quantization: fp8
  autoSelect: true
  priority: 3
protocolVersions: [openAI, cohere]
modelSizeRange: {min: 1B, max: 9B}
engineConfig: &component
  runner: &runner {name: c, image: i, resources: {limits: {cpu: 1}}, env: [{name: A, value: b}]}
  minReplicas: 0
  maxReplicas: 3
  scaleTarget: 70
  scaleMetric: rps
  volumes: [{name: v, emptyDir: {}}]
  nodeSelector: {a: b}
  affinity: {nodeAffinity: {}}
  tolerations: [{key: k, operator: Exists}]
  leader: {runner: *runner}
  worker: {size: 2, runner: *runner}
decoderConfig: *component
routerConfig: {runner: *runner, config: {a: b}, minReplicas: 1, maxReplicas: 2}
";

// spec: RT-8
#[tokio::test(start_paused = true)]
async fn keeps_and_describes_all_attributes() {
    let test_cluster = TestCluster::with_catalog();
    let spec = format!("\n  {}", ATTRIBUTES.trim().replace('\n', "\n  "));
    for resource in [RUNTIMES, CLUSTER_RUNTIMES] {
        let manifest = object(resource, "all", &spec);
        let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        test_cluster.server.create(resource, manifest.clone()).unwrap();
        let stored = test_cluster.server.get(resource, &namespace, "all").unwrap();
        assert_eq!(stored["spec"], manifest["spec"]);
        let definition =
            test_cluster.server.get("customresourcedefinitions.apiextensions.k8s.io", "", resource).unwrap();
        let spec_schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut count = 0;
        assert_fields_have_descriptions(spec_schema, &manifest["spec"], "spec", &mut count);
        assert!(count > 80, "{count}");
    }
}

/// Checks that every ostler field of `manifest` has a schema with a description.
fn assert_fields_have_descriptions(schema: &Value, manifest: &Value, path: &str, count: &mut usize) {
    match manifest {
        Value::Object(fields) => {
            for (name, value) in fields {
                let field_schema = &schema["properties"][name];
                let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true
                    || schema["additionalProperties"].is_object();
                if field_schema.is_null() && is_open {
                    continue;
                }
                assert!(field_schema["description"].as_str().is_some_and(|text| !text.is_empty()), "{path}.{name}");
                *count += 1;
                assert_fields_have_descriptions(field_schema, value, &format!("{path}.{name}"), count);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| assert_fields_have_descriptions(&schema["items"], item, path, count));
        }
        _ => {}
    }
}

// spec: ACC-31
#[tokio::test(start_paused = true)]
async fn class_supports_all_verbs() {
    let test_cluster = TestCluster::with_catalog();
    let class =
        |vendor: &str| object(CLASSES, "a", &format!("{{vendor: {vendor}, discovery: {{}}, capabilities: {{}}}}"));
    let mut changes = test_cluster.server.subscribe();
    test_cluster.server.create(CLASSES, class("acme")).unwrap();
    assert_eq!(test_cluster.server.create(CLASSES, class("acme")).unwrap_err().code, 409);
    assert_eq!(test_cluster.server.get(CLASSES, "", "a").unwrap()["spec"]["vendor"], "acme");
    assert!(test_cluster.server.list(CLASSES).iter().any(|class| class["metadata"]["name"] == "a"));
    test_cluster.server.update(CLASSES, class("other")).unwrap();
    assert_eq!(test_cluster.server.get(CLASSES, "", "a").unwrap()["spec"]["vendor"], "other");
    test_cluster.server.delete(CLASSES, "", "a", None).unwrap();
    assert!(test_cluster.server.get(CLASSES, "", "a").is_none());
    let mut count = 0;
    while count < 3 {
        let change = changes.next().await.unwrap();
        count += usize::from(change.name == "a");
    }
}

fn competing_runtime(change: &str) -> String {
    format!(
        "{{supportedModelFormats: [{{modelFormat: {{name: acme}}, modelArchitecture: AcmeLM, autoSelect: true, {change}}}], engineConfig: {{runner: {{image: i}}}}}}"
    )
}

// spec: RT-73
// spec: RT-77
#[tokio::test(start_paused = true)]
async fn rejects_the_second_of_two_equal_runtimes() {
    let test_cluster = TestCluster::with_catalog();
    for resource in [RUNTIMES, CLUSTER_RUNTIMES] {
        test_cluster.server.create(resource, object(resource, "first", &competing_runtime("priority: 7"))).unwrap();
        let status = test_cluster
            .server
            .create(resource, object(resource, "second", &competing_runtime("priority: 7")))
            .unwrap_err();
        assert_eq!(status.code, 422);
        assert!(
            status.message.contains("`second` and `first` are selected for the same models with the same priority 7"),
            "{}",
            status.message
        );
        test_cluster.server.create(resource, object(resource, "second", &competing_runtime("priority: 8"))).unwrap();
        let mut edited_runtime =
            (*test_cluster.server.get(resource, if resource == RUNTIMES { "default" } else { "" }, "second").unwrap())
                .clone();
        edited_runtime["spec"]["supportedModelFormats"][0]["priority"] = json!(7);
        assert_eq!(test_cluster.server.update(resource, edited_runtime).unwrap_err().code, 422);
    }
}

// spec: ACC-4
#[tokio::test(start_paused = true)]
async fn existing_manifests_need_no_changes() {
    let test_cluster = TestCluster::start(true).await;
    let runtime = "{supportedModelFormats: [{modelFormat: {name: safetensors}, modelFramework: {name: transformers}, modelArchitecture: LlamaForCausalLM}], engineConfig: {runner: {name: ome-container, image: i}}}";
    test_cluster.server.create(RUNTIMES, object(RUNTIMES, "plain", runtime)).unwrap();
    let service = object(OME_SERVICES, "old", "{model: {name: llama-3-2-3b-instruct}, runtime: {name: plain}}");
    test_cluster.server.create(OME_SERVICES, service).unwrap();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "old", "RuntimeResolved", "True").await;
    assert_eq!(service["status"]["decision"]["runtime"]["name"], "plain");
}
