//! Conditions of parts of a service.

use serde_json::{Value, json};

use crate::cluster::{SERVICES, World, bare};
use crate::fleet::{self, RUNTIMES, furnish};

fn status_of(service: &Value, kind: &str) -> Option<String> {
    cluster::conditions::find(&service["status"]["conditions"], kind)?["status"].as_str().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn the_router_is_ready_by_itself_and_ready_means_all() {
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    let mut runtime = (*server.get(RUNTIMES, "", "any").unwrap()).clone();
    runtime["spec"]["routerConfig"] =
        json!({"runner": {"name": "router", "image": "example.com/router:1", "args": ["--port=8000"]}});
    server.update(RUNTIMES, runtime).unwrap();
    let world = World::on(server, operator::Options::default());
    world.server.create(SERVICES, fleet::service("chat", "small")).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    world.ready("chat-engine");
    let service = world.condition(SERVICES, "chat", "WorkloadsReady", "True").await;
    let stands = |service: &Value| [status_of(service, "RouterReady"), status_of(service, "Ready")];
    assert_eq!(stands(&service), [Some("False".to_owned()), Some("False".to_owned())]);
    world.ready("chat-router");
    let service = world.condition(SERVICES, "chat", "Ready", "True").await;
    assert_eq!(stands(&service), [Some("True".to_owned()), Some("True".to_owned())]);
    assert!(service["status"]["url"].as_str().unwrap().starts_with("http://chat-router.default."));
}

/// What the resource metrics can do becomes a HorizontalPodAutoscaler; the rest is a condition, and goes with its cause.
#[tokio::test(start_paused = true)]
async fn a_metric_that_only_another_autoscaler_reads_is_said() {
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    let world = World::on(server, operator::Options::default());
    let scaled = |metric: &str| json!({"minReplicas": 1, "maxReplicas": 3, "scaleMetric": metric});
    let mut service = fleet::service("chat", "small");
    service["spec"]["engine"] = scaled("cpu");
    world.server.create(SERVICES, service).unwrap();
    let scaler =
        |server: &embedded::Server| server.get("horizontalpodautoscalers.autoscaling", "default", "chat-engine");
    world.until("the autoscaler", scaler).await;
    world.edit(SERVICES, "chat", |service| service["spec"]["engine"] = scaled("rps"));
    let service = world.condition(SERVICES, "chat", "AutoscalerUnavailable", "True").await;
    let condition = cluster::conditions::find(&service["status"]["conditions"], "AutoscalerUnavailable").unwrap();
    assert!(condition["message"].as_str().unwrap().contains("scaleMetric rps needs KEDA"), "{condition}");
    world.until("no autoscaler", |server| scaler(server).is_none().then_some(())).await;
    world.ready("chat-engine");
    world.condition(SERVICES, "chat", "Ready", "True").await;
    world.edit(SERVICES, "chat", |service| service["spec"]["engine"] = scaled("memory"));
    world.until("the autoscaler", scaler).await;
    world
        .until("no such condition", |server| {
            let service = server.get(SERVICES, "default", "chat")?;
            status_of(&service, "AutoscalerUnavailable").is_none().then_some(())
        })
        .await;
}

/// KEDA comes and goes while the service runs.
// spec: RT-28
#[tokio::test(start_paused = true)]
async fn a_scaled_object_while_there_is_keda() {
    const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
    const SCALED: &str = "scaledobjects.keda.sh";
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    let world = World::on(server, operator::Options::default());
    let mut service = fleet::service("chat", "small");
    service["spec"]["engine"] = scaled_by_keda();
    world.server.create(SERVICES, service).unwrap();
    world.condition(SERVICES, "chat", "AutoscalerUnavailable", "True").await;
    world.server.create(DEFINITIONS, keda()).unwrap();
    let scaled = world.until("the ScaledObject", |server| server.get(SCALED, "default", "chat-engine")).await;
    assert_eq!((&scaled["spec"]["minReplicaCount"], &scaled["spec"]["maxReplicaCount"]), (&json!(1), &json!(3)));
    let budget = |server: &embedded::Server| server.get("poddisruptionbudgets.policy", "default", "chat-engine");
    world.until("the budget", budget).await;
    world
        .until("no such condition", |server| {
            let service = server.get(SERVICES, "default", "chat")?;
            status_of(&service, "AutoscalerUnavailable").is_none().then_some(())
        })
        .await;
    world.server.delete(DEFINITIONS, "", SCALED, None).unwrap();
    world.condition(SERVICES, "chat", "AutoscalerUnavailable", "True").await;
    world.until("no budget for one replica", |server| budget(server).is_none().then_some(())).await;
}

fn scaled_by_keda() -> Value {
    json!({"minReplicas": 1, "maxReplicas": 3, "scaleMetric": "rps",
        "kedaConfig": {"promServerAddress": "http://prometheus:9090", "customPromQuery": "waiting"}})
}

fn keda() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"metadata": {"name": "scaledobjects.keda.sh"}, "spec": {"group": "keda.sh", "scope": "Namespaced",
        "names": {"kind": "ScaledObject", "listKind": "ScaledObjectList", "plural": "scaledobjects", "singular": "scaledobject"},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}]}})
}
