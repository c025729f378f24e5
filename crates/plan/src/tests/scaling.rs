//! What moves the number of replicas, what protects them, and where their models are.

use rstest::rstest;
use serde_json::{Value, json};

use super::{codes, node, service, snapshot};
use crate::ServicePlan;
use crate::topology::AutoscalerSupport;

fn with_keda(spec: &str) -> ServicePlan {
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
fn requests_scale_through_keda(
    #[case] image: &str,
    #[case] numbers: &str,
    #[case] query: &str,
    #[case] threshold: &str,
) {
    let plan = with_keda(&format!(
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
#[case::no_prometheus("x/vllm", "{}", "needs kedaConfig.promServerAddress")]
#[case::unknown_engine("x", "{promServerAddress: 'http://p'}", "needs kedaConfig.customPromQuery")]
fn what_keda_cannot_ask_is_told(#[case] image: &str, #[case] config: &str, #[case] expect: &str) {
    let plan = with_keda(&format!(
        "{{engine: {{runner: {{image: {image}}}, kedaConfig: {config}, minReplicas: 2, maxReplicas: 3, scaleMetric: rps}}}}"
    ));
    assert_eq!(spec(&plan, "Deployment").unwrap()["replicas"], 2);
    let told = plan.warnings.iter().find(|warning| warning.code == "AutoscalerUnavailable").unwrap();
    assert!(told.message.contains(expect), "{}", told.message);
}

// spec: RT-25
#[rstest]
#[case::by_a_query_of_ones_own("customPromQuery: waiting, scalingThreshold: '3'", Some((0, "3")))]
#[case::engines_count_nothing_while_none_runs("", None)]
fn scale_to_zero(#[case] config: &str, #[case] expect: Option<(u32, &str)>) {
    let plan = with_keda(&format!(
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

#[rstest]
#[case::one("maxReplicas: 1", None)]
#[case::two("maxReplicas: 2", Some(json!({"maxUnavailable": 1})))]
#[case::stated("maxReplicas: 4, minAvailable: 50%", Some(json!({"minAvailable": "50%"})))]
fn a_budget_for_drains_where_there_can_be_two(#[case] numbers: &str, #[case] expect: Option<Value>) {
    let plan = with_keda(&format!("{{engine: {{runner: {{image: x}}, {numbers}}}}}"));
    let expect = expect.map(|mut expect| {
        expect["selector"] = json!({"matchLabels": {"ome.io/inferenceservice": "chat", "component": "engine"}});
        expect
    });
    assert_eq!(spec(&plan, "PodDisruptionBudget"), expect.as_ref());
}

const MODEL: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: tiny},
    spec: {modelFormat: {name: safetensors}, storage: {STORAGE}}}";

#[rstest]
#[case::agent_says("storageUri: 'hf://a/b', path: /models/tiny", "Ready", true)]
#[case::still_loading("storageUri: 'hf://a/b', path: /models/tiny", "Updating", false)]
#[case::claim("storageUri: 'pvc://weights/tiny'", "Ready", false)]
fn pods_go_where_the_model_is(#[case] storage: &str, #[case] state: &str, #[case] bound: bool) {
    let node =
        node("n", "x").replace("labels: {", &format!("labels: {{models.ome.io/clusterbasemodel.tiny: {state}, "));
    let spec = "{model: {name: tiny}, engine: {runner: {image: x, args: [a]}}}";
    let snapshot = snapshot(&[&MODEL.replace("STORAGE", storage), &node, &service("chat", spec)]);
    let plan = crate::plan(&snapshot).services.remove(0);
    let pod = &plan.objects[0]["spec"]["template"]["spec"];
    let expect = bound.then(|| json!("Ready"));
    assert_eq!(pod["nodeSelector"].get("models.ome.io/clusterbasemodel.tiny"), expect.as_ref(), "{}", plan.message);
}
