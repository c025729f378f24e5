//! Engine, decoder and router of one service.

use api::parse_manifest;
use rstest::rstest;
use serde_json::{Value, json};

use super::{code, codes, container, kinds, only, service, template};
use crate::Service;

const PAIR: &str = r#"
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: pair}
spec:
  supportedModelFormats: [{name: safetensors}]
  engineConfig:
    runner: {image: engine:1, command: [python3, -m, sglang.launch_server, --disaggregation-mode, prefill], env: [{name: WHO, value: "{{.Name}}"}]}
  decoderConfig:
    minReplicas: 2
    maxReplicas: 4
    nodeSelector: {pool: "{{.Name}}"}
    runner: {image: engine:1, command: [python3, -m, sglang.launch_server, --disaggregation-mode, decode], env: [{name: WHO, value: "{{.Namespace}}"}]}
  routerConfig:
    minReplicas: 1
    maxReplicas: 2
    config: {policy: cache_aware, ALPHA: "1", zeta: z}
    runner:
      image: router:1
      args: [--host, 0.0.0.0, --name, "{{.Name}}"]
      ports: [{containerPort: 9000, name: http}]
"#;

fn pair() -> String {
    service("chat", "{runtime: {name: pair}, router: {config: {policy: random}}}")
}

// spec: RT-32
// spec: RT-34
#[test]
fn every_component_of_the_runtime_is_rendered() {
    let plan = only(&[PAIR, &pair()]);
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    assert_eq!(
        kinds(&plan),
        [
            "Deployment chat-engine",
            "Service chat-engine",
            "Deployment chat-decoder",
            "Service chat-decoder",
            "HorizontalPodAutoscaler chat-decoder",
            "PodDisruptionBudget chat-decoder",
            "Deployment chat-router",
            "Service chat-router",
            "HorizontalPodAutoscaler chat-router",
            "PodDisruptionBudget chat-router",
            "BackendPool chat",
            "LLMUseCaseSet chat",
        ]
    );
    let scaler = |name: &str| {
        let named = |object: &&Value| object["kind"] == "HorizontalPodAutoscaler" && object["metadata"]["name"] == name;
        let spec = &plan.objects.iter().find(named).unwrap()["spec"];
        (spec["minReplicas"].clone(), spec["maxReplicas"].clone())
    };
    assert_eq!(scaler("chat-decoder"), (json!(2), json!(4)));
    assert_eq!(scaler("chat-router"), (json!(1), json!(2)));
    assert_eq!(container(&plan, "-router")["image"], "router:1");
    let selectors: Vec<&Value> =
        ["-engine", "-decoder", "-router"].map(|end| &template(&plan, end)["metadata"]["labels"]["component"]).into();
    assert_eq!(selectors, [&json!("engine"), &json!("decoder"), &json!("router")]);
    let pool = plan.objects.iter().find(|object| object["kind"] == "BackendPool").unwrap();
    assert_eq!((&pool["spec"]["targetPorts"], &pool["spec"]["modelServer"]), (&json!([9000]), &json!("sglang")));
}

#[rstest]
#[case::nobody("", "FallbackToLogsOnError")]
#[case::the_user("terminationMessagePolicy: File", "File")]
fn a_container_tells_why_it_died(#[case] stated: &str, #[case] expect: &str) {
    let runner = format!("{{runtime: {{name: pair}}, engine: {{runner: {{{stated}}}}}}}");
    let plan = only(&[PAIR, &service("chat", &runner)]);
    assert_eq!(container(&plan, "chat-engine")["terminationMessagePolicy"], expect);
    assert_eq!(container(&plan, "chat-router")["terminationMessagePolicy"], "FallbackToLogsOnError");
}

// spec: RT-33
#[test]
fn the_routers_configuration_is_its_environment() {
    let plan = only(&[PAIR, &pair()]);
    let names: Vec<(&str, &str)> = container(&plan, "-router")["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["name"].as_str().unwrap(), entry["value"].as_str().unwrap()))
        .collect();
    assert_eq!(
        names,
        [
            ("ALPHA", "1"),
            ("policy", "random"),
            ("zeta", "z"),
            ("INFERENCESERVICE_NAME", "chat"),
            ("NAMESPACE", "default")
        ]
    );
}

// spec: RT-42
#[test]
fn templates_in_every_container_and_nowhere_else() {
    let plan = only(&[PAIR, &pair()]);
    assert_eq!(container(&plan, "-engine")["env"][0]["value"], "chat");
    assert_eq!(container(&plan, "-decoder")["env"][0]["value"], "default");
    assert_eq!(container(&plan, "-router")["args"][3], "chat");
    assert_eq!(template(&plan, "-decoder")["spec"]["nodeSelector"]["pool"], "{{.Name}}");
}

// spec: RT-41
#[test]
fn a_missing_label_is_empty_and_told() {
    let manifest = service("chat", "{engine: {runner: {image: x, args: ['--team={{.Labels.team}}']}}}");
    let plan = only(&[&manifest]);
    assert_eq!(container(&plan, "-engine")["args"], json!(["--team="]));
    assert!(codes(&plan).contains(&"TemplateValueMissing"));
}

#[rstest]
#[case::router("{engine: {runner: {image: x}}, router: {}}", "NoRouterContainer")]
#[case::decoder("{engine: {runner: {image: x}}, decoder: {}}", "NoEngineContainer")]
#[case::leader("{engine: {runner: {image: x}}, decoder: {leader: {}, worker: {size: 1}}}", "NoEngineContainer")]
fn what_cannot_be_rendered(#[case] spec: &str, #[case] expect: &str) {
    let plan = only(&[&service("chat", spec)]);
    assert_eq!(code(&plan), (false, expect), "{}", plan.message);
}

#[test]
fn a_pair_without_a_router_is_told() {
    let manifest = service("chat", "{engine: {runner: {image: x}}, decoder: {runner: {image: x}}}");
    let plan = only(&[&manifest]);
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    assert!(codes(&plan).contains(&"RouterMissing"));
}

// spec: RT-27
#[rstest]
#[case::concurrency("minReplicas: 2, maxReplicas: 5, scaleMetric: concurrency", 2)]
#[case::requests("minReplicas: 2, maxReplicas: 5, scaleMetric: rps, scaleTarget: 10", 2)]
#[case::to_zero("minReplicas: 0", 1)]
fn what_only_keda_could_scale_is_told(#[case] numbers: &str, #[case] replicas: u32) {
    let plan = only(&[&service("chat", &format!("{{engine: {{runner: {{image: x}}, {numbers}}}}}"))]);
    assert_eq!(plan.objects[0]["spec"]["replicas"], replicas);
    assert!(codes(&plan).contains(&"AutoscalerUnavailable"));
}

#[rstest]
#[case::ends_badly("chat-", "metadata.name")]
#[case::too_long(&"a".repeat(64), "metadata.name")]
#[case::begins_with_a_digit("7b-chat", "metadata.name")]
fn a_name_that_nothing_can_have_is_bad_input(#[case] name: &str, #[case] path: &str) {
    let documents = parse_manifest("given.yaml", &service(name, "{}")).unwrap();
    let error = Service::from_document(&documents[0]).unwrap_err();
    assert_eq!((error.path.as_deref(), error.document, error.hint.is_some()), (Some(path), 1, true));
}
