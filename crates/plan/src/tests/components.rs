//! Engine, decoder and router of a service.

use api::parse_manifest;
use rstest::rstest;
use serde_json::{Value, json};

use super::{code, codes, container, kinds, plan_manifests, service, strings, template};
use crate::Service;

const PAIR: &str = r#"
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: pair}
spec:
  supportedModelFormats: [{name: safetensors}]
  engineConfig:
    runner: {image: engine:1, command: [python3, -m, sglang.launch_server, --disaggregation-mode, prefill], env: [{name: OWNER, value: "{{.Name}}"}]}
  decoderConfig:
    minReplicas: 2
    maxReplicas: 4
    nodeSelector: {pool: "{{.Name}}"}
    runner: {image: engine:1, command: [python3, -m, sglang.launch_server, --disaggregation-mode, decode], env: [{name: OWNER, value: "{{.Namespace}}"}]}
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
fn renders_all_components_of_the_runtime() {
    let plan = plan_manifests(&[PAIR, &pair()]);
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
        let is_scaler =
            |object: &&Value| object["kind"] == "HorizontalPodAutoscaler" && object["metadata"]["name"] == name;
        let spec = &plan.objects.iter().find(is_scaler).unwrap()["spec"];
        (spec["minReplicas"].clone(), spec["maxReplicas"].clone())
    };
    assert_eq!(scaler("chat-decoder"), (json!(2), json!(4)));
    assert_eq!(scaler("chat-router"), (json!(1), json!(2)));
    assert_eq!(container(&plan, "-router")["image"], "router:1");
    let selectors: Vec<&Value> = ["-engine", "-decoder", "-router"]
        .map(|suffix| &template(&plan, suffix)["metadata"]["labels"]["component"])
        .into();
    assert_eq!(selectors, [&json!("engine"), &json!("decoder"), &json!("router")]);
    let pool = plan.objects.iter().find(|object| object["kind"] == "BackendPool").unwrap();
    assert_eq!((&pool["spec"]["targetPorts"], &pool["spec"]["modelServer"]), (&json!([9000]), &json!("sglang")));
}

#[rstest]
#[case::default("", "FallbackToLogsOnError")]
#[case::user("terminationMessagePolicy: File", "File")]
fn termination_message_policy_has_a_default(#[case] stated: &str, #[case] expect: &str) {
    let runner = format!("{{runtime: {{name: pair}}, engine: {{runner: {{{stated}}}}}}}");
    let plan = plan_manifests(&[PAIR, &service("chat", &runner)]);
    assert_eq!(container(&plan, "chat-engine")["terminationMessagePolicy"], expect);
    assert_eq!(container(&plan, "chat-router")["terminationMessagePolicy"], "FallbackToLogsOnError");
}

// spec: RT-33
#[test]
fn router_config_becomes_environment_variables() {
    let plan = plan_manifests(&[PAIR, &pair()]);
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
fn expands_template_variables_only_in_containers() {
    let plan = plan_manifests(&[PAIR, &pair()]);
    assert_eq!(container(&plan, "-engine")["env"][0]["value"], "chat");
    assert_eq!(container(&plan, "-decoder")["env"][0]["value"], "default");
    assert_eq!(container(&plan, "-router")["args"][3], "chat");
    assert_eq!(template(&plan, "-decoder")["spec"]["nodeSelector"]["pool"], "{{.Name}}");
}

// spec: RT-42
#[rstest]
fn expands_template_variables_of_leader_and_workers(#[values("ServingRuntime", "ClusterServingRuntime")] kind: &str) {
    let runner = "runner: {image: 'i:{{.Labels.version}}', command: [run, '{{.Name}}', $(LWS_LEADER_ADDRESS), $(LWS_WORKER_INDEX)], \
                  env: [{name: OWNER, value: '{{.Namespace}}'}]}";
    let runtime = format!(
        "{{apiVersion: ome.io/v1beta1, kind: {kind}, metadata: {{name: rt, namespace: default}}, spec: {{supportedModelFormats: [{{name: safetensors}}], \
         engineConfig: {{nodeSelector: {{pool: '{{{{.Name}}}}'}}, leader: {{{runner}}}, worker: {{size: 1, {runner}}}}}}}}}"
    );
    let manifest =
        service("chat", "{runtime: {name: rt}}").replace("{name: chat}", "{name: chat, labels: {version: '7'}}");
    let plan = plan_manifests(&[&runtime, &manifest]);
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    let set = plan.objects.iter().find(|object| object["kind"] == "LeaderWorkerSet").unwrap();
    for template in ["leaderTemplate", "workerTemplate"] {
        let pod = &set["spec"]["leaderWorkerTemplate"][template]["spec"];
        let container = &pod["containers"][0];
        assert_eq!((&container["image"], &container["command"][1]), (&json!("i:7"), &json!("chat")), "{template}");
        assert_eq!(container["env"][0], json!({"name": "OWNER", "value": "default"}), "{template}");
        assert_eq!(pod["nodeSelector"]["pool"], "{{.Name}}", "{template}");
    }
}

// spec: RT-41
#[test]
fn missing_label_expands_to_an_empty_string_with_a_warning() {
    let manifest = service("chat", "{engine: {runner: {image: x, args: ['--team={{.Labels.team}}']}}}");
    let plan = plan_manifests(&[&manifest]);
    assert_eq!(container(&plan, "-engine")["args"], json!(["--team="]));
    assert!(codes(&plan).contains(&"TemplateValueMissing"));
}

#[rstest]
#[case::decoder("{engine: {runner: {image: x}}, decoder: {}}", "NoEngineContainer")]
#[case::leader("{engine: {runner: {image: x}}, decoder: {leader: {}, worker: {size: 1}}}", "NoEngineContainer")]
fn rejects_components_without_an_image(#[case] spec: &str, #[case] expect: &str) {
    let plan = plan_manifests(&[&service("chat", spec)]);
    assert_eq!(code(&plan), (false, expect), "{}", plan.message);
}

#[rstest]
#[case::sglang(
    "{engine: {runner: {image: sglang}}, router: {}}",
    Some("--worker-urls http://chat-engine.default:30000")
)]
#[case::vllm(
    "{engine: {runner: {image: vllm}}, router: {minReplicas: 2}}",
    Some("--worker-urls http://chat-engine.default:8000")
)]
#[case::pair_of_sglang("{engine: {runner: {image: sglang}}, decoder: {runner: {image: sglang}}, router: {}}", None)]
#[case::arguments_of_the_service(
    "{engine: {runner: {image: sglang}}, router: {runner: {args: [--policy, random]}}}",
    Some("--worker-urls http://chat-engine.default:30000 --policy random")
)]
#[case::pair_of_vllm("{engine: {runner: {image: vllm}}, decoder: {runner: {image: vllm}}, router: {}}", None)]
#[case::unknown_engine("{engine: {runner: {image: x}}, router: {}}", None)]
fn default_router_routes_to_known_engines(#[case] spec: &str, #[case] expected: Option<&str>) {
    let plan = plan_manifests(&[&service("chat", spec)]);
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    let has_router = plan.objects.iter().any(|object| object["metadata"]["name"] == "chat-router");
    assert_eq!((has_router, codes(&plan).contains(&"NoRouterContainer")), (expected.is_some(), expected.is_none()));
    if let Some(expected) = expected {
        let args = strings(&container(&plan, "-router")["args"]).join(" ");
        assert_eq!(args, format!("--host 0.0.0.0 --port 8080 {expected}"));
    }
}

/// A node with 8 CPUs and the label `pool: cpu`.
#[rstest]
#[case::anywhere("{}", false)]
#[case::selected("{nodeSelector: {pool: cpu}}", false)]
#[case::other_label("{nodeSelector: {pool: none}}", true)]
#[case::too_many_cpus("{runner: {resources: {requests: {cpu: '9'}}}}", true)]
fn router_that_no_node_could_run_is_reported(#[case] router: &str, #[case] is_reported: bool) {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n, labels: {pool: cpu}}, status: {allocatable: {cpu: '8', memory: 16Gi, pods: '110'}}}";
    let spec = format!("{{engine: {{runner: {{image: vllm}}}}, router: {router}}}");
    let plan = plan_manifests(&[node, &service("chat", &spec)]);
    assert_eq!(code(&plan), (true, "Selected"), "the engine runs: {}", plan.message);
    assert_eq!(codes(&plan).contains(&"PodsUnschedulable"), is_reported, "{:?}", plan.warnings);
}

#[test]
fn command_of_the_service_runs_in_the_default_image() {
    let router = "router: {runner: {command: [./start], args: [a]}}";
    let plan = plan_manifests(&[&service("chat", &format!("{{engine: {{runner: {{image: x}}}}, {router}}}"))]);
    assert!(codes(&plan).contains(&"NoRouterContainer"), "no default for an unknown engine");
    let plan = plan_manifests(&[&service("chat", &format!("{{engine: {{runner: {{image: vllm}}}}, {router}}}"))]);
    let container = container(&plan, "-router");
    assert_eq!((&container["command"], &container["args"]), (&json!(["./start"]), &json!(["a"])));
    assert!(container["image"].as_str().unwrap().contains("sgl-model-gateway"));
}

/// A runtime with a router is preferred, even to one with a higher priority, if the service has a router.
#[rstest]
#[case::with_router("router: {}", "with-router")]
#[case::without_router("engine: {}", "without-router")]
fn prefers_runtimes_with_a_router(#[case] component: &str, #[case] expected: &str) {
    let runtime = |name: &str, priority: u32, fields: &str| {
        format!(
            "{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: {name}}}, spec: {{supportedModelFormats: [{{modelFormat: {{name: safetensors}}, autoSelect: true, priority: {priority}}}], engineConfig: {{runner: {{image: sglang}}}}{fields}}}}}"
        )
    };
    let model = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: m}, spec: {modelFormat: {name: safetensors}, modelParameterSize: 7B}}";
    let manifests = [
        model,
        &runtime("with-router", 1, ", routerConfig: {runner: {image: r}}"),
        &runtime("without-router", 2, ""),
        &service("chat", &format!("{{model: {{name: m}}, {component}}}")),
    ];
    let plan = plan_manifests(&manifests);
    assert_eq!(plan.runtime.as_ref().unwrap().name, expected);
}

#[test]
fn warns_about_a_pair_without_a_router() {
    let manifest = service("chat", "{engine: {runner: {image: x}}, decoder: {runner: {image: x}}}");
    let plan = plan_manifests(&[&manifest]);
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    assert!(codes(&plan).contains(&"RouterMissing"));
}

// spec: RT-27
#[rstest]
#[case::concurrency("minReplicas: 2, maxReplicas: 5, scaleMetric: concurrency", 2)]
#[case::requests("minReplicas: 2, maxReplicas: 5, scaleMetric: rps, scaleTarget: 10", 2)]
fn warns_about_scaling_that_requires_keda(#[case] numbers: &str, #[case] replicas: u32) {
    let plan = plan_manifests(&[&service("chat", &format!("{{engine: {{runner: {{image: x}}, {numbers}}}}}"))]);
    assert_eq!(plan.objects[0]["spec"]["replicas"], replicas);
    assert!(codes(&plan).contains(&"AutoscalerUnavailable"));
}

#[rstest]
#[case::ends_with_a_dash("chat-", "metadata.name")]
#[case::too_long(&"a".repeat(64), "metadata.name")]
#[case::begins_with_a_digit("7b-chat", "metadata.name")]
fn rejects_invalid_service_names(#[case] name: &str, #[case] path: &str) {
    let documents = parse_manifest("manifests.yaml", &service(name, "{}")).unwrap();
    let error = Service::from_document(&documents[0]).unwrap_err();
    assert_eq!((error.path.as_deref(), error.document, error.hint.is_some()), (Some(path), 1, true));
}
