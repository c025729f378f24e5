//! Output and exit codes of `ostler plan`.

use rstest::rstest;
use serde_json::Value;

use crate::session::{TempDirectory, ostler, outcome};

const MINIMAL_SERVICE: &str = "apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: llama, namespace: default}
spec:
  model: {name: llama-3-2-3b-instruct}
";

/// Arguments for four runtimes, three classes and three models that do not depend on the shipped catalog.
const SMALL_CLUSTER: [&str; 3] =
    ["--no-catalog", "--cluster", concat!(env!("CARGO_MANIFEST_DIR"), "/../decide/src/tests/small")];

/// Six runtimes, five classes and three models that do not depend on the shipped catalog.
const SUPPLY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/supply.yaml");

fn plan(manifest: &str, args: &[&str]) -> (String, String, Option<i32>) {
    let directory = TempDirectory::new();
    directory.file("f.yaml", manifest);
    outcome(&ostler(&["plan", "-f", "f.yaml"]).args(args).current_dir(&directory.0).output().unwrap())
}

#[test]
fn prints_table() {
    let (stdout, stderr, code) = plan(MINIMAL_SERVICE, &["--no-catalog", "--cluster", SUPPLY]);
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    insta::assert_snapshot!(stdout);
}

/// The manifest and the plan that README shows.
#[test]
fn readme_shows_the_plan() {
    let readme = include_str!("../../../../README.md");
    let (_, manifest) = readme.split_once("```yaml\n").unwrap();
    let (manifest, rest) = manifest.split_once("```").unwrap();
    let (_, plan_of_readme) = rest.split_once("$ ostler plan -f chat.yaml --nodes '").unwrap();
    let (nodes, plan_of_readme) = plan_of_readme.split_once("'\n").unwrap();
    let (plan_of_readme, _) = plan_of_readme.split_once("```").unwrap();
    let (stdout, stderr, code) = plan(manifest, &["--nodes", nodes]);
    assert_eq!((stdout.as_str(), stderr.as_str(), code), (plan_of_readme, "", Some(0)));
}

/// `--nodes` accepts all accelerators of the catalog.
#[test]
fn accepts_node_groups() {
    let (stdout, stderr, code) = plan(MINIMAL_SERVICE, &["--nodes", "8×B200 ×2, 8×MI300X"]);
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    assert!(stdout.contains("nvidia-b200") && stdout.contains("16 of 16"), "{stdout}");
    assert!(stdout.contains("amd-mi300x   ComputeCapabilityTooLow"), "{stdout}");
    let (_, stderr, code) = plan(MINIMAL_SERVICE, &["--nodes", "8×B900"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("unknown accelerator `B900`"), "{stderr}");
}

/// The Pods of a service that was exported together with the nodes may not run yet.
#[test]
fn exported_services_claim_accelerators() {
    let node = "apiVersion: v1
kind: Node
metadata: {name: gpu-0, labels: {nvidia.com/gpu.product: NVIDIA-L40S}}
status: {allocatable: {nvidia.com/gpu: 2, cpu: 64, memory: 512Gi}, conditions: [{type: Ready, status: 'True'}]}
";
    let service = "---
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: early, namespace: team, generation: 1}
spec: {model: {name: llama-3-2-3b-instruct}}
status:
  observedGeneration: 1
  decision: {reason: Selected, message: selected, runtime: {name: srt-llama-3-2-3b-instruct}}
  components:
    engine: {replicas: 1, selectedAccelerator: {acceleratorClass: nvidia-l40s, resourceRequests: {nvidia.com/gpu: '1'}}}
";
    let directory = TempDirectory::new();
    for (cluster, free) in [(node.to_owned(), "2 of 2"), (format!("{node}{service}"), "1 of 2")] {
        let (stdout, _, code) = plan(MINIMAL_SERVICE, &["--cluster", &directory.file("cluster.yaml", &cluster)]);
        assert_eq!(code, Some(0), "{stdout}");
        let engine = stdout.lines().find(|line| line.trim_start().starts_with("engine ")).unwrap();
        assert!(engine.contains("nvidia-l40s") && engine.trim_end().ends_with(free), "{stdout}");
    }
}

#[test]
fn all_prints_all_candidates() {
    let (stdout, _, code) = plan(MINIMAL_SERVICE, &["--no-catalog", "--cluster", SUPPLY, "--all"]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout);
}

#[test]
fn prints_json() {
    let (stdout, _, code) = plan(MINIMAL_SERVICE, &[&SMALL_CLUSTER[..], &["-o", "json"]].concat());
    assert_eq!(code, Some(0));
    let plan: Value = serde_json::from_str(&stdout).unwrap();
    let service = &plan["services"][0];
    assert_eq!((&plan["kind"], &service["feasible"]), (&Value::from("Plan"), &Value::from(true)));
    let objects: Vec<_> = service["objects"].as_array().unwrap().iter().map(|object| &object["kind"]).collect();
    assert_eq!(objects, ["Deployment", "Service", "BackendPool", "LLMUseCaseSet"]);
    let fields = ["apiVersion", "kind", "namespace", "name", "reason", "runtime", "components"];
    let selected: serde_json::Map<_, _> =
        fields.iter().map(|field| ((*field).to_owned(), service[field].clone())).collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&selected).unwrap(), @r#"
    {
      "apiVersion": "ome.io/v1beta1",
      "components": {
        "engine": {
          "acceleratorClass": "nvidia-l40s",
          "acceleratorsPerNode": 1,
          "costPerHour": 1.1,
          "nodes": 1,
          "replicas": 1,
          "resource": "nvidia.com/gpu"
        }
      },
      "kind": "InferenceService",
      "name": "llama",
      "namespace": "default",
      "reason": "Selected",
      "runtime": {
        "name": "srt-llama-3-2-3b-instruct",
        "scope": "Cluster"
      }
    }
    "#);
}

// spec: RT-67
#[test]
fn infeasible_is_exit_code_2() {
    let manifest = MINIMAL_SERVICE.replace("spec:\n", "spec:\n  acceleratorSelector: {preferredClasses: [t4]}\n");
    let (stdout, stderr, code) = plan(&manifest, &["--no-catalog", "--cluster", SUPPLY]);
    assert_eq!((stderr.as_str(), code), ("", Some(2)));
    insta::assert_snapshot!(stdout);
}

/// Table and JSON contain the remedies that `ostler explain` shows for the service.
// spec: ACC-73
#[test]
fn infeasible_plan_prints_remedies() {
    let manifest = MINIMAL_SERVICE.replace("spec:\n", "spec:\n  acceleratorSelector: {preferredClasses: [t4]}\n");
    let args = ["--no-catalog", "--cluster", SUPPLY];
    let (table, _, _) = plan(&manifest, &args);
    let (json, _, code) = plan(&manifest, &[&args[..], &["-o", "json"]].concat());
    let plan: Value = serde_json::from_str(&json).unwrap();
    let remedies: Vec<&str> =
        plan["services"][0]["remedies"].as_array().unwrap().iter().map(|remedy| remedy.as_str().unwrap()).collect();
    assert!(remedies.iter().any(|remedy| remedy.contains("l40s")), "{remedies:?}");
    let printed: Vec<&str> = table.lines().filter_map(|line| Some(line.split_once("· ")?.1)).collect();
    assert_eq!(printed, remedies);
    // Each class has a code.
    let codes: Vec<(&str, &str)> = plan["services"][0]["candidates"][0]["accelerators"]
        .as_array()
        .unwrap()
        .iter()
        .map(|candidate| (candidate["class"].as_str().unwrap(), candidate["code"].as_str().unwrap()))
        .collect();
    assert_eq!(codes, [("t4", "NoMatchingNodes"), ("h100", "NotPreferred"), ("l40s", "NotPreferred")]);
    assert_eq!((&plan["services"][0]["feasible"], code), (&Value::from(false), Some(2)));
}

/// The remedy is that of the reason code; for a model that does not exist, it is the name of a similar one.
#[rstest]
#[case::undefined_variable(
    "  engine: {runner: {image: i, command: [vllm, serve, $(MODEL)]}}\n",
    "UndefinedVariable",
    "Define the variable in `runner.env`"
)]
#[case::model("  model: {name: llama-3-2-3b-instrct}\n", "ModelNotFound", "llama-3-2-3b-instruct")]
fn infeasible_plan_prints_the_remedy_of_its_reason(#[case] spec: &str, #[case] reason: &str, #[case] remedy: &str) {
    let manifest = MINIMAL_SERVICE.replace("  model: {name: llama-3-2-3b-instruct}\n", spec);
    let (stdout, _, code) = plan(&manifest, &["--no-catalog", "--cluster", SUPPLY]);
    assert_eq!(code, Some(2), "{stdout}");
    assert!(stdout.contains(&format!("not feasible: {reason}")), "{stdout}");
    let help = stdout.lines().find_map(|line| line.trim_start().strip_prefix("What would help")).unwrap_or(&stdout);
    assert!(help.contains(remedy), "{stdout}");
}

/// `$KUBECONFIG` applies to `--context` and `--diff` only, so that a plan without a cluster does not depend on the environment.
#[rstest]
#[case::without_context(&[], None)]
#[case::with_context(&["--context", "a"], Some("Connection refused"))]
#[case::unknown_context(&["--context", "b"], Some("context `b` does not exist"))]
#[case::with_diff(&["--diff"], Some("Connection refused"))]
fn kubeconfig_variable_applies_to_connections(#[case] args: &[&str], #[case] expected_error: Option<&str>) {
    let directory = TempDirectory::new();
    let file = directory.file("f.yaml", MINIMAL_SERVICE);
    let kubeconfig = directory.file(
        "kubeconfig",
        "{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], \
         contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}",
    );
    let mut command = ostler(&["plan", "-f", &file]);
    let (stdout, stderr, code) = outcome(&command.args(args).env("KUBECONFIG", kubeconfig).output().unwrap());
    match expected_error {
        None => assert_eq!(code, Some(0), "{stderr}"),
        Some(expected) => {
            assert_eq!((stdout.as_str(), code), ("", Some(1)));
            assert!(stderr.contains(expected), "{stderr}");
        }
    }
}

/// Like the operator, a plan creates classes for accelerators that no class covers.
#[test]
fn discovers_classes_of_nodes() {
    let directory = TempDirectory::new();
    let node = |product: &str, memory: u32| {
        format!(
            "---\n{{apiVersion: v1, kind: Node, metadata: {{name: {product}, labels: {{nvidia.com/gpu.product: {product}, \
             nvidia.com/gpu.memory: '{memory}', nvidia.com/gpu.compute.major: '9', nvidia.com/gpu.compute.minor: '0'}}}}, \
             status: {{allocatable: {{nvidia.com/gpu: 8, cpu: 64, memory: 512Gi, pods: 110}}, conditions: [{{type: Ready, status: 'True'}}]}}}}\n"
        )
    };
    let cluster = directory.file("nodes.yaml", &(node("NVIDIA-X900-96GB", 98304) + &node("NVIDIA-L40S", 49152)));
    let (stdout, stderr, code) = plan(MINIMAL_SERVICE, &["--cluster", &cluster, "-o", "json"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(stderr, "note: planning with AcceleratorClasses discovered from nodes: nvidia-x900-96gb\n");
    let plan: Value = serde_json::from_str(&stdout).unwrap();
    let candidates = plan["services"][0]["candidates"][0]["accelerators"].as_array().unwrap();
    let eligible: Vec<&str> = candidates
        .iter()
        .filter(|candidate| candidate["rank"].is_u64())
        .map(|candidate| candidate["class"].as_str().unwrap())
        .collect();
    assert_eq!(eligible, ["nvidia-l40s", "nvidia-x900-96gb"]);
}

/// Objects of the same name in one input must be equal: the plan could not know which one applies.
#[rstest]
#[case::equal("", Some(0))]
#[case::different("  engine: {minReplicas: 2}\n", Some(1))]
fn rejects_different_objects_of_one_name(#[case] added: &str, #[case] expected_code: Option<i32>) {
    let directory = TempDirectory::new();
    let first = directory.file("a.yaml", MINIMAL_SERVICE);
    let second = directory.file("b.yaml", &format!("{MINIMAL_SERVICE}{added}"));
    let args = ["plan", "-o", "json", "-f", &first, &second];
    let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
    assert_eq!(code, expected_code, "{stderr}");
    if expected_code == Some(0) {
        let plan: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(plan["services"].as_array().unwrap().len(), 1);
        return;
    }
    let expected = format!(
        "error: {second}, document 1 (InferenceService default/llama), metadata.name: {first}, document 1, has the same kind and \
         name but different content\nhint: rename or remove one of the two objects\n"
    );
    assert_eq!((stdout.as_str(), stderr.as_str()), ("", expected.as_str()));
}

/// Plans two services of a directory: one lacks free accelerators, one has an unknown runtime.
#[test]
fn plans_directory() {
    let directory = TempDirectory::new();
    std::fs::create_dir(directory.0.join("services")).unwrap();
    directory.file("services/a.yaml", &MINIMAL_SERVICE.replace("3-2-3b", "3-3-70b"));
    let service = MINIMAL_SERVICE.replace("name: llama,", "name: llama-2,");
    directory.file("services/b.yml", &service.replace("spec:\n", "spec:\n  runtime: {name: nope}\n"));
    directory.file("services/notes.txt", "not a manifest: {");
    let args = ["plan", "-f", "services", "--no-catalog", "--cluster", SUPPLY, "-n", "team"];
    let (stdout, stderr, code) = outcome(&ostler(&args).current_dir(&directory.0).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(2)));
    insta::assert_snapshot!(stdout);
}

// spec: ACC-125
#[test]
fn feature_gate_disables_accelerators() {
    let args =
        ["--no-catalog", "--cluster", SUPPLY, "--feature-gates", "AcceleratorAwareScheduling=false", "-o", "json"];
    let (stdout, _, code) = plan(MINIMAL_SERVICE, &args);
    assert_eq!(code, Some(0));
    let plan: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(plan["services"][0]["runtime"]["name"], "sglang-3b");
    assert!(plan["services"][0]["components"]["engine"]["acceleratorClass"].is_null(), "{stdout}");
}

#[rstest]
#[case("table")]
#[case("json")]
#[case("yaml")]
fn output_is_deterministic(#[case] output: &str) {
    let first = plan(MINIMAL_SERVICE, &["-o", output]);
    assert_eq!(first.2, Some(0));
    assert_eq!(first, plan(MINIMAL_SERVICE, &["-o", output]));
}

/// Invalid input: exit code 1, one line with location and cause, and a hint.
#[rstest]
#[case::broken(MINIMAL_SERVICE.replace('}', ""), "f.yaml, document 1, line ")]
#[case::tabs(MINIMAL_SERVICE.replace("  model", "\tmodel"), "invalid YAML: tabs")]
#[case::duplicate_key(format!("{MINIMAL_SERVICE}  model: {{name: x}}\n"), "line 6: invalid YAML: duplicate mapping key: model")]
#[case::kind(MINIMAL_SERVICE.replace("Service", "Servce"), "f.yaml, document 1 (InferenceServce default/llama), kind: unknown kind")]
#[case::version(MINIMAL_SERVICE.replace("v1beta1", "v1"), "apiVersion: API group ome.io does not serve version `v1` of InferenceService")]
#[case::no_name(MINIMAL_SERVICE.replace("name: llama, ", ""), "metadata.name: required field is missing")]
#[case::wrong_type(format!("{MINIMAL_SERVICE}  engine: {{minReplicas: one}}\n"), "spec.engine.minReplicas: must be of type integer")]
#[case::no_service("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n".to_owned(), "f.yaml: no InferenceService")]
#[case::empty(String::new(), "f.yaml: no manifests found")]
fn invalid_input_is_exit_code_1(#[case] manifest: String, #[case] expected: &str) {
    let (stdout, stderr, code) = plan(&manifest, &[]);
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    let lines: Vec<_> = stderr.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[0].contains(expected), "{stderr}");
    assert!(lines.len() == 2 && lines[1].starts_with("hint: "), "{stderr}");
}

#[test]
fn rejects_binary_files() {
    let directory = TempDirectory::new();
    std::fs::write(directory.0.join("f.yaml"), [0, 159, 146, 150]).unwrap();
    let (_, stderr, code) = outcome(&ostler(&["plan", "-f", "f.yaml"]).current_dir(&directory.0).output().unwrap());
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(stderr, @r"
    error: f.yaml: stream did not contain valid UTF-8
    hint: manifests are UTF-8 text; check that the file is a manifest
    ");
}
