//! Findings as they are printed.

use rstest::rstest;

use crate::session::{Folder, ostler, outcome};

fn lint(manifest: &str) -> (String, Option<i32>) {
    let folder = Folder::new();
    folder.file("f.yaml", manifest);
    let (stdout, _, code) = outcome(&ostler(&["lint", "-f", "f.yaml"]).current_dir(&folder.0).output().unwrap());
    (stdout, code)
}

#[test]
fn unknown_fields_are_warnings_with_the_nearest_name() {
    let (stdout, code) = lint(
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\nspec: {model: {name: m}, egnine: {}}\n",
    );
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout, @r"
    warning: f.yaml, document 1 (InferenceService x), spec.egnine: unknown field `egnine`, which would be dropped
      hint: did you mean `engine`?
    ");
}

#[test]
fn a_misspelt_kind_is_an_error_with_the_nearest_name() {
    let (stdout, code) = lint("apiVersion: ome.io/v1beta1\nkind: InferenceServce\nmetadata: {name: x}\nspec: {}\n");
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(stdout, @r"
    error: f.yaml, document 1 (InferenceServce x), kind: no kind `InferenceServce` in ome.io/v1beta1
      hint: did you mean `InferenceService`?
    ");
}

#[rstest]
#[case::size("BaseModel", "modelParameterSize: 7Bx", "spec.modelParameterSize: `7Bx` is not a model size")]
#[case::amount(
    "InferenceService",
    "engine: {runner: {resources: {limits: {memory: -4Gi}}}}",
    "spec.engine.runner.resources.limits.memory: `-4Gi` is negative"
)]
#[case::replicas("InferenceService", "engine: {minReplicas: -3}", "spec.engine.minReplicas: should be greater")]
#[case::enumeration("InferenceService", "acceleratorSelector: {policy: x}", "hint: write one of BestFit, Cheapest")]
fn wrong_values_are_errors(#[case] kind: &str, #[case] spec: &str, #[case] expected: &str) {
    let manifest = format!("apiVersion: ome.io/v1beta1\nkind: {kind}\nmetadata: {{name: x}}\nspec:\n  {spec}\n");
    let (stdout, code) = lint(&manifest);
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stdout.contains(expected), "{stdout}");
}

/// Story 1 of seed 002, of which `from` is `to`.
fn roles(from: &str, to: &str) -> String {
    let story = "apiVersion: fusioninfer.io/v1alpha1
kind: InferenceService
metadata: {name: qwen}
spec:
  roles:
  - name: inference
    componentType: worker
    template:
      metadata: {labels: {team: a}}
      spec: {containers: [{name: vllm, image: vllm/vllm-openai}]}
";
    assert!(story.contains(from), "{from}");
    story.replace(from, to)
}

// spec: TOP-13
#[rstest]
#[case::duplicate(
    "  roles:\n",
    "  roles:\n  - {name: inference, componentType: router}\n",
    "spec.roles[1]: Duplicate value"
)]
#[case::routers(
    "  roles:\n",
    "  roles:\n  - {name: r, componentType: router}\n  - {name: q, componentType: router}\n",
    "spec.roles: at most one role may be a router"
)]
#[case::long(
    "name: qwen",
    "name: a-service-whose-name-leaves-no-room-for-roles",
    "spec.roles: the composed name {service}-{role}-{replica} must not be longer than 50 characters"
)]
// spec: TOP-39
#[case::reserved(
    "team: a",
    "fusioninfer.io/service: a",
    "spec.roles[0].template.metadata.labels[fusioninfer.io/service]: the prefix is reserved"
)]
// spec: TOP-3
#[case::no_type("    componentType: worker\n", "", "spec.roles[0].componentType: is missing")]
// spec: TOP-4
// spec: TOP-17
#[case::no_such_type("worker", "cook", "write one of router, prefiller, decoder, worker")]
fn roles_that_cannot_be_laid_out_are_errors(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
    let (stdout, code) = lint(&roles(from, to));
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stdout.contains(expected), "{stdout}");
}

#[rstest]
// spec: TOP-89
#[case::route(
    ", httproute: {rules: {}}",
    1,
    "error: ",
    "spec.roles[0].httproute.rules: expected a list of maps\n  hint: httproute takes"
)]
#[case::whole_route(
    ", httproute: {spec: {}}",
    1,
    "error: ",
    "spec.roles[0].httproute.spec: is a field of a whole HTTPRoute"
)]
// spec: TOP-87
#[case::configuration(
    ", endpointPickerConfig: 'kind: Picker'",
    0,
    "warning: ",
    "spec.roles[0].endpointPickerConfig: apiVersion \"\", kind \"Picker\": expected kind EndpointPickerConfig"
)]
#[case::no_gateway(", httproute: {}", 0, "warning: ", "httproute.parentRefs names no Gateway")]
fn of_a_router(#[case] router: &str, #[case] expect: i32, #[case] severity: &str, #[case] message: &str) {
    let (stdout, code) =
        lint(&roles("  roles:\n", &format!("  roles:\n  - {{name: entry, componentType: router{router}}}\n")));
    assert_eq!(code, Some(expect), "{stdout}");
    assert!(stdout.starts_with(severity) && stdout.contains(message), "{stdout}");
}

#[test]
fn half_a_pair_is_a_warning() {
    let (stdout, code) = lint(&roles("worker", "prefiller"));
    assert_eq!(code, Some(0));
    assert!(stdout.contains("warning") && stdout.contains("a prefiller without a decoder"), "{stdout}");
}
