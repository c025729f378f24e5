//! Predictions of `preview_services`, compared with what the operator then does.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{Kind, NamespacedName, ObjectPreview, PreviewOutcome};
use embedded::Server;
use operator::kinds::{DEPLOYMENT, FUSIONINFER_SERVICE, OME_SERVICE};
use operator::{ClusterListing, ServicePreview, preview_services};
use rstest::rstest;
use serde_json::{Value, json};

use crate::rollout_capacity::wait_for_image;
use crate::scaling::{add_node, cluster_with_full_class, wait_until_ready};
use crate::simulated_cluster::{SimulatedCluster, role, service_with_roles};
use crate::test_cluster::{FUSIONINFER_SERVICES, OME_SERVICES};
use crate::workload_replacement::{cluster_with, large_engine, set_engine, small_engine, wait_for_images};

const DEPLOYMENTS: &str = "deployments.apps";

/// Returns all objects of the cluster that a preview reads.
pub(crate) fn listing(server: &Server) -> ClusterListing {
    let list = |kind: &Kind| server.list(&kind.group_resource()).iter().map(|object| (**object).clone()).collect();
    ClusterListing {
        objects: ClusterListing::kinds().into_iter().map(|kind| (kind, list(&kind))).collect(),
        unreadable: BTreeMap::new(),
    }
}

/// Returns a client that fails the test if it is used.
fn offline_client() -> kube::Client {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        let is_read = request.method() == http::Method::GET;
        assert!(is_read, "{} {}", request.method(), request.uri());
        Ok::<_, std::convert::Infallible>(not_found())
    });
    kube::Client::new(service, "default")
}

fn not_found() -> http::Response<axum::body::Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "not found", "reason": "NotFound", "code": 404});
    http::Response::builder().status(404).body(status.to_string().into()).unwrap()
}

/// Predicts the changes of all services.
pub(crate) async fn preview(listing: &ClusterListing) -> Vec<ServicePreview> {
    let options = operator::Options::default();
    preview_services(offline_client(), listing, &options, |_, _| true).await.unwrap()
}

/// Predicts the changes of the only service.
async fn preview_one(listing: &ClusterListing) -> ServicePreview {
    let previews = preview(listing).await;
    let [preview] = <[ServicePreview; 1]>::try_from(previews).unwrap();
    assert!(preview.plan.as_ref().unwrap().feasible);
    preview
}

/// Returns `outcome Kind name` of the objects that change.
pub(crate) fn changes(preview: &ServicePreview) -> Vec<String> {
    let changed = preview.objects.iter().filter(|object| object.outcome != PreviewOutcome::Unchanged);
    changed.map(|object| format!("{:?} {} {}", object.outcome, object.kind, object.key.name)).collect()
}

fn restarts(preview: &ServicePreview) -> Vec<String> {
    preview.restarts.iter().map(|restart| format!("{} {}: {}", restart.kind, restart.key.name, restart.pods)).collect()
}

/// Returns the service of the listing with an edited spec, as the API server stores it.
fn edit(listing: &mut ClusterListing, kind: Kind, name: &str, edit: &dyn Fn(&mut Value)) {
    let mut service = listing.get(kind, &NamespacedName::new("default", name)).unwrap().clone();
    edit(&mut service);
    service["metadata"]["generation"] = json!(service["metadata"]["generation"].as_i64().unwrap() + 1);
    listing.insert(kind, service);
}

/// Returns an object without the fields that the API server and other controllers set.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "ownerReferences"] {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|name, _| name != "deployment.kubernetes.io/revision");
    }
    if metadata.get("annotations") == Some(&json!({})) {
        metadata.remove("annotations");
    }
    object
}

/// Returns whether `actual` has all fields of `expected`; defaults of the API server may be added.
pub(crate) fn contains(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => expected
            .iter()
            .filter(|(_, value)| !value.is_null())
            .all(|(name, value)| actual.get(name).is_some_and(|actual| contains(actual, value))),
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len() && actual.iter().zip(expected).all(|(left, right)| contains(left, right))
        }
        _ => {
            actual == expected
                || canonical_quantity(actual).is_some_and(|actual| Some(actual) == canonical_quantity(expected))
        }
    }
}

fn canonical_quantity(value: &Value) -> Option<apimachinery::Quantity> {
    serde_json::from_value(value.clone()).ok()
}

/// Checks that the objects of the cluster are those that were predicted.
fn assert_predicted(server: &Server, previews: &[ObjectPreview]) {
    for preview in previews {
        let kind = ClusterListing::kinds()
            .into_iter()
            .find(|kind| kind.kind == preview.kind && kind.api_version() == preview.api_version);
        let actual = server.get(&kind.unwrap().group_resource(), &preview.key.namespace, &preview.key.name);
        let name = format!("{} {}", preview.kind, preview.key);
        match (&preview.outcome, &preview.planned) {
            (PreviewOutcome::Deleted, _) => assert!(actual.is_none(), "{name} exists"),
            (PreviewOutcome::Created, Some(planned)) => {
                assert!(contains(&content(&actual.unwrap()), &content(planned)), "{name}: {planned:#}");
            }
            (_, Some(planned)) => assert_eq!(content(&actual.unwrap()), content(planned), "{name}"),
            (outcome, None) => panic!("{name}: {outcome:?}"),
        }
    }
}

/// The class has no room for an additional Pod.
#[tokio::test(start_paused = true)]
async fn edit_on_a_full_class_recreates_the_pod() {
    let cluster = cluster_with_full_class().await;
    assert_eq!(changes(&preview_one(&listing(&cluster.server)).await), [""; 0], "nothing changes after an apply");
    let set_image = |service: &mut Value| service["spec"]["engine"] = json!({"runner": {"image": "example.com/any:2"}});
    let mut edited = listing(&cluster.server);
    edit(&mut edited, OME_SERVICE, "chat", &set_image);
    let predicted = preview_one(&edited).await;
    assert_eq!(changes(&predicted), ["Updated Deployment chat-engine"]);
    assert_eq!(restarts(&predicted), ["Deployment chat-engine: 1"]);
    let deployment = predicted.objects.iter().find(|object| object.kind == "Deployment").unwrap();
    assert_eq!(deployment.planned.as_ref().unwrap()["spec"]["strategy"], json!({"type": "Recreate"}));
    cluster.test_cluster.update_object(OME_SERVICES, "chat", set_image);
    wait_for_image(&cluster, "example.com/any:2", 1).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_predicted(&cluster.server, &predicted.objects);
    assert_eq!(changes(&preview_one(&listing(&cluster.server)).await), [""; 0], "the strategy is retained");
}

#[tokio::test(start_paused = true)]
async fn scaling_is_no_restart() {
    let cluster = cluster_with_full_class().await;
    add_node(&cluster.server, "node-small-2", "small", 1);
    cluster.test_cluster.wait_until_idle().await;
    let steps: [(Value, &[&str]); 3] = [
        (
            json!({"minReplicas": 2, "maxReplicas": 2}),
            &["Updated Deployment chat-engine", "Created PodDisruptionBudget chat-engine"],
        ),
        (
            json!({"minReplicas": 1, "maxReplicas": 2}),
            &["Updated Deployment chat-engine", "Created HorizontalPodAutoscaler chat-engine"],
        ),
        (
            json!({"minReplicas": 1, "maxReplicas": 1}),
            &["Deleted HorizontalPodAutoscaler chat-engine", "Deleted PodDisruptionBudget chat-engine"],
        ),
    ];
    for (engine, expected) in steps {
        let mut edited = listing(&cluster.server);
        edit(&mut edited, OME_SERVICE, "chat", &|service| service["spec"]["engine"] = engine.clone());
        let predicted = preview_one(&edited).await;
        assert_eq!(changes(&predicted), expected, "{engine}");
        assert_eq!(restarts(&predicted), [""; 0]);
        cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| service["spec"]["engine"] = engine.clone());
        cluster.test_cluster.wait_until_idle().await;
        wait_until_ready(&cluster, "True").await;
        cluster.test_cluster.wait_until_idle().await;
        assert_predicted(&cluster.server, &predicted.objects);
    }
}

/// The template of an earlier version lacks the arguments and has a variable.
#[tokio::test(start_paused = true)]
async fn upgrade_announces_restarts() {
    let cluster = cluster_with_full_class().await;
    let mut listing = listing(&cluster.server);
    let server = Server::new(&embedded::ports::ServerPorts::default());
    let mut old = content(listing.get(DEPLOYMENT, &NamespacedName::new("default", "chat-engine")).unwrap());
    let mut newer = old.clone();
    let container = &mut old["spec"]["template"]["spec"]["containers"][0];
    container.as_object_mut().unwrap().remove("args");
    container["env"] = json!([{"name": "OLD", "value": "1"}]);
    server.apply(DEPLOYMENTS, &old, operator::FIELD_MANAGER).unwrap();
    let mut live = (*server.get(DEPLOYMENTS, "default", "chat-engine").unwrap()).clone();
    newer["metadata"] =
        listing.get(DEPLOYMENT, &NamespacedName::new("default", "chat-engine")).unwrap()["metadata"].clone();
    live["metadata"]["ownerReferences"] = newer["metadata"]["ownerReferences"].clone();
    live["metadata"]["uid"] = newer["metadata"]["uid"].clone();
    listing.insert(DEPLOYMENT, live);
    let predicted = preview_one(&listing).await;
    assert_eq!(changes(&predicted), ["Updated Deployment chat-engine"]);
    assert_eq!(restarts(&predicted), ["Deployment chat-engine: 1"]);
    let planned =
        predicted.objects.iter().find_map(|object| object.planned.as_ref().filter(|_| object.kind == "Deployment"));
    let container = &planned.unwrap()["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["args"], &container["env"]),
        (&json!(["--port=8080"]), &newer["spec"]["template"]["spec"]["containers"][0]["env"])
    );
}

fn service_with_router(image: &str) -> Value {
    let mut decode = role("decode", "decoder", 2, 1, 8);
    decode["template"]["spec"]["containers"][0]["image"] = json!(image);
    let router = json!({"name": "entry", "componentType": "router", "strategy": "pd-disaggregation",
        "httproute": {"parentRefs": [{"name": "gateway"}]}});
    service_with_roles("chat", vec![role("prefill", "prefiller", 1, 2, 8), decode, router])
}

/// The operator updates the replicas one at a time; the preview shows all of them.
#[rstest]
#[case::rollout(json!({}), &["Updated LeaderWorkerSet chat-decode-0", "Updated LeaderWorkerSet chat-decode-1"],
    &["LeaderWorkerSet chat-decode-0: 1", "LeaderWorkerSet chat-decode-1: 1"])]
#[case::paused(json!({"fusioninfer.io/rollout-paused": "true"}), &["NotApplied(Deferred) LeaderWorkerSet chat-decode-0",
    "NotApplied(Deferred) LeaderWorkerSet chat-decode-1"], &[])]
#[tokio::test(start_paused = true)]
async fn rollout_of_a_role(#[case] annotations: Value, #[case] expected: &[&str], #[case] expected_restarts: &[&str]) {
    let cluster = SimulatedCluster::with_gpus(32);
    cluster.server.create(FUSIONINFER_SERVICES, service_with_router("vllm/vllm-openai:v0.11.0")).unwrap();
    cluster.wait_until_ready("chat").await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(changes(&preview_one(&listing(&cluster.server)).await), [""; 0], "nothing changes after an apply");
    let set_image = |service: &mut Value| {
        service["spec"] = service_with_router("vllm/vllm-openai:v0.12.0")["spec"].clone();
        service["metadata"]["annotations"] = annotations.clone();
    };
    let mut edited = listing(&cluster.server);
    edit(&mut edited, FUSIONINFER_SERVICE, "chat", &set_image);
    let predicted = preview_one(&edited).await;
    let mut found = changes(&predicted);
    found.retain(|change| change.contains("LeaderWorkerSet chat-decode"));
    assert_eq!(
        (found, restarts(&predicted)),
        (
            expected.iter().map(ToString::to_string).collect(),
            expected_restarts.iter().map(ToString::to_string).collect()
        )
    );
    if expected_restarts.is_empty() {
        return;
    }
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", set_image);
    let is_updated = |server: &Server| {
        let is_new = |set: &Arc<Value>| set["spec"].to_string().contains("v0.12.0");
        (server.list(crate::simulated_cluster::LEADER_WORKER_SETS).iter().filter(|set| is_new(set)).count() == 2)
            .then_some(())
    };
    cluster.wait_for("the rollout", &is_updated).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_predicted(&cluster.server, &predicted.objects);
    assert_eq!(changes(&preview_one(&listing(&cluster.server)).await), [""; 0]);
}

/// The engine needs two nodes now, and its old Pod leaves two, or only one, without it.
#[rstest]
#[case::room_for_both(24, false)]
#[case::full(16, true)]
#[tokio::test(start_paused = true)]
async fn replacement_of_a_workload_announces_the_pods_that_stop(#[case] gpus: usize, #[case] recreates: bool) {
    let cluster = cluster_with(gpus, small_engine("small:1")).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(changes(&preview_one(&listing(&cluster.server)).await), [""; 0], "nothing changes after an apply");
    let mut edited = listing(&cluster.server);
    edit(&mut edited, OME_SERVICE, "chat", &|service| service["spec"]["engine"] = large_engine());
    let predicted = preview_one(&edited).await;
    let expected = [
        "Created PodGroup chat",
        "Created LeaderWorkerSet chat-engine",
        "Updated Service chat-engine",
        "Updated BackendPool chat",
        "Deleted Deployment chat-engine",
    ];
    assert_eq!(changes(&predicted), expected);
    assert_eq!(restarts(&predicted), ["Deployment chat-engine: 1"]);
    assert_eq!((predicted.restarts[0].replaced, predicted.restarts[0].recreates), (true, recreates));
    set_engine(&cluster, &large_engine());
    wait_for_images(&cluster, &["large:1", "large:1"], &|_| {}).await;
    assert_predicted(&cluster.server, &predicted.objects);
}
