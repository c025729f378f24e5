use super::*;
use crate::manifest;

fn lint(text: &str) -> String {
    let documents = manifest::parse_manifest("f.yaml", text).unwrap();
    let findings = documents
        .iter()
        .flat_map(|document| lint_document(document).into_iter().map(move |finding| finding.render(document)));
    findings.collect::<Vec<_>>().join("\n")
}

#[test]
fn valid_service_has_no_findings() {
    let text =
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: llama}\nspec:\n  model: {name: llama}\n";
    assert_eq!(lint(text), "");
}

#[test]
fn suggests_nearest_field_for_unknown_fields() {
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
    warning: f.yaml, document 1 (InferenceService default/llama), spec.acceleratorSelector.preferedClasses: unknown field `preferedClasses`; the API server drops it
      hint: did you mean `preferredClasses`?
    warning: f.yaml, document 1 (InferenceService default/llama), spec.decoder.serviceAccuntName: unknown field `serviceAccuntName`; the API server drops it
      hint: did you mean `serviceAccountName`?
    warning: f.yaml, document 1 (InferenceService default/llama), spec.egnine: unknown field `egnine`; the API server drops it
      hint: did you mean `engine`?
    warning: f.yaml, document 1 (InferenceService default/llama), spec.modle: unknown field `modle`; the API server drops it
      hint: did you mean `model`?
    ");
}

#[test]
fn accepts_deployed_upstream_fields() {
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
      hint: use a value of type integer
    "#);
}

#[test]
fn reports_inconsistent_runtime() {
    let text = r#"
apiVersion: ome.io/v1beta1
kind: ServingRuntime
metadata: {name: r}
spec:
  modelSizeRange: {min: 9B, max: 5B}
  supportedModelFormats:
  - modelFormat: {name: safetensors, version: "1"}
    priority: 1
  - modelFormat: {name: SafeTensors, version: "2"}
    priority: 2
  acceleratorRequirements:
    supportedClasses: [b]
    preferenceOrder:
    - {class: a, score: 10}
"#;
    insta::assert_snapshot!(lint(text), @r"
    warning: f.yaml, document 1 (ServingRuntime r), spec.acceleratorRequirements.preferenceOrder[0].class: class a is not in supportedClasses, so the preference has no effect
      hint: add the class to supportedClasses, or remove the preference
    error: f.yaml, document 1 (ServingRuntime r), spec.modelSizeRange: min 9B is greater than max 5B, so no model is in the range
      hint: swap min and max
    error: f.yaml, document 1 (ServingRuntime r), spec.supportedModelFormats[1].priority: priority 2 differs from priority 1 of entry 0, another version of the same model
      hint: set the same priority for all versions of a model
    ");
}

#[test]
fn malformed_size_is_an_error() {
    let text = "apiVersion: ome.io/v1beta1\nkind: BaseModel\nmetadata: {name: m}\nspec: {modelParameterSize: huge}\n";
    insta::assert_snapshot!(lint(text), @r"
    error: f.yaml, document 1 (BaseModel m), spec.modelParameterSize: `huge` is not a model size
      hint: write a number with K, M, B or T, such as `7B`
    ");
}

#[test]
fn zero_size_is_an_error() {
    let model = "apiVersion: ome.io/v1beta1\nkind: BaseModel\nmetadata: {name: m}\nspec: {modelParameterSize: \"0\"}\n";
    let runtime =
        "apiVersion: ome.io/v1beta1\nkind: ServingRuntime\nmetadata: {name: r}\nspec: {modelSizeRange: {max: \"0\"}}\n";
    assert!(
        lint(model).contains("spec.modelParameterSize: a model must have more than 0 parameters"),
        "{}",
        lint(model)
    );
    assert!(
        lint(runtime).contains("spec.modelSizeRange.max: max is 0, so no model is in the range"),
        "{}",
        lint(runtime)
    );
}

#[test]
fn warns_about_unknown_kind_in_ostler_groups() {
    insta::assert_snapshot!(lint("apiVersion: fusioninfer.io/v1alpha1\nkind: ModelLoader\nmetadata: {name: x}\n"), @"
    warning: f.yaml, document 1 (ModelLoader x), kind: unknown kind `ModelLoader` in API group fusioninfer.io; it was not checked
      hint: known kinds: InferenceService
    ");
}

#[test]
fn kinds_of_other_groups_are_not_checked() {
    assert_eq!(lint("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\nfoo: bar\n"), "");
}

/// Roles: required fields and component types.
#[rstest::rstest]
// spec: TOP-3
#[case::no_roles("{}", "spec.roles: required field is missing")]
#[case::no_name(
    "{roles: [WORKER, {componentType: worker, template: {}}]}",
    "spec.roles[1].name: required field is missing"
)]
#[case::no_type("{roles: [WORKER, {name: b, template: {}}]}", "spec.roles[1].componentType: required field is missing")]
// spec: TOP-4
// spec: TOP-17
#[case::unknown_type(
    "{roles: [{name: a, componentType: trainer, template: {}}]}",
    "spec.roles[0].componentType: Unsupported value: \"trainer\""
)]
#[case::worker("{roles: [WORKER]}", "")]
#[case::pair(
    "{roles: [{name: a, componentType: prefiller, template: {}}, {name: b, componentType: decoder, template: {}}]}",
    ""
)]
#[case::router("{roles: [WORKER, {name: b, componentType: router}]}", "")]
fn validates_roles(#[case] spec: &str, #[case] expect: &str) {
    let spec = spec.replace("WORKER", "{name: a, componentType: worker, template: {}}");
    let text =
        format!("{{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {{name: s}}, spec: {spec}}}");
    let findings = lint(&text);
    match expect {
        "" => assert!(!findings.contains("error"), "{findings}"),
        expect => assert!(
            findings.contains(&format!("error: f.yaml, document 1 (InferenceService s), {expect}")),
            "{findings}"
        ),
    }
}
