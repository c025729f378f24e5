//! Admission: a running cluster and `ostler lint` find the same problems, with the same messages.

use crate::session::{TempDirectory, ostler, outcome};

/// Two runtimes that match the same models with the same priority.
const CONFLICTING_RUNTIMES: &str = "apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: first}
spec:
  supportedModelFormats:
  - {modelFormat: {name: safetensors, version: 1.0.0}, modelArchitecture: AcmeForCausalLM, autoSelect: true, priority: 3}
  engineConfig: {runner: {image: example.com/engine:1}}
---
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: second}
spec:
  supportedModelFormats:
  - {modelFormat: {name: safetensors, version: 1.0.0}, modelArchitecture: AcmeForCausalLM, autoSelect: true, priority: 3}
  engineConfig: {runner: {image: example.com/engine:2}}
";

fn lint(manifest: &str, args: &[&str]) -> (String, Option<i32>) {
    let directory = TempDirectory::new();
    directory.file("f.yaml", manifest);
    let output = ostler(&["lint", "-f", "f.yaml"]).args(args).current_dir(&directory.0).output().unwrap();
    let (stdout, _, code) = outcome(&output);
    (stdout, code)
}

// spec: RT-73
#[test]
fn cluster_rejects_conflicting_runtime() {
    let directory = TempDirectory::new();
    let file = directory.file("f.yaml", CONFLICTING_RUNTIMES);
    let data = directory.0.display().to_string();
    let output = ostler(&["up", "-f", &file, "--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--data-dir", &data])
        .output()
        .unwrap();
    let (_, stderr, code) = outcome(&output);
    assert_eq!(code, Some(1), "{stderr}");
    let error = stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{stderr}"));
    assert!(error.contains("ClusterServingRuntime.ome.io \"second\" is invalid: spec.supportedModelFormats[0].priority: `second` and `first` are selected for the same models with the same priority 3"), "{error}");
}

/// A plan selects one of the two.
#[test]
fn lint_warns_about_conflicting_runtime() {
    let (stdout, code) = lint(CONFLICTING_RUNTIMES, &[]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout, @r"
    warning: f.yaml, document 2 (ClusterServingRuntime second), spec.supportedModelFormats[0].priority: `second` and `first` are selected for the same models with the same priority 3; the API server rejects the second one
      hint: give them different priorities, or set autoSelect: false
    ");
}

// spec: RT-77
#[test]
fn lint_warns_about_ambiguous_runtimes() {
    let (stdout, code) = lint(&CONFLICTING_RUNTIMES.replace(", priority: 3", ""), &[]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout, @r"
    warning: f.yaml, document 2 (ClusterServingRuntime second), spec.supportedModelFormats[0]: AmbiguousRuntimes: `second` and `first` match the same models equally well and have no priority, so the newest is selected
      hint: give them different priorities, or set autoSelect: false
    ");
}

#[test]
fn lint_suggests_shipped_class_name() {
    let manifest = "apiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata: {name: mine}\nspec: {discovery: {nodeSelector: {gpu: mine}}, capabilities: {}}\n---\napiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\nspec:\n  model: {name: m}\n  acceleratorSelector: {preferredClasses: [mine, nvidia-h100-80bg]}\n";
    let (stdout, code) = lint(manifest, &[]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout, @r"
    warning: f.yaml, document 2 (InferenceService x), spec.acceleratorSelector.preferredClasses[1]: AcceleratorClass `nvidia-h100-80bg` does not exist
      hint: did you mean `nvidia-h100-80gb`?
    warning: f.yaml, document 2 (InferenceService x), spec.model.name: Model m not found: no BaseModel default/m and no ClusterBaseModel m exists; create it or correct spec.model.name
      hint: ignore this if the cluster has other models, runtimes or classes, which this command does not read
    ");
    let single_runtime = manifest.split("---\n").nth(1).unwrap();
    assert_eq!(lint(single_runtime, &["--no-catalog"]).0, "");
}

#[test]
fn lint_suggests_field_for_transposed_letters() {
    let (stdout, code) = lint(
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: x}\nspec: {modle: {name: m}, runtime: {name: r}}\n",
        &[],
    );
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout, @r"
    warning: f.yaml, document 1 (InferenceService x), spec.modle: unknown field `modle`; the API server drops it
      hint: did you mean `model`?
    warning: f.yaml, document 1 (InferenceService x), spec.runtime.name: Runtime r not found: no ServingRuntime default/r and no ClusterServingRuntime r exists
      hint: ignore this if the cluster has other models, runtimes or classes, which this command does not read
    ");
}

/// Lints a file of 1 MiB, and 1000 runtimes for the same models.
#[test]
fn lint_limits_output_for_large_files() {
    let runtime = |n: usize| {
        format!(
            "apiVersion: ome.io/v1beta1\nkind: ClusterServingRuntime\nmetadata: {{name: r{n}}}\nspec:\n  supportedModelFormats: [{{modelFormat: {{name: a}}, modelArchitecture: AcmeForCausalLM, autoSelect: true, priority: 1}}]\n  engineConfig: {{runner: {{image: i}}}}\n---\n"
        )
    };
    let (stdout, code) = lint(&(0..1000).map(runtime).collect::<String>(), &[]);
    assert_eq!((code, stdout.matches("warning: ").count()), (Some(0), 999));
    assert!(stdout.contains("`r999`, `r0` and 998 more"), "{}", &stdout[stdout.len() - 400..]);
    let long_name = "x".repeat(1 << 20);
    let (stdout, code) = lint(
        &format!(
            "apiVersion: ome.io/v1beta1\nkind: BaseModel\nmetadata: {{name: m}}\nspec: {{modelParameterSize: {long_name}, {long_name}: 1}}\n"
        ),
        &[],
    );
    assert_eq!(code, Some(1));
    assert!(stdout.len() < 1000, "{} bytes", stdout.len());
}
