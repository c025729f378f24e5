//! `ostler plan`: what is printed, and the three exit codes.

use rstest::rstest;
use serde_json::Value;

use crate::session::{Folder, ostler, outcome};

const FIVE_LINES: &str = "apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: llama, namespace: default}
spec:
  model: {name: llama-3-2-3b-instruct}
";

/// Four runtimes, three classes and three models, whatever ships.
const SMALL: [&str; 3] =
    ["--no-catalog", "--cluster", concat!(env!("CARGO_MANIFEST_DIR"), "/../decide/src/tests/small")];

/// Six runtimes, five classes and three models that stay as they are while the shipped catalogue grows.
const SUPPLY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/supply.yaml");

fn plan(manifest: &str, args: &[&str]) -> (String, String, Option<i32>) {
    let folder = Folder::new();
    folder.file("f.yaml", manifest);
    outcome(&ostler(&["plan", "-f", "f.yaml"]).args(args).current_dir(&folder.0).output().unwrap())
}

#[test]
fn five_lines_make_a_table() {
    let (stdout, stderr, code) = plan(FIVE_LINES, &["--no-catalog", "--cluster", SUPPLY]);
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    insta::assert_snapshot!(stdout);
}

/// A cluster in one word, of anything that the catalogue knows.
#[test]
fn a_fleet_in_shorthand() {
    let (stdout, stderr, code) = plan(FIVE_LINES, &["--nodes", "8×B200 ×2, 8×MI300X"]);
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    assert!(stdout.contains("nvidia-b200") && stdout.contains("16 of 16"), "{stdout}");
    assert!(stdout.contains("amd-mi300x   ComputeCapabilityTooLow"), "{stdout}");
    let (_, stderr, code) = plan(FIVE_LINES, &["--nodes", "8×B900"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("`B900` is not a product known here"), "{stderr}");
}

#[test]
fn all_shows_every_candidate() {
    let (stdout, _, code) = plan(FIVE_LINES, &["--no-catalog", "--cluster", SUPPLY, "--all"]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout);
}

#[test]
fn json_has_the_fields_that_scripts_read() {
    let (stdout, _, code) = plan(FIVE_LINES, &[&SMALL[..], &["-o", "json"]].concat());
    assert_eq!(code, Some(0));
    let plan: Value = serde_json::from_str(&stdout).unwrap();
    let service = &plan["services"][0];
    assert_eq!((&plan["kind"], &service["feasible"]), (&Value::from("Plan"), &Value::from(true)));
    let objects: Vec<_> = service["objects"].as_array().unwrap().iter().map(|object| &object["kind"]).collect();
    assert_eq!(objects, ["Deployment", "Service", "BackendPool", "LLMUseCaseSet"]);
    let fields = ["apiVersion", "kind", "namespace", "name", "reason", "runtime", "components"];
    let facts: serde_json::Map<_, _> =
        fields.iter().map(|field| ((*field).to_owned(), service[field].clone())).collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&facts).unwrap(), @r#"
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
fn what_cannot_be_is_exit_code_2() {
    let manifest = FIVE_LINES.replace("spec:\n", "spec:\n  acceleratorSelector: {preferredClasses: [t4]}\n");
    let (stdout, stderr, code) = plan(&manifest, &["--no-catalog", "--cluster", SUPPLY]);
    assert_eq!((stderr.as_str(), code), ("", Some(2)));
    insta::assert_snapshot!(stdout);
}

/// Two services in a folder: one waits for accelerators that others hold, one names a runtime that does not exist.
#[test]
fn a_folder_of_services() {
    let folder = Folder::new();
    std::fs::create_dir(folder.0.join("services")).unwrap();
    folder.file("services/a.yaml", &FIVE_LINES.replace("3-2-3b", "3-3-70b"));
    folder.file("services/b.yml", &FIVE_LINES.replace("spec:\n", "spec:\n  runtime: {name: nope}\n"));
    folder.file("services/notes.txt", "not a manifest: {");
    let args = ["plan", "-f", "services", "--no-catalog", "--cluster", SUPPLY, "-n", "team"];
    let (stdout, stderr, code) = outcome(&ostler(&args).current_dir(&folder.0).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(2)));
    insta::assert_snapshot!(stdout);
}

#[test]
fn the_gate_leaves_accelerators_out() {
    let gate =
        ["--no-catalog", "--cluster", SUPPLY, "--feature-gates", "AcceleratorAwareScheduling=false", "-o", "json"];
    let (stdout, _, code) = plan(FIVE_LINES, &gate);
    assert_eq!(code, Some(0));
    let plan: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(plan["services"][0]["runtime"]["name"], "sglang-3b");
    assert!(plan["services"][0]["components"]["engine"]["acceleratorClass"].is_null(), "{stdout}");
}

#[rstest]
#[case("table")]
#[case("json")]
#[case("yaml")]
fn the_same_input_gives_the_same_bytes(#[case] output: &str) {
    let first = plan(FIVE_LINES, &["-o", output]);
    assert_eq!(first.2, Some(0));
    assert_eq!(first, plan(FIVE_LINES, &["-o", output]));
}

/// Anything that is wrong with the input itself: exit code 1, one line with the place and the cause, and a hint.
#[rstest]
#[case::broken(FIVE_LINES.replace('}', ""), "f.yaml, document 1, line ")]
#[case::tabs(FIVE_LINES.replace("  model", "\tmodel"), "not valid YAML: tabs")]
#[case::twice(format!("{FIVE_LINES}  model: {{name: x}}\n"), "line 6: not valid YAML: duplicate mapping key: model")]
#[case::kind(FIVE_LINES.replace("Service", "Servce"), "f.yaml, document 1 (InferenceServce default/llama), kind: no kind")]
#[case::version(FIVE_LINES.replace("v1beta1", "v1"), "apiVersion: ome.io has no version `v1` of InferenceService")]
#[case::no_name(FIVE_LINES.replace("name: llama, ", ""), "metadata.name: an object needs a name")]
#[case::wrong_type(format!("{FIVE_LINES}  engine: {{minReplicas: one}}\n"), "spec.engine.minReplicas: must be of type integer")]
#[case::no_service("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n".to_owned(), "f.yaml: no InferenceService")]
#[case::empty(String::new(), "f.yaml: no manifests")]
fn bad_input_is_exit_code_1(#[case] manifest: String, #[case] expected: &str) {
    let (stdout, stderr, code) = plan(&manifest, &[]);
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    let lines: Vec<_> = stderr.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[0].contains(expected), "{stderr}");
    assert!(lines.len() == 2 && lines[1].starts_with("hint: "), "{stderr}");
}

#[test]
fn a_file_that_is_no_text_says_so() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("f.yaml"), [0, 159, 146, 150]).unwrap();
    let (_, stderr, code) = outcome(&ostler(&["plan", "-f", "f.yaml"]).current_dir(&folder.0).output().unwrap());
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(stderr, @r"
    error: f.yaml: stream did not contain valid UTF-8
    hint: manifests are text in UTF-8; is this another kind of file?
    ");
}
