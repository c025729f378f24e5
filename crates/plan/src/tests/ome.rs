//! Plans of `ome.io` InferenceServices (seed 001).

use rstest::rstest;
use serde_json::json;

use super::{code, kinds, plan_all_with_supply, plan_text, plan_with_supply, snapshot_with_supply};

const MINIMAL_SERVICE: &str = "
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
fn plans_a_minimal_service() {
    insta::assert_snapshot!(plan_text(&plan_with_supply(MINIMAL_SERVICE)));
}

// spec: RT-26
// spec: RT-40
#[test]
fn plans_a_70b_model() {
    insta::assert_snapshot!(plan_text(&plan_with_supply(&service("{model: {name: llama-3-3-70b}}"))));
}

#[test]
fn equal_snapshots_give_equal_plans() {
    let text = || serde_json::to_string(&plan_all_with_supply(MINIMAL_SERVICE)).unwrap();
    assert_eq!(text(), text());
    assert_eq!(plan_all_with_supply(MINIMAL_SERVICE).kind, "Plan");
}

// spec: RT-39
#[test]
fn replicas_of_the_service_override_the_runtime() {
    let plan = plan_with_supply(&service("{model: {name: llama-3-3-70b}, engine: {minReplicas: 2, maxReplicas: 2}}"));
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
#[case::model("{model: {name: unknown}}", "ModelNotFound")]
// spec: RT-48
#[case::runtime("{model: {name: llama-3-2-3b}, runtime: {name: unknown}}", "RuntimeNotFound")]
// spec: RT-67
#[case::size("{model: {name: llama-3-3-70b}, runtime: {name: srt-small}}", "SizeOutOfRange")]
#[case::annotation(
    "{model: {name: llama-3-2-3b}, annotations: {ome.io/selection-strategy: cheap}}",
    "InvalidAnnotation"
)]
fn infeasible_services(#[case] spec: &str, #[case] expect: &str) {
    let plan = plan_with_supply(&service(spec));
    assert_eq!(code(&plan), (false, expect), "{}", plan.message);
    assert!(plan.objects.is_empty() && !plan.message.is_empty());
}

// spec: RT-22
// spec: RT-23
// spec: RT-29
// spec: RT-30
#[test]
fn merges_the_engine_of_the_service_into_the_runtime() {
    let plan = plan_with_supply(&service(
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

/// The runtime has port 8080 with the name `http1`.
#[rstest]
#[case::other_number("ports: [{name: http1, containerPort: 9000}]", "InvalidService")]
#[case::same_number("ports: [{name: http1, containerPort: 8080}]", "Selected")]
#[case::other_name("ports: [{name: admin, containerPort: 9000}]", "Selected")]
fn port_names_are_unique(#[case] ports: &str, #[case] expect: &str) {
    let plan =
        plan_with_supply(&service(&format!("{{model: {{name: llama-3-2-3b}}, engine: {{runner: {{{ports}}}}}}}")));
    assert_eq!(code(&plan), (expect == "Selected", expect), "{}", plan.message);
    if expect != "Selected" {
        insta::assert_snapshot!(plan.message, @"spec.engine.runner.ports: port 9000 has the name http1, which port 8080 in engineConfig.runner.ports of runtime srt-small has too; use another name, or the same containerPort for both");
    }
}

#[test]
fn port_numbers_are_valid() {
    let plan = plan_with_supply(&service(
        "{model: {name: llama-3-2-3b}, engine: {runner: {ports: [{name: admin, containerPort: 90000}]}}}",
    ));
    assert_eq!(code(&plan), (false, "InvalidService"));
    insta::assert_snapshot!(plan.message, @"engine: containerPort 90000 of container ome-container is not between 1 and 65535");
}

/// The runtime has flag `--port=8080` and declares the port with the name `http1`.
#[rstest]
#[case::flag("args: [--port=9001]")]
#[case::flag_and_declared_port("args: [--port=9001], ports: [{name: http1, containerPort: 9001}]")]
fn requests_are_routed_to_the_port_of_the_service(#[case] runner: &str) {
    let plan =
        plan_with_supply(&service(&format!("{{model: {{name: llama-3-2-3b}}, engine: {{runner: {{{runner}}}}}}}")));
    let find = |kind: &str| plan.objects.iter().find(|object| object["kind"] == kind).unwrap();
    assert_eq!(find("Service")["spec"]["ports"][0]["targetPort"], 9001);
    assert_eq!(find("BackendPool")["spec"]["targetPorts"], json!([9001]));
}

#[test]
fn custom_engine_needs_no_model() {
    let plan = plan_with_supply(&service("{engine: {runner: {image: vllm/vllm-openai, args: [--model, a/b]}}}"));
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    let use_case = &plan.objects.last().unwrap()["spec"]["useCases"][0];
    assert_eq!(use_case, &json!({"modelName": "chat", "targetModels": [{"targetModelName": "a/b", "weight": 1}]}));
}

#[test]
fn suggests_a_similar_model_name() {
    let manifest = service("{model: {name: lama-3-2-3b}}");
    let plan = plan_with_supply(&manifest);
    assert!(plan.message.ends_with("; did you mean llama-3-2-3b?"), "{}", plan.message);
    let snapshot = snapshot_with_supply(&manifest);
    let remedies = crate::remedies(&snapshot, &snapshot.services[0]);
    let text = remedies.iter().map(ToString::to_string).next().unwrap_or_default();
    assert!(text.starts_with("change spec.model.name from lama-3-2-3b to llama-3-2-3b: srt-"), "{text}");
}

// spec: ACC-113
#[test]
fn error_names_the_path_of_an_annotation_in_the_spec() {
    let plan = plan_with_supply(&service("{model: {name: llama-3-2-3b}, annotations: {ome.io/cost-threshold: much}}"));
    assert!(plan.message.starts_with("spec.annotations[ome.io/cost-threshold]: "), "{}", plan.message);
}
