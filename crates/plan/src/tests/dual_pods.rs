//! Services whose annotation requests dual pods (seed 004).

use rstest::rstest;
use serde_json::{Value, json};

use super::{code, kinds, plan_manifests, snapshot};
use crate::ServicePlan;
use crate::replicas::AutoscalerSupport;

const PATCH: &str = "dual-pods.llm-d.ai/server-patch";
const ENGINE: &str = "image: vllm/vllm-openai:v0.32.0, args: [--model, ibm-granite/granite-3.3-2b-instruct]";

/// Returns a service of `ome.io` that requests dual pods; `engine` are fields of the engine, beside its runner.
fn service(runner: &str, engine: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: chat, uid: u-1, annotations: {{ome.io/actuation: dual-pods}}}}, \
         spec: {{kedaConfig: {{promServerAddress: 'http://p'}}, engine: {{runner: {{{runner}}}, {engine}}}}}}}"
    )
}

/// Returns a service of `fusioninfer.io` with one role that requests dual pods.
fn role_based_service(fields: &str, template: &str) -> String {
    format!(
        "{{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {{name: chat, annotations: {{fusioninfer.io/actuation: dual-pods}}}}, \
         spec: {{roles: [{{name: worker, componentType: worker, {fields} template: {template}}}]}}}}"
    )
}

const GPU: &str = "resources: {limits: {nvidia.com/gpu: '1', cpu: '4', memory: 32Gi}}";

fn object<'a>(plan: &'a ServicePlan, kind: &str) -> &'a Value {
    plan.objects.iter().find(|object| object["kind"] == kind).unwrap()
}

fn patch(template: &Value) -> Value {
    serde_json::from_str(template["metadata"]["annotations"][PATCH].as_str().unwrap()).unwrap()
}

// spec: DP-1, DP-12, DP-36, DP-63
#[test]
fn requester_has_the_accelerators_and_the_patch_has_the_engine() {
    let labels = "labels: {team: a}, annotations: {note: x, prometheus.io/scrape: 'true'}, nodeSelector: {zone: b}, terminationGracePeriodSeconds: 90";
    let plan = plan_manifests(&[&service(&format!("{ENGINE}, {GPU}"), labels)]);
    assert_eq!(kinds(&plan)[..2], ["Deployment chat-engine-dual", "Service chat-engine"]);
    let mut deployment = object(&plan, "Deployment").clone();
    let patch = patch(&deployment["spec"]["template"]);
    deployment["spec"]["template"]["metadata"]["annotations"][PATCH] = json!("…");
    insta::assert_snapshot!(format!(
        "{}\npatch {}",
        serde_json::to_string_pretty(&deployment["spec"]).unwrap(),
        serde_json::to_string_pretty(&patch).unwrap()
    ));
    let providers = json!({"component": "engine", "ome.io/actuation": "provider", "ome.io/inferenceservice": "chat"});
    assert_eq!(object(&plan, "Service")["spec"]["selector"], providers);
    assert_eq!(object(&plan, "BackendPool")["spec"]["selector"], providers);
    assert_eq!(plan.components["engine"].accelerators_per_node, 1);
}

// spec: DP-12, DP-36, DP-37
#[rstest]
#[case::pool("", "BackendPool", "/spec/selector", &[])]
#[case::router(", {name: router, componentType: router}", "InferencePool", "/spec/selector/matchLabels", &["worker"])]
fn pools_of_roles_select_providers(
    #[case] router: &str,
    #[case] kind: &str,
    #[case] selector: &str,
    #[case] component_type: &[&str],
) {
    let template =
        format!("{{metadata: {{labels: {{team: a}}}}, spec: {{containers: [{{name: vllm, {ENGINE}, {GPU}}}]}}}}");
    let manifest = role_based_service("replicas: 2,", &template).replace("}]}}", &format!("}}{router}]}}}}"));
    let plan = plan_manifests(&[&manifest]);
    assert_eq!(code(&plan), (true, "Rendered"), "{}", plan.message);
    let mut providers = json!({"fusioninfer.io/actuation": "provider", "fusioninfer.io/service": "chat"});
    component_type.iter().for_each(|value| providers["fusioninfer.io/component-type"] = json!(value));
    assert_eq!(object(&plan, kind).pointer(selector), Some(&providers));
    let template = &object(&plan, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]["workerTemplate"];
    assert_eq!(template["metadata"]["labels"]["fusioninfer.io/actuation"], "requester");
    assert_eq!(template["metadata"]["labels"]["team"], Value::Null);
    let labels = &patch(template)["metadata"]["labels"];
    assert_eq!((&labels["team"], &labels["fusioninfer.io/actuation"]), (&json!("a"), &json!("provider")));
    for label in ["leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/worker-index"] {
        assert_eq!(labels.get(label), Some(&Value::Null), "the set would adopt the provider");
    }
    let probe = &patch(template)["spec"]["containers"][1]["readinessProbe"];
    assert_eq!(probe["httpGet"], json!({"path": "/health", "port": 8000}));
}

/// The annotation is removed: the engine runs in Pods of its own again.
#[test]
fn other_services_have_no_requesters() {
    let manifest = service(&format!("{ENGINE}, {GPU}"), "").replace("ome.io/actuation: dual-pods", "");
    let plan = plan_manifests(&[&manifest]);
    assert_eq!(kinds(&plan)[..1], ["Deployment chat-engine"]);
    assert!(!object(&plan, "Deployment").to_string().contains("dual-pods"));
}

#[rstest]
#[case::sglang(
    "image: lmsysorg/sglang:v0.5.23, args: [--model-path, m]",
    "",
    "DualPodsEngineUnsupported",
    "engine: sglang cannot sleep; dual pods need vLLM"
)]
#[case::unknown_engine("image: x", "", "DualPodsEngineUnsupported", "engine: the command does not start vLLM")]
#[case::script(
    "image: vllm/vllm-openai:v1, command: [sh, -c, 'vllm serve m --port 8000 | tee log']",
    "",
    "DualPodsEngineUnsupported",
    "engine: the command is a script, to which --enable-sleep-mode cannot be added"
)]
#[case::disabled(
    "image: vllm/vllm-openai:v1, args: [--no-enable-sleep-mode]",
    "",
    "DualPodsEngineUnsupported",
    "engine: the command disables sleep mode"
)]
#[case::no_routes(
    "image: vllm/vllm-openai:v1, env: [{name: VLLM_SERVER_DEV_MODE, value: '0'}]",
    "",
    "DualPodsEngineUnsupported",
    "engine: env VLLM_SERVER_DEV_MODE must be \"1\""
)]
#[case::probe(
    "image: vllm/vllm-openai:v1, readinessProbe: {tcpSocket: {port: 8000}}",
    "",
    "DualPodsEngineUnsupported",
    "engine, containers[0].readinessProbe: must be httpGet"
)]
#[case::cpu_autoscaler(
    "image: vllm/vllm-openai:v1",
    "maxReplicas: 3",
    "DualPodsAutoscalerUnsupported",
    "engine: the autoscaler measures CPU"
)]
#[case::request_autoscaler("image: vllm/vllm-openai:v1", "maxReplicas: 3, scaleMetric: concurrency", "Selected", "")]
#[case::script_with_flag(
    "image: vllm/vllm-openai:v1, command: [sh, -c, 'vllm serve m --enable-sleep-mode | tee log']",
    "",
    "Selected",
    ""
)]
fn engines_that_cannot_run_in_dual_pods_are_rejected(
    #[case] runner: &str,
    #[case] fields: &str,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let mut snapshot = snapshot(&[&service(&format!("{runner}, {GPU}"), fields)]);
    snapshot.autoscaler_support = AutoscalerSupport::HpaAndKeda;
    let plan = crate::plan(&snapshot).services.remove(0);
    assert_eq!(code(&plan), (reason == "Selected", reason), "{}", plan.message);
    assert!(plan.message.starts_with(message), "{}", plan.message);
    assert_eq!(plan.objects.is_empty(), reason != "Selected");
}

#[rstest]
#[case::no_accelerators("image: vllm/vllm-openai:v1", "containers[0].resources: the engine requests no accelerators")]
fn engines_without_accelerators_are_rejected(#[case] runner: &str, #[case] message: &str) {
    let plan = plan_manifests(&[&service(runner, "")]);
    assert_eq!(code(&plan), (false, "DualPodsAcceleratorsUnsupported"));
    assert!(plan.message.starts_with(&format!("engine, {message}")), "{}", plan.message);
}

#[rstest]
#[case::several_nodes("multinode: {nodeCount: 2},", "", "", "DualPodsMultiNode", "worker: a replica has 2 nodes")]
#[case::resource_claims(
    "",
    "resourceClaims: [{name: gpu}],",
    "",
    "DualPodsAcceleratorsUnsupported",
    "worker, resourceClaims: dual pods do not support resource claims"
)]
#[case::sidecar_with_accelerators(
    "",
    "",
    ", {name: s, image: s, resources: {limits: {nvidia.com/gpu: '1'}}}",
    "DualPodsAcceleratorsUnsupported",
    "worker, containers[1].resources: only the engine can request accelerators"
)]
#[case::sidecar_with_the_name_of_the_engine(
    "",
    "",
    ", {name: inference-server, image: s}",
    "DualPodsAcceleratorsUnsupported",
    "worker, containers[1].name: inference-server is the name of the engine"
)]
fn roles_that_cannot_run_in_dual_pods_are_rejected(
    #[case] fields: &str,
    #[case] spec: &str,
    #[case] containers: &str,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let template = format!("{{spec: {{{spec} containers: [{{name: vllm, {ENGINE}, {GPU}}}{containers}]}}}}");
    let plan = plan_manifests(&[&role_based_service(fields, &template)]);
    assert_eq!(code(&plan), (false, reason), "{}", plan.message);
    assert!(plan.message.starts_with(message), "{}", plan.message);
}

#[rstest]
#[case::ome(service(&format!("{ENGINE}, {GPU}"), ""), "ome.io/actuation")]
#[case::role_based(
    role_based_service("", &format!("{{spec: {{containers: [{{name: vllm, {ENGINE}, {GPU}}}]}}}}")),
    "fusioninfer.io/actuation"
)]
fn other_values_of_the_annotation_are_rejected(#[case] manifest: String, #[case] key: &str) {
    let plan = plan_manifests(&[&manifest.replace("actuation: dual-pods", "actuation: dual")]);
    assert_eq!(code(&plan), (false, "InvalidAnnotation"));
    assert_eq!(plan.message, format!("metadata.annotations[{key}]: invalid value \"dual\": must be dual-pods"));
}

/// Without a runtime, one is selected whose engine can sleep, although another one has a higher priority.
#[rstest]
#[case::automatic("", "Selected", "vllm")]
#[case::named("runtime: {name: sglang}, ", "EngineCannotSleep", "sglang")]
fn selected_runtime_can_sleep(#[case] runtime: &str, #[case] reason: &str, #[case] expect: &str) {
    let runtime_of = |name: &str, priority: u8, image: &str| {
        format!(
            "{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: {name}}}, spec: {{protocolVersions: [openAI], \
             supportedModelFormats: [{{modelFormat: {{name: safetensors}}, autoSelect: true, priority: {priority}}}], \
             engineConfig: {{runner: {{name: ome-container, image: {image}, {GPU}}}}}}}}}"
        )
    };
    let model = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: m}, spec: {modelFormat: {name: safetensors}, \
                 storage: {storageUri: 'hf://a/m'}}}";
    let service = format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: chat, annotations: {{ome.io/actuation: dual-pods}}}}, \
         spec: {{{runtime}model: {{name: m}}}}}}"
    );
    let runtimes =
        [runtime_of("sglang", 9, "lmsysorg/sglang:v0.5.23"), runtime_of("vllm", 1, "vllm/vllm-openai:v0.32.0")];
    let plan = plan_manifests(&[&runtimes[0], &runtimes[1], model, &service]);
    assert_eq!(plan.reason, reason, "{}", plan.message);
    match plan.runtime {
        Some(runtime) => assert_eq!(runtime.name, expect),
        None => assert!(
            plan.message.contains("the service requests dual pods, and the runtime starts sglang"),
            "{}",
            plan.message
        ),
    }
}

/// Without replicas, the engine sleeps. With a maximum, the gateway scales the requesters, so that a request wakes it.
#[rstest]
#[case::no_maximum("minReplicas: 0, maxReplicas: 0", json!(0), Value::Null)]
#[case::gateway("minReplicas: 0", Value::Null, json!("chat-engine-dual"))]
#[case::one("", json!(1), Value::Null)]
fn engines_are_scaled_to_zero(#[case] engine: &str, #[case] replicas: Value, #[case] target: Value) {
    let plan = plan_manifests(&[&service(&format!("{ENGINE}, {GPU}"), engine)]);
    assert_eq!(object(&plan, "Deployment")["spec"]["replicas"], replicas);
    assert_eq!(object(&plan, "BackendPool")["spec"]["scaleToZero"]["targetRef"]["name"], target);
}
