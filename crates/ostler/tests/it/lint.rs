//! Output of `ostler lint`.

use rstest::rstest;

use crate::session::{TempDirectory, ostler, outcome};

fn lint(manifest: &str) -> (String, Option<i32>) {
    let directory = TempDirectory::new();
    directory.file("f.yaml", manifest);
    let (stdout, _, code) = outcome(&ostler(&["lint", "-f", "f.yaml"]).current_dir(&directory.0).output().unwrap());
    (stdout, code)
}

#[test]
fn warns_about_unknown_field() {
    let (stdout, code) = lint(
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\nspec: {model: {name: m}, egnine: {}}\n",
    );
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout, @r"
    warning: f.yaml, document 1 (InferenceService x), spec.egnine: unknown field `egnine`; the API server drops it
      hint: did you mean `engine`?
    warning: f.yaml, document 1 (InferenceService x), spec.model.name: Model m not found: no BaseModel default/m and no ClusterBaseModel m exists; create it or correct spec.model.name
      hint: ignore this if the cluster has other models, runtimes or classes, which this command does not read
    ");
}

/// What `plan` refuses is reported, as a warning if another cluster may have what is missing.
#[rstest]
#[case::disabled("disabled: true", "{model: {name: m}}", "spec.model.name: Model m is disabled")]
#[case::no_runtime("modelFormat: {name: new}", "{model: {name: m}}", "spec: None of ")]
#[case::named_runtime(
    "modelFormat: {name: new}",
    "{model: {name: m}, runtime: {name: vllm-amd}}",
    "spec: Runtime vllm-amd cannot serve model m: "
)]
#[case::does_not_fit("modelParameterSize: 90000B", "{model: {name: m}}", "spec: None of ")]
fn warns_about_services_that_plan_refuses(#[case] model: &str, #[case] service: &str, #[case] expected: &str) {
    let format = if model.starts_with("modelFormat") { "" } else { "modelFormat: {name: safetensors}, " };
    let manifest = format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: m}}, spec: {{{format}{model}}}}}\n---\n\
         {{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s}}, spec: {service}}}\n"
    );
    let (stdout, code) = lint(&manifest);
    assert_eq!(code, Some(0), "{stdout}");
    let expected = format!("warning: f.yaml, document 2 (InferenceService s), {expected}");
    assert!(stdout.starts_with(&expected), "{stdout}");
}

#[rstest]
#[case::model(r#"{"architectures": ["LlamaForCausalLM"]}"#, Some(0), "")]
#[case::no_model(r#"{"a": 1}"#, Some(1), "error: config.json")]
fn validates_the_configuration_of_a_model(
    #[case] config: &str,
    #[case] expected_code: Option<i32>,
    #[case] expected: &str,
) {
    let directory = TempDirectory::new();
    directory.file("config.json", config);
    let output = ostler(&["lint", "-f", "config.json"]).current_dir(&directory.0).output().unwrap();
    let (stdout, _, code) = outcome(&output);
    assert_eq!(code, expected_code, "{stdout}");
    assert!(stdout.starts_with(expected), "{stdout}");
}

#[test]
fn rejects_unknown_kind() {
    let (stdout, code) = lint("apiVersion: ome.io/v1beta1\nkind: InferenceServce\nmetadata: {name: x}\nspec: {}\n");
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(stdout, @r"
    error: f.yaml, document 1 (InferenceServce x), kind: unknown kind `InferenceServce` in ome.io/v1beta1
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
#[case::enumeration("InferenceService", "acceleratorSelector: {policy: x}", "hint: use one of BestFit, Cheapest")]
fn rejects_invalid_values(#[case] kind: &str, #[case] spec: &str, #[case] expected: &str) {
    let manifest = format!("apiVersion: ome.io/v1beta1\nkind: {kind}\nmetadata: {{name: x}}\nspec:\n  {spec}\n");
    let (stdout, code) = lint(&manifest);
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stdout.contains(expected), "{stdout}");
}

/// Returns the role-based service of story 1 (specification 002) with `from` replaced by `to`.
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
    "name: a-service-with-a-name-that-is-too-long-for-roles",
    "spec.roles: the composed name {service}-{role}-{replica} must have at most 50 characters"
)]
// spec: TOP-39
#[case::reserved(
    "team: a",
    "fusioninfer.io/service: a",
    "spec.roles[0].template.metadata.labels[fusioninfer.io/service]: the prefix of this key is reserved for the operator"
)]
// spec: TOP-3
#[case::no_type("    componentType: worker\n", "", "spec.roles[0].componentType: required field is missing")]
// spec: TOP-4
// spec: TOP-17
#[case::unknown_type("worker", "unknown", "use one of router, prefiller, decoder, worker")]
fn rejects_invalid_roles(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
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
    "spec.roles[0].httproute.rules: expected a list of objects\n  hint: set httproute to"
)]
#[case::whole_route(
    ", httproute: {spec: {}}",
    1,
    "error: ",
    "spec.roles[0].httproute.spec: belongs to the HTTPRoute object"
)]
// spec: TOP-87
#[case::configuration(
    ", endpointPickerConfig: 'kind: Picker'",
    0,
    "warning: ",
    "spec.roles[0].endpointPickerConfig: apiVersion \"\", kind \"Picker\": expected kind EndpointPickerConfig"
)]
#[case::no_gateway(", httproute: {}", 0, "warning: ", "httproute.parentRefs has no Gateway")]
fn checks_routers(#[case] router: &str, #[case] expected: i32, #[case] severity: &str, #[case] message: &str) {
    let (stdout, code) =
        lint(&roles("  roles:\n", &format!("  roles:\n  - {{name: entry, componentType: router{router}}}\n")));
    assert_eq!(code, Some(expected), "{stdout}");
    assert!(stdout.starts_with(severity) && stdout.contains(message), "{stdout}");
}

#[test]
fn warns_about_prefiller_without_decoder() {
    let (stdout, code) = lint(&roles("worker", "prefiller"));
    assert_eq!(code, Some(0));
    assert!(stdout.contains("warning") && stdout.contains("a prefiller without a decoder"), "{stdout}");
}

/// The cluster may have the objects, so the exit code is 0.
#[rstest]
#[case::model(
    "{model: {name: absent}}",
    "spec.model.name: Model absent not found: no BaseModel default/absent and no ClusterBaseModel absent exists"
)]
#[case::runtime("{model: {name: qwen3-8b}, runtime: {name: absent}}", "spec.runtime.name: Runtime absent not found")]
#[case::decoder(
    "{runtime: {name: vllm-nvidia}, model: {name: qwen3-8b}, decoder: {minReplicas: 1}}",
    "spec: No container image for the decoder"
)]
fn warns_about_objects_that_the_cluster_may_have(#[case] spec: &str, #[case] expected: &str) {
    let (stdout, exit_code) = lint(&format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s, namespace: default}}, spec: {spec}}}"
    ));
    assert!(stdout.contains(expected), "{stdout}");
    assert_eq!(exit_code, Some(0));
}
