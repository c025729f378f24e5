//! Services of `ome.io` (seed 001).

use rstest::rstest;
use serde_json::json;

use super::{code, kinds, plan_all, plan_one, shown, snapshot_of};

const FIVE_LINES: &str = "
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat}
spec: {model: {name: llama-3-2-3b}}
";

fn service(spec: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: chat, namespace: team-a, uid: 7f}}, spec: {spec}}}"
    )
}

// spec: RT-2
// spec: RT-31
// spec: RT-43
// spec: RT-44
#[test]
fn five_lines() {
    insta::assert_snapshot!(shown(&plan_one(FIVE_LINES)));
}

// spec: RT-26
// spec: RT-40
#[test]
fn seventy_billion() {
    insta::assert_snapshot!(shown(&plan_one(&service("{model: {name: llama-3-3-70b}}"))));
}

#[test]
fn the_same_snapshot_gives_the_same_bytes() {
    let text = || serde_json::to_string(&plan_all(FIVE_LINES)).unwrap();
    assert_eq!(text(), text());
    assert_eq!(plan_all(FIVE_LINES).kind, "Plan");
}

// spec: RT-39
#[test]
fn the_services_numbers_win_over_the_runtimes() {
    let plan = plan_one(&service("{model: {name: llama-3-3-70b}, engine: {minReplicas: 2, maxReplicas: 2}}"));
    assert_eq!(
        kinds(&plan),
        [
            "Deployment chat-engine",
            "Service chat-engine",
            "PodDisruptionBudget chat-engine",
            "BackendPool chat",
            "LLMUseCaseSet chat"
        ]
    );
    assert_eq!(plan.objects[0]["spec"]["replicas"], 2);
    assert_eq!(plan.components["engine"].replicas, 2);
}

#[rstest]
#[case::model("{model: {name: nobody}}", "ModelNotFound")]
// spec: RT-48
#[case::runtime("{model: {name: llama-3-2-3b}, runtime: {name: nobody}}", "RuntimeNotFound")]
// spec: RT-67
#[case::size("{model: {name: llama-3-3-70b}, runtime: {name: srt-small}}", "SizeOutOfRange")]
#[case::annotation(
    "{model: {name: llama-3-2-3b}, annotations: {ome.io/selection-strategy: cheap}}",
    "InvalidAnnotation"
)]
fn not_feasible(#[case] spec: &str, #[case] expect: &str) {
    let plan = plan_one(&service(spec));
    assert_eq!(code(&plan), (false, expect), "{}", plan.message);
    assert!(plan.objects.is_empty() && !plan.message.is_empty());
}

// spec: RT-22
// spec: RT-23
// spec: RT-29
// spec: RT-30
#[test]
fn the_services_engine_is_laid_over_the_runtimes() {
    let plan = plan_one(&service(
        "{model: {name: llama-3-2-3b}, engine: {serviceAccountName: me, futureField: 1, nodeSelector: {zone: a},
          tolerations: [{key: mine}], volumes: [{name: dshm, emptyDir: {}}],
          runner: {image: mine:1, lifecycle: {x: 1}, env: [{name: MODEL_PATH, valueFrom: {fieldRef: {fieldPath: a}}}]}}}",
    ));
    let pod = &plan.objects[0]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!((&pod["serviceAccountName"], &pod["futureField"]), (&json!("me"), &json!(1)));
    assert_eq!(pod["nodeSelector"]["zone"], "a");
    assert_eq!(pod["tolerations"], json!([{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "mine"}]));
    assert_eq!(pod["volumes"][0], json!({"name": "dshm", "emptyDir": {}}));
    assert_eq!((&container["image"], &container["lifecycle"]), (&json!("mine:1"), &json!({"x": 1})));
    let paths: Vec<_> = container["env"].as_array().unwrap().iter().filter(|env| env["name"] == "MODEL_PATH").collect();
    assert_eq!(paths, [&json!({"name": "MODEL_PATH", "valueFrom": {"fieldRef": {"fieldPath": "a"}}})]);
}

#[test]
fn an_engine_of_ones_own_needs_no_model() {
    let plan = plan_one(&service("{engine: {runner: {image: vllm/vllm-openai, args: [--model, a/b]}}}"));
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    let use_case = &plan.objects.last().unwrap()["spec"]["useCases"][0];
    assert_eq!(use_case, &json!({"modelName": "chat", "targetModels": [{"targetModelName": "a/b", "weight": 1}]}));
}

// A slip in the model's name is told with the name that was meant, and what would come of it is decided.
#[test]
fn a_slip_in_the_models_name() {
    let given = service("{model: {name: lama-3-2-3b}}");
    let plan = plan_one(&given);
    assert!(plan.message.ends_with("; did you mean llama-3-2-3b?"), "{}", plan.message);
    let snapshot = snapshot_of(&given);
    let remedies = crate::remedies(&snapshot, &snapshot.services[0]);
    let text = remedies.iter().map(ToString::to_string).next().unwrap_or_default();
    assert!(text.starts_with("set spec.model.name to llama-3-2-3b (not lama-3-2-3b): srt-"), "{text}");
}

// What stands in the spec is named where it stands.
// spec: ACC-113
#[test]
fn an_annotation_in_the_spec_keeps_its_path() {
    let plan = plan_one(&service("{model: {name: llama-3-2-3b}, annotations: {ome.io/cost-threshold: much}}"));
    assert!(plan.message.starts_with("spec.annotations[ome.io/cost-threshold]: "), "{}", plan.message);
}
