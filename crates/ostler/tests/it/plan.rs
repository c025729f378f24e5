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

fn plan(manifest: &str, args: &[&str]) -> (String, String, Option<i32>) {
    let folder = Folder::new();
    folder.file("f.yaml", manifest);
    outcome(&ostler(&["plan", "-f", "f.yaml"]).args(args).current_dir(&folder.0).output().unwrap())
}

#[test]
fn five_lines_make_a_table() {
    let (stdout, stderr, code) = plan(FIVE_LINES, &SMALL);
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    insta::assert_snapshot!(stdout, @r"
    inferenceservice default/llama — feasible

      COMPONENT  RUNTIME                    CLASS        GPUS  NODES  REPLICAS  $/HOUR  FREE
      engine     srt-llama-3-2-3b-instruct  nvidia-l40s  1     1      1         1.10    –

      Why this runtime     1  srt-llama-3-2-3b-instruct   compatible, on nvidia-l40s
                           2  vllm-llama-3-2-3b-instruct  compatible, on nvidia-l40s
                           –  srt-llama-3-3-70b-instruct  SizeOutOfRange: model 3.2B, runtime 60B–75B
                           –  srt-mistral-7b-instruct     ArchitectureMismatch: model architecture LlamaForCausalLM, runtime MistralForCausalLM
      Why this class       1  nvidia-l40s       balanced 0.65 (cost 1.00, performance 0.42), ×1, $1.10/h, availability unknown
                           2  nvidia-a100-40gb  balanced 0.50 (cost 0.50, performance 0.51), ×1, $2.21/h, availability unknown
                           3  nvidia-h100-80gb  balanced 0.44 (cost 0.21, performance 0.90), ×1, $5.12/h, availability unknown
      Warnings             AvailabilityUnknown: nothing is known of the nodes of nvidia-l40s
      Objects              Deployment llama-engine, Service llama-engine, BackendPool llama, LLMUseCaseSet llama  (-o yaml prints them)
    ");
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

#[test]
fn what_cannot_be_is_exit_code_2() {
    let manifest = FIVE_LINES.replace("spec:\n", "spec:\n  runtime: {name: nope}\n");
    let (stdout, stderr, code) = plan(&manifest, &SMALL);
    assert_eq!((stderr.as_str(), code), ("", Some(2)));
    insta::assert_snapshot!(stdout, @r"
    inferenceservice default/llama — not feasible: RuntimeNotFound
      there is no ServingRuntime nope in namespace default and no ClusterServingRuntime nope
    ");
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
#[case::empty(String::new(), "f.yaml: no InferenceService among 0 documents")]
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

#[test]
fn a_wrong_flag_is_not_infeasible() {
    let (_, stderr, code) = plan(FIVE_LINES, &["-o", "xml"]);
    assert!(stderr.starts_with("error: "), "{stderr}");
    assert_eq!(code, Some(1));
}
