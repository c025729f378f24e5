//! Autoscaling, disruption budgets and model placement.

use rstest::rstest;
use serde_json::{Value, json};

use super::{codes, node, service, snapshot};
use crate::ServicePlan;
use crate::replicas::AutoscalerSupport;

fn plan_with_keda(spec: &str) -> ServicePlan {
    let mut snapshot = snapshot(&[&service("chat", spec)]);
    snapshot.autoscaler_support = AutoscalerSupport::HpaAndKeda;
    crate::plan(&snapshot).services.remove(0)
}

fn spec<'a>(plan: &'a ServicePlan, kind: &str) -> Option<&'a Value> {
    plan.objects.iter().find(|object| object["kind"] == kind).map(|object| &object["spec"])
}

// spec: RT-28
#[rstest]
#[case::concurrency(
    "vllm/vllm-openai", "scaleMetric: concurrency, scaleTarget: 8",
    r#"sum(vllm:num_requests_running{namespace="default",pod=~"chat-engine-.*"}) + sum(vllm:num_requests_waiting{namespace="default",pod=~"chat-engine-.*"})"#, "8"
)]
#[case::requests(
    "lmsysorg/sglang",
    "scaleMetric: rps",
    r#"sum(rate(sglang:num_requests_total{namespace="default",pod=~"chat-engine-.*"}[1m]))"#,
    "10"
)]
fn keda_scales_by_requests(#[case] image: &str, #[case] numbers: &str, #[case] query: &str, #[case] threshold: &str) {
    let plan = plan_with_keda(&format!(
        "{{kedaConfig: {{promServerAddress: 'http://prometheus:9090'}}, engine: {{runner: {{image: {image}}}, minReplicas: 1, maxReplicas: 3, {numbers}}}}}"
    ));
    assert_eq!(
        spec(&plan, "ScaledObject").unwrap(),
        &json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-engine"},
            "minReplicaCount": 1,
            "maxReplicaCount": 3,
            "triggers": [{"type": "prometheus", "metricType": "AverageValue",
                "metadata": {"serverAddress": "http://prometheus:9090", "query": query, "threshold": threshold}}],
        })
    );
    assert_eq!(
        (spec(&plan, "HorizontalPodAutoscaler"), spec(&plan, "Deployment").unwrap().get("replicas")),
        (None, None)
    );
    assert!(!codes(&plan).contains(&"AutoscalerUnavailable"));
}

#[rstest]
#[case::no_prometheus("x/vllm", "{}", "requires kedaConfig.promServerAddress")]
#[case::unknown_engine("x", "{promServerAddress: 'http://p'}", "requires kedaConfig.customPromQuery")]
fn warns_about_missing_keda_configuration(#[case] image: &str, #[case] config: &str, #[case] expect: &str) {
    let plan = plan_with_keda(&format!(
        "{{engine: {{runner: {{image: {image}}}, kedaConfig: {config}, minReplicas: 2, maxReplicas: 3, scaleMetric: rps}}}}"
    ));
    assert_eq!(spec(&plan, "Deployment").unwrap()["replicas"], 2);
    let warning = plan.warnings.iter().find(|warning| warning.code == "AutoscalerUnavailable").unwrap();
    assert!(warning.message.contains(expect), "{}", warning.message);
}

// spec: RT-25
#[rstest]
#[case::custom_query("customPromQuery: waiting, scalingThreshold: '3'", Some((0, "3")))]
#[case::default_query("", None)]
fn scale_to_zero(#[case] config: &str, #[case] expect: Option<(u32, &str)>) {
    let plan = plan_with_keda(&format!(
        "{{engine: {{runner: {{image: x/vllm}}, kedaConfig: {{promServerAddress: 'http://p', {config}}}, minReplicas: 0, maxReplicas: 1, scaleMetric: concurrency}}}}"
    ));
    let scaled = spec(&plan, "ScaledObject").map(|spec| {
        let threshold = spec["triggers"][0]["metadata"]["threshold"].as_str().unwrap();
        (u32::try_from(spec["minReplicaCount"].as_u64().unwrap()).unwrap(), threshold)
    });
    assert_eq!(scaled, expect);
    assert_eq!(codes(&plan).contains(&"AutoscalerUnavailable"), expect.is_none());
    let replicas = spec(&plan, "Deployment").unwrap().get("replicas");
    assert_eq!(replicas, expect.is_none().then_some(&json!(1)));
}

/// Without KEDA, the gateway scales from zero, and a HorizontalPodAutoscaler beyond one replica.
// spec: RT-25
#[rstest]
#[case::default_timeout("", 1, "5m", None)]
#[case::stated_timeout("annotations: {ome.io/idle-timeout: 90s}, ", 1, "90s", None)]
#[case::autoscaler("", 3, "5m", Some(1))]
fn gateway_scales_to_zero(
    #[case] metadata: &str,
    #[case] max: u32,
    #[case] timeout: &str,
    #[case] minimum_of_autoscaler: Option<u32>,
) {
    let spec_text = format!("{{engine: {{runner: {{image: x/vllm}}, minReplicas: 0, maxReplicas: {max}}}}}");
    let service = service("chat", &spec_text).replace("metadata: {", &format!("metadata: {{{metadata}"));
    let plan = crate::plan(&snapshot(&[&service])).services.remove(0);
    assert!(!codes(&plan).contains(&"AutoscalerUnavailable"));
    assert_eq!(spec(&plan, "Deployment").unwrap().get("replicas"), None);
    let autoscaler = spec(&plan, "HorizontalPodAutoscaler").map(|spec| spec["minReplicas"].as_u64().unwrap());
    assert_eq!(autoscaler, minimum_of_autoscaler.map(u64::from));
    let pool = spec(&plan, "BackendPool").unwrap();
    let target = json!({"kind": "Deployment", "name": "chat-engine"});
    assert_eq!(pool["scaleToZero"], json!({"targetRef": target, "idleTimeout": timeout, "startTimeout": "10m"}));
}

/// Columns: further fields of the service, and a part of the warning.
#[rstest]
#[case::router("router: {runner: {image: r}},", "with a router")]
#[case::decoder("decoder: {runner: {image: x/vllm}},", "with a decoder")]
#[case::keda("kedaConfig: {promServerAddress: 'http://p'},", "kedaConfig.customPromQuery")]
fn service_that_cannot_be_scaled_from_zero_keeps_a_replica(#[case] fields: &str, #[case] expect: &str) {
    let metric = if fields.contains("keda") { ", scaleMetric: concurrency, maxReplicas: 2" } else { "" };
    let plan = plan_with_keda(&format!("{{{fields} engine: {{runner: {{image: x/vllm}}, minReplicas: 0{metric}}}}}"));
    let warning = plan.warnings.iter().find(|warning| warning.code == "AutoscalerUnavailable").unwrap();
    assert!(warning.message.contains(expect), "{}", warning.message);
    assert_eq!(spec(&plan, "BackendPool").unwrap().get("scaleToZero"), None);
}

#[test]
fn idle_timeout_must_be_a_duration() {
    let service = service("chat", "{engine: {runner: {image: x/vllm}, minReplicas: 0}}");
    let service = service.replace("metadata: {", "metadata: {annotations: {ome.io/idle-timeout: soon}, ");
    let plan = crate::plan(&snapshot(&[&service])).services.remove(0);
    assert!(plan.message.contains("ome.io/idle-timeout"), "{}", plan.message);
}

#[rstest]
#[case::one_replica("maxReplicas: 1", None)]
#[case::two_replicas("maxReplicas: 2", Some(json!({"maxUnavailable": 1})))]
#[case::min_available("maxReplicas: 4, minAvailable: 50%", Some(json!({"minAvailable": "50%"})))]
fn disruption_budget_for_more_than_one_replica(#[case] numbers: &str, #[case] expect: Option<Value>) {
    let plan = plan_with_keda(&format!("{{engine: {{runner: {{image: x}}, {numbers}}}}}"));
    let expect = expect.map(|mut expect| {
        expect["selector"] = json!({"matchLabels": {"ome.io/inferenceservice": "chat", "component": "engine"}});
        expect
    });
    assert_eq!(spec(&plan, "PodDisruptionBudget"), expect.as_ref());
}

const MODEL: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: tiny},
    spec: {modelFormat: {name: safetensors}, storage: {STORAGE}}}";

#[rstest]
#[case::ready("storageUri: 'hf://a/b', path: /models/tiny", "Ready", true)]
#[case::still_loading("storageUri: 'hf://a/b', path: /models/tiny", "Updating", false)]
#[case::claim("storageUri: 'pvc://weights/tiny'", "Ready", false)]
fn selects_nodes_with_the_model(#[case] storage: &str, #[case] state: &str, #[case] expect_selector: bool) {
    let node =
        node("n", "x").replace("labels: {", &format!("labels: {{models.ome.io/clusterbasemodel.tiny: {state}, "));
    let spec = "{model: {name: tiny}, engine: {runner: {image: x, args: [a]}}}";
    let snapshot = snapshot(&[&MODEL.replace("STORAGE", storage), &node, &service("chat", spec)]);
    let plan = crate::plan(&snapshot).services.remove(0);
    let pod = &plan.objects[0]["spec"]["template"]["spec"];
    let expect = expect_selector.then(|| json!("Ready"));
    assert_eq!(pod["nodeSelector"].get("models.ome.io/clusterbasemodel.tiny"), expect.as_ref(), "{}", plan.message);
}
