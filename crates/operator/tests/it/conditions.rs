//! Conditions that concern parts of a service, such as its autoscaler.

use serde_json::{Value, json};

use crate::supply::{self, RUNTIMES, create_supply};
use crate::test_cluster::{OME_SERVICES, TestCluster, server_with_ostler_crds};

fn status_of(service: &Value, kind: &str) -> Option<String> {
    cluster::find_condition(&service["status"]["conditions"], kind)?["status"].as_str().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn router_has_its_own_condition_and_ready_includes_all_components() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let mut runtime = (*server.get(RUNTIMES, "", "any").unwrap()).clone();
    runtime["spec"]["routerConfig"] =
        json!({"runner": {"name": "router", "image": "example.com/router:1", "args": ["--port=8000"]}});
    server.update(RUNTIMES, runtime).unwrap();
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    test_cluster.server.create(OME_SERVICES, supply::service("chat", "small")).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    test_cluster.mark_deployment_ready("chat-engine");
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "WorkloadsReady", "True").await;
    let statuses = |service: &Value| [status_of(service, "RouterReady"), status_of(service, "Ready")];
    assert_eq!(statuses(&service), [Some("False".to_owned()), Some("False".to_owned())]);
    test_cluster.mark_deployment_ready("chat-router");
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "Ready", "True").await;
    assert_eq!(statuses(&service), [Some("True".to_owned()), Some("True".to_owned())]);
    assert!(service["status"]["url"].as_str().unwrap().starts_with("http://chat-router.default."));
}

/// Resource metrics need only a HorizontalPodAutoscaler; other metrics are reported in a condition, which disappears
/// with its cause.
#[tokio::test(start_paused = true)]
async fn reports_metric_that_requires_another_autoscaler() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    let scaled_engine = |metric: &str| json!({"minReplicas": 1, "maxReplicas": 3, "scaleMetric": metric});
    let mut service = supply::service("chat", "small");
    service["spec"]["engine"] = scaled_engine("cpu");
    test_cluster.server.create(OME_SERVICES, service).unwrap();
    let autoscaler =
        |server: &embedded::Server| server.get("horizontalpodautoscalers.autoscaling", "default", "chat-engine");
    test_cluster.wait_for("the autoscaler", autoscaler).await;
    test_cluster.update_object(OME_SERVICES, "chat", |service| service["spec"]["engine"] = scaled_engine("rps"));
    let service = test_cluster.wait_for_condition(OME_SERVICES, "chat", "AutoscalerUnavailable", "True").await;
    let condition = cluster::find_condition(&service["status"]["conditions"], "AutoscalerUnavailable").unwrap();
    assert!(condition["message"].as_str().unwrap().contains("scaleMetric rps requires KEDA"), "{condition}");
    test_cluster.wait_for("deletion of the autoscaler", |server| autoscaler(server).is_none().then_some(())).await;
    test_cluster.mark_deployment_ready("chat-engine");
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "Ready", "True").await;
    test_cluster.update_object(OME_SERVICES, "chat", |service| service["spec"]["engine"] = scaled_engine("memory"));
    test_cluster.wait_for("the autoscaler", autoscaler).await;
    test_cluster
        .wait_for("the condition to disappear", |server| {
            let service = server.get(OME_SERVICES, "default", "chat")?;
            status_of(&service, "AutoscalerUnavailable").is_none().then_some(())
        })
        .await;
}

/// KEDA is installed and uninstalled while the service runs.
// spec: RT-28
#[tokio::test(start_paused = true)]
async fn creates_scaled_object_while_keda_is_installed() {
    const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
    const SCALED: &str = "scaledobjects.keda.sh";
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    let mut service = supply::service("chat", "small");
    service["spec"]["engine"] = keda_scaled_engine();
    test_cluster.server.create(OME_SERVICES, service).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "AutoscalerUnavailable", "True").await;
    test_cluster.server.create(CRDS, keda_crd()).unwrap();
    let scaled_object =
        test_cluster.wait_for("the ScaledObject", |server| server.get(SCALED, "default", "chat-engine")).await;
    assert_eq!(
        (&scaled_object["spec"]["minReplicaCount"], &scaled_object["spec"]["maxReplicaCount"]),
        (&json!(1), &json!(3))
    );
    let budget = |server: &embedded::Server| server.get("poddisruptionbudgets.policy", "default", "chat-engine");
    test_cluster.wait_for("the PodDisruptionBudget", budget).await;
    test_cluster
        .wait_for("the condition to disappear", |server| {
            let service = server.get(OME_SERVICES, "default", "chat")?;
            status_of(&service, "AutoscalerUnavailable").is_none().then_some(())
        })
        .await;
    test_cluster.server.delete(CRDS, "", SCALED, None).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "AutoscalerUnavailable", "True").await;
    test_cluster.wait_for("deletion of the PodDisruptionBudget", |server| budget(server).is_none().then_some(())).await;
}

fn keda_scaled_engine() -> Value {
    json!({"minReplicas": 1, "maxReplicas": 3, "scaleMetric": "rps",
        "kedaConfig": {"promServerAddress": "http://prometheus:9090", "customPromQuery": "waiting"}})
}

fn keda_crd() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"metadata": {"name": "scaledobjects.keda.sh"}, "spec": {"group": "keda.sh", "scope": "Namespaced",
        "names": {"kind": "ScaledObject", "listKind": "ScaledObjectList", "plural": "scaledobjects", "singular": "scaledobject"},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}]}})
}
