//! What the embedded API server takes and refuses of our kinds: schemas, CEL, and the review between objects.

use serde_json::{Value, json};

use crate::cluster::{SERVICES, World};

const CLASSES: &str = "acceleratorclasses.ome.io";
const RUNTIMES: &str = "servingruntimes.ome.io";
const CLUSTER_RUNTIMES: &str = "clusterservingruntimes.ome.io";

fn yaml(text: &str) -> Value {
    api::manifest::read("test", text).unwrap().remove(0).value
}

/// An object of the kind behind `resource`, its spec in YAML.
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

/// Resource, spec, and what the refusal says.
const REFUSED: &[(&str, &str, &str)] = &[
    (CLASSES, "{discovery: {}}", "spec.capabilities: Required value"),
    (CLASSES, "{capabilities: {}}", "discovery is required"),
    (CLASSES, "{discovery: {}, capabilities: {}, cost: {tier: huge}}", "spec.cost.tier: Unsupported value"),
    (CLASSES, "{discovery: {}, capabilities: {}, resources: [{}]}", "spec.resources[0].name: Required value"),
    (CLASSES, "{discovery: {}, capabilities: {memoryGB: -80Gi}}", "spec.capabilities.memoryGB: Invalid value"),
    (
        SERVICES,
        "{model: {name: m}, acceleratorSelector: {strategy: fastest}}",
        "spec.acceleratorSelector.strategy: Unsupported value",
    ),
    (SERVICES, "{}", "nothing to serve; name a model"),
    (
        SERVICES,
        "{model: {name: m}, annotations: {ome.io/cost-threshold: cheap}}",
        "spec.annotations[ome.io/cost-threshold]: `cheap` is not a price",
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
    (CLUSTER_RUNTIMES, "{modelSizeRange: {min: 9B, max: 5B}}", "spec.modelSizeRange: min 9B is above max 5B"),
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
        "spec.supportedModelFormats[1].priority: priority 2 differs from the 1 of entry 0",
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
async fn refused_with_the_field() {
    let world = World::stocked();
    for (resource, spec, expect) in REFUSED {
        let status = world.server.create(resource, object(resource, "a", spec)).expect_err(spec);
        assert_eq!(status.code, 422, "{}", status.message);
        assert!(status.message.contains(expect), "{}", status.message);
        assert!(["", "default"].iter().all(|namespace| world.server.get(resource, namespace, "a").is_none()));
    }
}

// spec: ACC-129
// spec: ACC-57
#[tokio::test(start_paused = true)]
async fn defaults_are_filled_in() {
    let world = World::stocked();
    let class = object(CLASSES, "a", "{discovery: {}, capabilities: {}, resources: [{name: acme.com/npu}]}");
    let class = world.server.create(CLASSES, class).unwrap();
    assert_eq!(class["spec"]["resources"][0]["quantity"], "1");
    let service = object(SERVICES, "a", "{model: {name: m}, acceleratorSelector: {policy: Cheapest}}");
    let service = world.server.create(SERVICES, service).unwrap();
    assert_eq!(service["spec"]["acceleratorSelector"], json!({"policy": "Cheapest", "strategy": "balanced"}));
    // The policy was written, the strategy was not: the policy counts.
    let read: api::ome::InferenceService = serde_json::from_value((*service).clone()).unwrap();
    let demand = decide::Demand::of(&read, None).unwrap();
    let engine = &demand.components[&decide::Component::Engine];
    assert_eq!(engine.selector.ranking.as_str(), "cost");
}

// spec: ACC-24
#[tokio::test(start_paused = true)]
async fn vendor_fields_survive_where_no_neighbour_is() {
    let world = World::stocked();
    let spec = "{discovery: {}, capabilities: {rocmVersion: '5.7', levelZeroVersion: '1.3'}, integration: {kueueResourceFlavor: f, volcanoGPUType: g}}";
    let written = object(CLASSES, "a", spec);
    let stored = world.server.create(CLASSES, written.clone()).unwrap();
    assert_eq!(stored["spec"], written["spec"]);
}

// spec: RT-5
#[tokio::test(start_paused = true)]
async fn the_example_runtime_is_kept_whole() {
    let world = World::stocked();
    // It stands for itself, not beside the catalogue's for the same model.
    for shipped in world.server.list(CLUSTER_RUNTIMES) {
        world.server.delete(CLUSTER_RUNTIMES, "", shipped["metadata"]["name"].as_str().unwrap(), None).unwrap();
    }
    let written = yaml(include_str!("../../../api/src/manifest/example_runtime.yaml"));
    world.server.create(CLUSTER_RUNTIMES, written.clone()).unwrap();
    let stored = world.server.get(CLUSTER_RUNTIMES, "", "srt-mistral-7b-instruct").unwrap();
    assert_eq!(stored["spec"], written["spec"]);
}

/// Every attribute of the tables, with a value of its own.
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
async fn every_attribute_is_served_described_and_kept() {
    let world = World::stocked();
    let spec = format!("\n  {}", ATTRIBUTES.trim().replace('\n', "\n  "));
    for resource in [RUNTIMES, CLUSTER_RUNTIMES] {
        let written = object(resource, "all", &spec);
        let namespace = written["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        world.server.create(resource, written.clone()).unwrap();
        let stored = world.server.get(resource, &namespace, "all").unwrap();
        assert_eq!(stored["spec"], written["spec"]);
        let definition = world.server.get("customresourcedefinitions.apiextensions.k8s.io", "", resource).unwrap();
        let served = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut seen = 0;
        described(served, &written["spec"], "spec", &mut seen);
        assert!(seen > 80, "{seen}");
    }
}

/// Every field of `written` that has a name of ours has a schema with a description.
fn described(schema: &Value, written: &Value, path: &str, seen: &mut usize) {
    match written {
        Value::Object(fields) => {
            for (name, value) in fields {
                let known = &schema["properties"][name];
                let open = schema["x-kubernetes-preserve-unknown-fields"] == true
                    || schema["additionalProperties"].is_object();
                if known.is_null() && open {
                    continue;
                }
                assert!(known["description"].as_str().is_some_and(|text| !text.is_empty()), "{path}.{name}");
                *seen += 1;
                described(known, value, &format!("{path}.{name}"), seen);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| described(&schema["items"], item, path, seen)),
        _ => {}
    }
}

// spec: ACC-31
#[tokio::test(start_paused = true)]
async fn a_class_lives_as_any_cluster_scoped_object() {
    let world = World::stocked();
    let class =
        |vendor: &str| object(CLASSES, "a", &format!("{{vendor: {vendor}, discovery: {{}}, capabilities: {{}}}}"));
    let mut changes = world.server.subscribe();
    world.server.create(CLASSES, class("acme")).unwrap();
    assert_eq!(world.server.create(CLASSES, class("acme")).unwrap_err().code, 409);
    assert_eq!(world.server.get(CLASSES, "", "a").unwrap()["spec"]["vendor"], "acme");
    assert!(world.server.list(CLASSES).iter().any(|one| one["metadata"]["name"] == "a"));
    world.server.update(CLASSES, class("other")).unwrap();
    assert_eq!(world.server.get(CLASSES, "", "a").unwrap()["spec"]["vendor"], "other");
    world.server.delete(CLASSES, "", "a", None).unwrap();
    assert!(world.server.get(CLASSES, "", "a").is_none());
    let mut seen = 0;
    while seen < 3 {
        let change = changes.next().await.unwrap();
        seen += usize::from(change.name == "a");
    }
}

fn competitor(change: &str) -> String {
    format!(
        "{{supportedModelFormats: [{{modelFormat: {{name: acme}}, modelArchitecture: AcmeLM, autoSelect: true, {change}}}], engineConfig: {{runner: {{image: i}}}}}}"
    )
}

// spec: RT-73
// spec: RT-77
#[tokio::test(start_paused = true)]
async fn the_second_of_two_equal_runtimes_is_refused() {
    let world = World::stocked();
    for resource in [RUNTIMES, CLUSTER_RUNTIMES] {
        world.server.create(resource, object(resource, "first", &competitor("priority: 7"))).unwrap();
        let status = world.server.create(resource, object(resource, "second", &competitor("priority: 7"))).unwrap_err();
        assert_eq!(status.code, 422);
        assert!(
            status.message.contains("`second` and `first` are selected for the same models with the same priority 7"),
            "{}",
            status.message
        );
        world.server.create(resource, object(resource, "second", &competitor("priority: 8"))).unwrap();
        let mut edited =
            (*world.server.get(resource, if resource == RUNTIMES { "default" } else { "" }, "second").unwrap()).clone();
        edited["spec"]["supportedModelFormats"][0]["priority"] = json!(7);
        assert_eq!(world.server.update(resource, edited).unwrap_err().code, 422);
    }
}

// spec: ACC-4
#[tokio::test(start_paused = true)]
async fn nothing_new_needs_to_be_said() {
    let world = World::start(true).await;
    let runtime = "{supportedModelFormats: [{modelFormat: {name: safetensors}, modelFramework: {name: transformers}, modelArchitecture: LlamaForCausalLM}], engineConfig: {runner: {name: ome-container, image: i}}}";
    world.server.create(RUNTIMES, object(RUNTIMES, "plain", runtime)).unwrap();
    let service = object(SERVICES, "old", "{model: {name: llama-3-2-3b-instruct}, runtime: {name: plain}}");
    world.server.create(SERVICES, service).unwrap();
    let service = world.condition(SERVICES, "old", "RuntimeResolved", "True").await;
    assert_eq!(service["status"]["decision"]["feasible"], true);
    assert_eq!(service["status"]["decision"]["runtime"]["name"], "plain");
}
