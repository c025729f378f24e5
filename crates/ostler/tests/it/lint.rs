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
