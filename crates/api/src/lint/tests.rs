use super::*;
use crate::manifest;

fn lint(text: &str) -> String {
    let documents = manifest::read("f.yaml", text).unwrap();
    let findings =
        documents.iter().flat_map(|document| check(document).into_iter().map(move |finding| finding.render(document)));
    findings.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_clean_service_has_no_findings() {
    let text =
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: llama}\nspec:\n  model: {name: llama}\n";
    assert_eq!(lint(text), "");
}

#[test]
fn unknown_fields_name_the_nearest() {
    let text = r#"
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: llama, namespace: default}
spec:
  runtime: {name: llama}
  modle: {name: llama}
  egnine:
    minReplicas: 1
  acceleratorSelector: {preferedClasses: [a]}
  decoder:
    serviceAccuntName: x
    runner: {anything: goes}
"#;
    insta::assert_snapshot!(lint(text), @r"
    warning: f.yaml, document 1 (InferenceService default/llama), spec.acceleratorSelector.preferedClasses: unknown field `preferedClasses`, which would be dropped
      hint: did you mean `preferredClasses`?
    warning: f.yaml, document 1 (InferenceService default/llama), spec.decoder.serviceAccuntName: unknown field `serviceAccuntName`, which would be dropped
      hint: did you mean `serviceAccountName`?
    warning: f.yaml, document 1 (InferenceService default/llama), spec.egnine: unknown field `egnine`, which would be dropped
      hint: did you mean `engine`?
    warning: f.yaml, document 1 (InferenceService default/llama), spec.modle: unknown field `modle`, which would be dropped
      hint: did you mean `model`?
    ");
}

#[test]
fn deployed_upstream_fields_are_known() {
    let text = r#"
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: llama}
spec:
  model: {name: llama, kind: ClusterBaseModel}
  acceleratorSelector: {acceleratorClass: a, policy: Cheapest, constraints: {minMemory: 40}}
  engine:
    acceleratorOverride: {acceleratorClass: b}
---
apiVersion: ome.io/v1beta1
kind: AcceleratorClass
metadata: {name: a}
spec:
  discovery: {nodeSelector: {x: z}, affinity: {}}
  capabilities: {memoryGB: 80Gi, minComputeCapability: "8.0", performance: {fp16Tflops: 312, int8Tops: 624}}
"#;
    assert_eq!(lint(text), "");
}

#[test]
fn wrong_types_are_errors() {
    let text = r#"
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: llama}
spec:
  model: {name: llama}
  engine: {minReplicas: one}
"#;
    insta::assert_snapshot!(lint(text), @r#"
    error: f.yaml, document 1 (InferenceService llama), spec.engine.minReplicas: must be of type integer: "string"
      hint: the field takes a value of type integer
    "#);
}

#[test]
fn a_runtime_that_contradicts_itself() {
    let text = r#"
apiVersion: ome.io/v1beta1
kind: ServingRuntime
metadata: {name: r}
spec:
  modelSizeRange: {min: 9B, max: 5B}
  supportedModelFormats:
  - modelFormat: {name: safetensors, version: "1"}
    priority: 1
  - modelFormat: {name: safetensors, version: "2"}
    priority: 2
  acceleratorRequirements:
    supportedClasses: [b]
    preferenceOrder:
    - {class: a, score: 10}
"#;
    insta::assert_snapshot!(lint(text), @r"
    warning: f.yaml, document 1 (ServingRuntime r), spec.acceleratorRequirements.preferenceOrder[0].class: prefers a class that supportedClasses leaves out, so it is never used
      hint: add the class to supportedClasses, or drop the preference
    error: f.yaml, document 1 (ServingRuntime r), spec.modelSizeRange: min 9B is above max 5B, so no model fits
      hint: swap the two bounds
    error: f.yaml, document 1 (ServingRuntime r), spec.supportedModelFormats[1].priority: priority 2 differs from the 1 of entry 0, which is another version of the same model
      hint: give all versions of one model the same priority
    ");
}

#[test]
fn an_unreadable_size_is_an_error_and_never_zero() {
    let text = "apiVersion: ome.io/v1beta1\nkind: BaseModel\nmetadata: {name: m}\nspec: {modelParameterSize: huge}\n";
    insta::assert_snapshot!(lint(text), @r"
    error: f.yaml, document 1 (BaseModel m), spec.modelParameterSize: `huge` is not a model size
      hint: write a number with K, M, B or T, such as `7B`
    ");
}

#[test]
fn a_size_of_nothing_is_an_error() {
    let model = "apiVersion: ome.io/v1beta1\nkind: BaseModel\nmetadata: {name: m}\nspec: {modelParameterSize: \"0\"}\n";
    let runtime =
        "apiVersion: ome.io/v1beta1\nkind: ServingRuntime\nmetadata: {name: r}\nspec: {modelSizeRange: {max: \"0\"}}\n";
    assert!(lint(model).contains("spec.modelParameterSize: no model has 0 parameters"), "{}", lint(model));
    assert!(lint(runtime).contains("spec.modelSizeRange.max: max 0, so no model fits"), "{}", lint(runtime));
}

#[test]
fn another_kind_of_our_groups_is_said_to_be_unchecked() {
    insta::assert_snapshot!(lint("apiVersion: fusioninfer.io/v1alpha1\nkind: ModelLoader\nmetadata: {name: x}\n"), @"
    warning: f.yaml, document 1 (ModelLoader x), kind: `ModelLoader` of fusioninfer.io is not known here: nothing of it was checked
      hint: known are InferenceService
    ");
}

#[test]
fn other_kinds_are_left_alone() {
    assert_eq!(lint("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\nfoo: bar\n"), "");
}
