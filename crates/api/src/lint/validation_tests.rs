//! Rejections by schemas and CEL rules, each with its field path, message and hint: one case per rule.

use rstest::rstest;

use super::*;
use crate::manifest;

/// Returns `path: message | hint` of each error, in order.
fn errors(kind: &str, spec: &str) -> Vec<String> {
    findings(kind, spec, Severity::Error)
}

fn warnings(kind: &str, spec: &str) -> Vec<String> {
    findings(kind, spec, Severity::Warning)
}

fn findings(kind: &str, spec: &str, severity: Severity) -> Vec<String> {
    let text = format!("apiVersion: ome.io/v1beta1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n");
    let documents = manifest::parse_manifest("f.yaml", &text).unwrap();
    let findings = lint_document(&documents[0]).into_iter().filter(|finding| finding.severity == severity);
    findings
        .map(|finding| format!("{}: {} | {}", finding.path, finding.message, finding.hint.unwrap_or_default()))
        .collect()
}

#[track_caller]
fn assert_rejected(kind: &str, spec: &str, expect: &str) {
    let errors = errors(kind, spec);
    assert!(errors.len() == 1 && errors[0].starts_with(expect), "{spec}\n{errors:#?}");
    assert!(!errors[0].ends_with("| "), "no hint: {errors:#?}");
}

#[track_caller]
fn assert_accepted(kind: &str, spec: &str) {
    assert_eq!(errors(kind, spec), Vec::<String>::new(), "{spec}");
}

const CLASS: &str = "AcceleratorClass";
const RUNTIME: &str = "ClusterServingRuntime";
const SERVICE: &str = "InferenceService";
const MODEL: &str = "BaseModel";

#[rstest]
// spec: ACC-14
#[case("{capabilities: {}}", "spec: discovery is required | select the nodes")]
// spec: ACC-14
#[case("{discovery: {}}", "spec.capabilities: required field is missing | add the field")]
// spec: ACC-27
#[case("{discovery: {}, capabilities: {}, cost: {tier: huge}}", r#"spec.cost.tier: Unsupported value: "huge""#)]
// spec: ACC-27
#[case(
    "{discovery: {}, capabilities: {}, cost: {perHour: much}}",
    "spec.cost.perHour: `much` is not a number of zero or more | write a number such as `2.21`"
)]
#[case(
    "{discovery: {}, capabilities: {}, cost: {perHour: -2.21}}",
    "spec.cost.perHour: should be greater than or equal to 0"
)]
#[case("{discovery: {}, capabilities: {}, cost: {perHour: \"-2.21\"}}", "spec.cost.perHour: `-2.21` is negative")]
#[case("{discovery: {}, capabilities: {}, resources: [{}]}", "spec.resources[0].name: required field is missing")]
#[case(
    "{discovery: {}, capabilities: {}, resources: [{name: a/b, quantity: 0}]}",
    "spec.resources[0].quantity: should be greater than or equal to 1"
)]
#[case(
    "{discovery: {}, capabilities: {}, resources: [{name: a/b, quantity: some}]}",
    "spec.resources[0].quantity: `some` is not a count of one or more"
)]
#[case(
    "{discovery: {}, capabilities: {memoryGB: lots}}",
    "spec.capabilities.memoryGB: `lots` is not an amount of memory | write it in GiB"
)]
#[case(
    "{discovery: {}, capabilities: {memoryGB: -80}}",
    "spec.capabilities.memoryGB: should be greater than or equal to 0"
)]
#[case("{discovery: {}, capabilities: {memoryGB: -80Gi}}", "spec.capabilities.memoryGB: `-80Gi` is negative")]
#[case(
    "{discovery: {}, capabilities: {computeCapability: gfx90a}}",
    "spec.capabilities.computeCapability: `gfx90a` is not a compute capability"
)]
#[case(
    "{discovery: {}, capabilities: {computeCapability: 8.0}}",
    "spec.capabilities.computeCapability: must be of type string: \"number\" | put the value in quotes"
)]
#[case("{discovery: {}, capabilities: {clockSpeedMHz: -1}}", "spec.capabilities.clockSpeedMHz: should be greater")]
#[case(
    "{discovery: {}, capabilities: {performance: {fp8TFLOPS: -1}}}",
    "spec.capabilities.performance.fp8TFLOPS: should be greater"
)]
fn rejects_invalid_classes(#[case] spec: &str, #[case] expect: &str) {
    assert_rejected(CLASS, spec, expect);
}

#[rstest]
// spec: ACC-14
#[case("{discovery: {nodeSelector: {a: b}}, capabilities: {}}")]
// spec: ACC-14
#[case(
    "{vendor: unlisted vendor, resources: [{name: any.thing/at-all}], family: x, model: 'y z', discovery: {nodeSelector: {a: b}}, capabilities: {}}"
)]
// spec: ACC-24
#[case(
    "{discovery: {nodeSelector: {a: b}}, capabilities: {rocmVersion: '5.7', levelZeroVersion: '1.3'}, integration: {kueueResourceFlavor: f, volcanoGPUType: g}}"
)]
// spec: ACC-27
#[case(
    "{discovery: {nodeSelector: {a: b}}, capabilities: {}, cost: {perHour: '2.21', spotPerHour: 0.88, perMillionTokens: 1, tier: low}}"
)]
// spec: ACC-25
#[case(
    "{discovery: {nodeSelector: {a: b}}, capabilities: {minComputeCapability: '8.0', requiredFeatures: [tensor-cores]}}"
)]
// spec: ACC-50
#[case(
    "{nodeSelector: {nvidia.com/gpu.product: A100-SXM4-40GB}, capabilities: {memoryGB: 40, computeCapability: '8.0'}}"
)]
fn accepts_valid_classes(#[case] spec: &str) {
    assert_accepted(CLASS, spec);
    assert_eq!(warnings(CLASS, spec), Vec::<String>::new());
}

#[rstest]
#[case(
    "{modelSizeRange: {min: lots}}",
    "spec.modelSizeRange.min: `lots` is not a model size | write a number with K, M, B or T"
)]
// spec: RT-20
#[case(
    "{modelSizeRange: {min: 9B, max: 5B}}",
    "spec.modelSizeRange: min 9B is greater than max 5B, so no model is in the range | swap min and max"
)]
// spec: RT-19
#[case("{protocolVersions: [grpc]}", r#"spec.protocolVersions[0]: Unsupported value: "grpc": supported values: "openAI", "cohere", "openInference-v1", "openInference-v2" | use one of openAI"#)]
// spec: RT-18
#[case(
    "{supportedModelFormats: [{priority: 0}]}",
    "spec.supportedModelFormats[0].priority: should be greater than or equal to 1"
)]
#[case(
    "{supportedModelFormats: [{priority: -4}]}",
    "spec.supportedModelFormats[0].priority: should be greater than or equal to 1"
)]
// spec: RT-13
#[case(
    "{supportedModelFormats: [{modelFormat: {name: a, version: newest}}]}",
    "spec.supportedModelFormats[0].modelFormat.version: `newest` is not a version | write major"
)]
// spec: RT-13
#[case(
    "{supportedModelFormats: [{modelFormat: {name: a, version: 1.2.3.4}}]}",
    "spec.supportedModelFormats[0].modelFormat.version: `1.2.3.4` is not a version | write major"
)]
// spec: RT-14
#[case(
    "{supportedModelFormats: [{modelFramework: {name: transformers, version: four}}]}",
    "spec.supportedModelFormats[0].modelFramework.version: `four` is not a version"
)]
#[case(
    "{supportedModelFormats: [{modelFormat: {version: '1'}}]}",
    "spec.supportedModelFormats[0].modelFormat.name: required field is missing"
)]
#[case(
    "{supportedModelFormats: [{modelFormat: {name: a, operator: LessThan}}]}",
    r#"spec.supportedModelFormats[0].modelFormat.operator: Unsupported value: "LessThan""#
)]
// spec: RT-27
#[case("{engineConfig: {scaleMetric: gpu}}", r#"spec.engineConfig.scaleMetric: Unsupported value: "gpu""#)]
#[case("{engineConfig: {scaleTarget: 0}}", "spec.engineConfig.scaleTarget: should be greater than or equal to 1")]
#[case(
    "{engineConfig: {minReplicas: 4, maxReplicas: 2}}",
    "spec.engineConfig: minReplicas exceeds maxReplicas | increase maxReplicas or decrease minReplicas"
)]
#[case("{engineConfig: {leader: {}}}", "spec.engineConfig.leader: leader is set without worker | add `worker:`")]
#[case(
    "{engineConfig: {runner: {resources: {limits: {memory: -4Gi}}}}}",
    "spec.engineConfig.runner.resources.limits.memory: `-4Gi` is negative"
)]
#[case(
    "{engineConfig: {runner: {resources: {limits: {memory: -4}}}}}",
    "spec.engineConfig.runner.resources.limits.memory: should be greater than or equal to 0"
)]
#[case(
    "{engineConfig: {runner: {resources: {limits: {memory: 4 gigs}}}}}",
    "spec.engineConfig.runner.resources.limits.memory: `4 gigs` is not a quantity | write a quantity"
)]
#[case(
    "{engineConfig: {runner: {resources: {limits: {cpu: 0.5}}}}}",
    "spec.engineConfig.runner.resources.limits.cpu: must be of type integer,string: \"number\" | put the value in quotes"
)]
#[case(
    "{engineConfig: {runner: {resources: {requests: {cpu: 4}, limits: {cpu: 500m}}}}}",
    "spec.engineConfig.runner.resources.requests: cpu: request 4 exceeds limit \"500m\" | increase the limit"
)]
#[case(
    "{engineConfig: {runner: {env: [{name: A, value: 1}]}}}",
    "spec.engineConfig.runner.env[0].value: must be of type string: \"integer\" | put the value in quotes"
)]
// spec: ACC-63
#[case(
    "{acceleratorRequirements: {preferenceOrder: [{class: a, score: 101}]}}",
    "spec.acceleratorRequirements.preferenceOrder[0].score: should be less than or equal to 100"
)]
// spec: ACC-63
#[case(
    "{acceleratorRequirements: {preferenceOrder: [{class: a, score: -1}]}}",
    "spec.acceleratorRequirements.preferenceOrder[0].score: should be greater than or equal to 0"
)]
// spec: ACC-63
#[case(
    "{acceleratorRequirements: {preferenceOrder: [{class: a}]}}",
    "spec.acceleratorRequirements.preferenceOrder[0].score: required field is missing"
)]
// spec: ACC-63
#[case(
    "{acceleratorRequirements: {preferenceOrder: [{score: 1}]}}",
    "spec.acceleratorRequirements.preferenceOrder[0].class: required field is missing"
)]
// spec: ACC-64
#[case(
    "{acceleratorRequirements: {preferenceOrder: [{class: a, score: 1, conditions: [{modelsize: <7B}]}]}}",
    "spec.acceleratorRequirements.preferenceOrder[0].conditions[0]: unknown condition | supported conditions are modelSize and requestSize"
)]
// spec: ACC-64
#[case(
    "{acceleratorRequirements: {preferenceOrder: [{class: a, score: 1, conditions: [{modelSize: small}]}]}}",
    "spec.acceleratorRequirements.preferenceOrder[0].conditions[0].modelSize: `small` is not a comparison | write a comparison such as `<30B`"
)]
#[case(
    "{acceleratorConfigurations: [{env: []}]}",
    "spec.acceleratorConfigurations[0].selector: required field is missing"
)]
#[case(
    "{acceleratorConfigurations: [{selector: {}}]}",
    "spec.acceleratorConfigurations[0].selector.acceleratorClass: required field is missing"
)]
fn rejects_invalid_runtimes(#[case] spec: &str, #[case] expect: &str) {
    assert_rejected(RUNTIME, spec, expect);
    assert_rejected("ServingRuntime", spec, expect);
}

#[rstest]
// spec: ACC-62
#[case(
    "{acceleratorRequirements: {}, supportedModelFormats: [], modelSizeRange: {}, disabled: true, routerConfig: {}, engineConfig: {}, decoderConfig: {}}"
)]
// spec: ACC-62
#[case(
    "{acceleratorRequirements: {supportedClasses: [a], requiredCapabilities: {memoryGB: 40}, preferenceOrder: [{class: a, score: 100}]}}"
)]
// spec: ACC-64
#[case(
    "{acceleratorRequirements: {preferenceOrder: [{class: a, score: 0, conditions: [{modelSize: <30B}, {modelSize: '>70B'}, {requestSize: <2048}, {requestSize: '>4096'}]}]}}"
)]
// spec: RT-13
#[case(
    "{supportedModelFormats: [{modelFormat: {name: safetensors, version: '1'}}, {modelFormat: {name: ONNX, version: '2.0'}}, {modelFormat: {name: TensorFlow SavedModel, version: 1.0.0}}]}"
)]
// spec: RT-14
#[case(
    "{supportedModelFormats: [{modelFramework: {name: transformers, version: 4.36.2}}, {modelFramework: {name: TensorRTLLM}}]}"
)]
// spec: RT-15
#[case("{supportedModelFormats: [{modelArchitecture: LlamaForCausalLM}, {modelArchitecture: UnknownArchitecture}]}")]
// spec: RT-16
#[case(
    "{supportedModelFormats: [{quantization: fp8}, {quantization: fbgemm_fp8}, {quantization: int4}, {quantization: anything}]}"
)]
// spec: RT-18
#[case("{supportedModelFormats: [{priority: 1}, {modelArchitecture: A, priority: 2147483647}]}")]
// spec: RT-19
#[case("{protocolVersions: [openAI, cohere, openInference-v1, openInference-v2]}")]
// spec: RT-20
#[case("{modelSizeRange: {min: 5B}}")]
// spec: RT-20
#[case("{modelSizeRange: {max: 9B}}")]
// spec: RT-20
#[case("{modelSizeRange: {min: 5B, max: 5B}}")]
// spec: RT-27
#[case(
    "{engineConfig: {scaleMetric: concurrency, scaleTarget: 80}, decoderConfig: {scaleMetric: rps}, routerConfig: {scaleMetric: memory}}"
)]
// spec: RT-24
#[case("{engineConfig: {minReplicas: 0, maxReplicas: 3}}")]
// spec: RT-7
#[case(
    "{engineConfig: {runner: {resources: {requests: {cpu: 10, memory: 30Gi, nvidia.com/gpu: 2}, limits: {cpu: '10', memory: 30Gi, nvidia.com/gpu: '2'}}}}}"
)]
#[case::template_expression("{engineConfig: {runner: {resources: {requests: {cpu: '{{.Labels.cpu}}'}}}}}")]
fn accepts_valid_runtimes(#[case] spec: &str) {
    assert_accepted(RUNTIME, spec);
    assert_accepted("ServingRuntime", spec);
}

#[rstest]
// spec: RT-21
#[case("7b", true)]
// spec: RT-21
#[case("'7 B'", true)]
#[case("1.5B", true)]
#[case("7000000000", true)]
#[case("'7000000000'", true)]
#[case("350M", true)]
#[case("1T", true)]
#[case("lots", false)]
#[case("7Bx", false)]
// spec: RT-21
#[case("''", false)]
#[case("-7B", false)]
#[case("-7", false)]
#[case("7GB", false)]
#[case::missing_unit("'7.24'", false)]
#[case(".5B", true)]
#[case("'7.24 b'", true)]
fn validates_model_sizes(#[case] size: &str, #[case] is_valid: bool) {
    let errors = errors(MODEL, &format!("{{modelParameterSize: {size}}}"));
    assert_eq!(errors.is_empty(), is_valid, "{errors:?}");
    assert!(errors.iter().all(|error| error.starts_with("spec.modelParameterSize: ")), "{errors:?}");
}

#[rstest]
// spec: ACC-57
#[case("{model: {name: m}, acceleratorSelector: {strategy: fastest}}", r#"spec.acceleratorSelector.strategy: Unsupported value: "fastest": supported values: "performance", "cost", "balanced" | use one of performance, cost, balanced"#)]
#[case("{model: {name: m}, acceleratorSelector: {policy: Best}}", "spec.acceleratorSelector.policy: Unsupported value")]
#[case("{model: {name: m, protocolVersion: grpc}}", "spec.model.protocolVersion: Unsupported value")]
#[case("{model: {name: m, kind: Model}}", "spec.model.kind: Unsupported value")]
#[case("{model: {}}", "spec.model.name: required field is missing")]
#[case("{}", "spec: no model, runtime or engine container is set | set `model`")]
#[case("{engine: {minReplicas: 2}}", "spec: no model, runtime or engine container is set | set `model`")]
#[case(
    "{model: {name: m}, engine: {minReplicas: 3, maxReplicas: 1}}",
    "spec.engine: minReplicas exceeds maxReplicas | increase"
)]
#[case(
    "{model: {name: m}, annotations: {ome.io/selection-strategy: fast}}",
    "spec.annotations[ome.io/selection-strategy]: unknown strategy `fast` | use one of performance, cost, balanced"
)]
#[case(
    "{model: {name: m}, annotations: {ome.io/cost-threshold: cheap}}",
    "spec.annotations[ome.io/cost-threshold]: `cheap` is not a valid price | use dollars per hour"
)]
#[case(
    "{model: {name: m}, annotations: {ome.io/accelerator-class: 'H 100'}}",
    "spec.annotations[ome.io/accelerator-class]: `H 100` is not a valid AcceleratorClass name"
)]
fn rejects_invalid_services(#[case] spec: &str, #[case] expect: &str) {
    assert_rejected(SERVICE, spec, expect);
}

#[rstest]
#[case("{model: {name: m}}")]
#[case("{runtime: {name: r}}")]
#[case("{engine: {runner: {image: i}}}")]
#[case("{engine: {leader: {runner: {image: i}}, worker: {size: 1}}}")]
#[case("{predictor: {model: {}}}")]
// spec: ACC-56
#[case(
    "{model: {name: m}, acceleratorSelector: {preferredClasses: [b, a], requiredCapabilities: {memoryGB: 40}, strategy: cost, nodeSelector: {zone: a}}}"
)]
fn accepts_valid_services(#[case] spec: &str) {
    assert_accepted(SERVICE, spec);
}

// spec: ACC-10
#[test]
fn fields_and_kinds_of_rejected_designs_are_unknown() {
    let spec = "{supportedGPUTypes: [a], gpuConfigurations: [], engineConfig: {runner: {}, nodeSelectorTemplate: {}}, nodeSelectorTemplate: {}}";
    let paths: Vec<String> =
        warnings(RUNTIME, spec).iter().map(|line| line.split(':').next().unwrap().to_owned()).collect();
    let expect = [
        "spec.engineConfig.nodeSelectorTemplate",
        "spec.gpuConfigurations",
        "spec.nodeSelectorTemplate",
        "spec.supportedGPUTypes",
    ];
    assert_eq!(paths, expect);
    assert!(crds::kinds().all(|(_, kind)| kind != "AcceleratorProfile"));
}

#[rstest]
#[case(
    "7b-chat",
    "metadata.name: must start with a letter, contain only a-z, 0-9 and -, and have at most 63 characters, because Services are named after it"
)]
#[case("Chat", "metadata.name: `Chat` is not a valid object name")]
#[case("a.b", "metadata.name: must start with a letter")]
fn rejects_invalid_service_names(#[case] name: &str, #[case] expect: &str) {
    let text = format!(
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {{name: {name}, labels: {{a: b}}}}\nspec: {{model: {{name: m}}}}\n"
    );
    let findings = lint_document(&manifest::parse_manifest("f.yaml", &text).unwrap()[0]);
    let messages: Vec<String> =
        findings.iter().map(|finding| format!("{}: {}", finding.path, finding.message)).collect();
    assert!(messages.iter().any(|message| message.starts_with(expect)), "{messages:#?}");
    // The schema does not specify `metadata.labels`, but no finding reports them as unknown.
    assert!(messages.iter().all(|message| message.starts_with("metadata.name: ")), "{messages:#?}");
}

#[rstest]
#[case("labels: {a: 'no blank'}", "metadata.labels[a]: `no blank` is not a valid label value")]
#[case("labels: {a: 1}", "metadata.labels[a]: `1` is not a valid label value")]
#[case("labels: {'a/b/c': x}", "metadata.labels[a/b/c]: invalid label key")]
#[case("annotations: {a: 1}", "metadata.annotations[a]: annotation values must be strings")]
#[case("namespace: My_Team", "metadata.namespace: `My_Team` is not a valid namespace name")]
fn rejects_invalid_metadata(#[case] metadata: &str, #[case] expect: &str) {
    let text = format!("apiVersion: ome.io/v1beta1\nkind: BaseModel\nmetadata: {{name: m, {metadata}}}\nspec: {{}}\n");
    let findings = lint_document(&manifest::parse_manifest("f.yaml", &text).unwrap()[0]);
    let messages: Vec<String> =
        findings.iter().map(|finding| format!("{}: {}", finding.path, finding.message)).collect();
    assert_eq!(messages, [expect]);
    assert!(findings[0].hint.is_some());
}

/// A small number without a unit is read as a parameter count, which is probably a mistake.
// spec: RT-21
#[test]
fn warns_about_small_sizes_without_unit() {
    let warnings_of = |kind: &str, spec: &str| warnings(kind, spec).join("\n");
    assert_eq!(
        warnings_of(MODEL, "{modelParameterSize: 7}"),
        "spec.modelParameterSize: `7` without a unit means 7 parameters | write `7B` for billions of parameters"
    );
    let range = warnings_of(RUNTIME, "{modelSizeRange: {min: 5, max: 9}}");
    assert!(
        range.contains("spec.modelSizeRange.min: `5` ") && range.contains("spec.modelSizeRange.max: `9` "),
        "{range}"
    );
    assert_eq!(warnings_of(MODEL, "{modelParameterSize: 1000}"), "");
    assert_eq!(warnings_of(RUNTIME, "{modelSizeRange: {min: 0, max: 9B}}"), "");
}

/// Duplicate entries, thousands of labels and very long names must not produce excessive output.
#[test]
fn limits_findings_of_large_manifests() {
    let entries = vec!["{modelFormat: {name: a}}"; 1000].join(", ");
    assert_rejected(
        RUNTIME,
        &format!("{{supportedModelFormats: [{entries}]}}"),
        "spec.supportedModelFormats: Too many: 1000: must have at most 256 items | keep at most 256 items",
    );
    let entries = vec!["{modelFormat: {name: a}}"; 200].join(", ");
    let duplicates = warnings(RUNTIME, &format!("{{supportedModelFormats: [{entries}]}}"));
    assert_eq!(
        duplicates,
        [
            "spec.supportedModelFormats[1]: duplicate of entry 0; 198 more entries are duplicates | remove the duplicates"
        ]
    );
    let labels: Vec<String> = (0..20_000).map(|n| format!("l{n}: '?'")).collect();
    let text = format!(
        "apiVersion: ome.io/v1beta1\nkind: BaseModel\nmetadata: {{name: m, labels: {{{}}}}}\nspec: {{}}\n",
        labels.join(", ")
    );
    let findings = lint_document(&manifest::parse_manifest("f.yaml", &text).unwrap()[0]);
    assert_eq!(findings.len(), MAX_FINDINGS + 1);
    assert_eq!(findings[MAX_FINDINGS].message, "19950 more findings are not shown");
    assert_eq!(findings[MAX_FINDINGS].severity, Severity::Error);
    let long_name = "x".repeat(1 << 20);
    let unknown_fields = warnings(RUNTIME, &format!("{{? {long_name} : 1}}"));
    assert!(unknown_fields[0].len() < 400, "{}", unknown_fields[0].len());
}
