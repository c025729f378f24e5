//! Tests of the API server with a `kube::Client` over the router.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy exempts test functions but not test helpers"
)]

mod clients;
mod crash_recovery;
mod credentials;
mod devices;
mod differential;
mod faulty_storage;
mod full_disk;
mod fuzz;
mod load;
mod node_agent_panics;
mod nodes;
mod numbers;
mod pagination;
mod robustness;
mod scheduling;
mod supervision;
mod volumes;
mod watches;
mod workloads;

use std::sync::Arc;

use embedded::Server;
use embedded::ports::{ContainerConfig, ContainerExit, ContainerRuntime, NoDevices, Ports, ServerPorts, TcpNetwork};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct NoopRuntime;

impl ContainerRuntime for NoopRuntime {
    fn run(&self, _container: ContainerConfig, _stop: CancellationToken) -> BoxFuture<'static, ContainerExit> {
        Box::pin(async { ContainerExit { code: 0, message: String::new() } })
    }
}

fn ports() -> Ports {
    Ports {
        server: ServerPorts::default(),
        runtime: Arc::new(NoopRuntime),
        network: Arc::new(TcpNetwork),
        devices: Arc::new(NoDevices),
    }
}

fn server() -> Server {
    Server::new(&ServerPorts::default())
}

fn client(server: &Server) -> kube::Client {
    kube::Client::new(embedded::router(server), "default")
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "1"}})).unwrap()
}

fn widgets(server: &Server) -> Api<DynamicObject> {
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "required": ["size"], "properties": {
                    "size": {"type": "integer"}, "replicas": {"type": "integer", "default": 2}},
                    "x-kubernetes-validations": [{"rule": "self.size < 100", "message": "too big"}]},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}});
    server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    Api::namespaced_with(client(server), "default", &resource)
}

fn widget(spec: Value) -> DynamicObject {
    serde_json::from_value(
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}),
    )
    .unwrap()
}

#[tokio::test]
async fn watch_reports_changes_since_resource_version() {
    let server = server();
    let api: Api<ConfigMap> = Api::namespaced(client(&server), "default");
    let from = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"k": "2"}}));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();

    let events = api.watch(&WatchParams::default(), &from).await.unwrap().take(3);
    let kinds: Vec<(&str, String)> = events
        .map_ok(|event| match event {
            WatchEvent::Added(object) => ("ADDED", object.metadata.resource_version.unwrap()),
            WatchEvent::Modified(object) => ("MODIFIED", object.metadata.resource_version.unwrap()),
            WatchEvent::Deleted(object) => ("DELETED", object.metadata.resource_version.unwrap()),
            _ => ("", String::new()),
        })
        .try_collect()
        .await
        .unwrap();
    let base: u64 = from.parse().unwrap();
    // The second patch changes nothing, so it has neither a revision nor an event; the deletion has a revision.
    let expected = [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 3)].map(|(kind, n)| (kind, (base + n).to_string()));
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn custom_resources_are_defaulted_and_validated() {
    let server = server();
    let api = widgets(&server);
    let created = api.create(&PostParams::default(), &widget(json!({"size": 3}))).await.unwrap();
    assert_eq!(created.data["spec"], json!({"size": 3, "replicas": 2}));

    let rejected = api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"spec": {"size": 1000}}))).await;
    let Err(kube::Error::Api(status)) = rejected else { panic!("{rejected:?}") };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert!(status.message.contains("too big"), "{}", status.message);

    let status = Patch::Merge(json!({"status": {"ready": true}, "spec": {"size": 9}}));
    let patched = api.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(patched.data, json!({"spec": {"size": 3, "replicas": 2}, "status": {"ready": true}}));
    assert_eq!(patched.metadata.generation, Some(1));
}

#[tokio::test]
async fn repeated_apply_changes_nothing() {
    let server = server();
    let api = widgets(&server);
    let parameters = PatchParams::apply("tester").force();
    let first = api.patch("a", &parameters, &Patch::Apply(widget(json!({"size": 3})))).await.unwrap();
    let second = api.patch("a", &parameters, &Patch::Apply(widget(json!({"size": 3})))).await.unwrap();
    assert_eq!(first.metadata.resource_version, second.metadata.resource_version);
    let third = api.patch("a", &parameters, &Patch::Apply(widget(json!({"size": 4})))).await.unwrap();
    assert_eq!(third.metadata.generation, Some(2));
}

#[tokio::test]
async fn later_pages_have_revision_of_first_page() {
    let server = server();
    let api: Api<ConfigMap> = Api::namespaced(client(&server), "default");
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!((first.items.len(), first.metadata.remaining_item_count), (2, Some(1)));
    api.delete("c", &DeleteParams::default()).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    let second = api.list(&ListParams::default().continue_token(&token)).await.unwrap();
    assert_eq!(second.items[0].metadata.name.as_deref(), Some("c"));
}

#[test]
fn deletes_dependents_of_absent_owner_uid() {
    let server = server();
    let owner = server.create("configmaps", json!({"metadata": {"name": "owner", "namespace": "default"}})).unwrap();
    let reference =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    let child = json!({"metadata": {"name": "child", "namespace": "default", "ownerReferences": reference}});
    server.create("configmaps", child.clone()).unwrap();
    server.delete("configmaps", "default", "owner", None).unwrap();
    assert!(server.get("configmaps", "default", "child").is_none());

    // A new object with the same name is a different owner.
    server.create("configmaps", json!({"metadata": {"name": "owner", "namespace": "default"}})).unwrap();
    server.create("configmaps", child).unwrap();
    assert!(server.get("configmaps", "default", "child").is_none());
}

#[test]
fn terminating_namespace_waits_for_finalizers() {
    let server = server();
    server.create("namespaces", json!({"metadata": {"name": "n"}})).unwrap();
    server.create("configmaps", json!({"metadata": {"name": "a", "namespace": "n", "finalizers": ["x/y"]}})).unwrap();
    server.delete("namespaces", "", "n", None).unwrap();
    assert_eq!(server.get("namespaces", "", "n").unwrap()["status"]["phase"], "Terminating");
    let rejected = server.create("configmaps", json!({"metadata": {"name": "b", "namespace": "n"}})).unwrap_err();
    assert_eq!(rejected.code, 403);
    let mut config_map = server.get("configmaps", "n", "a").unwrap().as_ref().clone();
    config_map["metadata"]["finalizers"] = json!([]);
    server.update("configmaps", config_map).unwrap();
    assert!(server.get("namespaces", "", "n").is_none());
}

#[tokio::test]
async fn events_are_complete_in_both_groups() {
    let server = server();
    let apis = [("events.k8s.io", "v1"), ("", "v1")].map(|(group, version)| {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, "Event"));
        Api::<DynamicObject>::namespaced_with(client(&server), "default", &kind)
    });
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Selected", "action": "Decide",
        "note": "chosen", "reportingController": "ostler", "reportingInstance": "ostler-0",
        "regarding": {"kind": "InferenceService", "name": "chat", "namespace": "default"},
    });
    apis[0].create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
    let [event, core_event] = [apis[0].get("e").await.unwrap(), apis[1].get("e").await.unwrap()];
    assert_eq!((&event.data["note"], &event.data["regarding"]["name"]), (&json!("chosen"), &json!("chat")));
    assert_eq!(
        (&core_event.data["message"], &core_event.data["involvedObject"]["name"]),
        (&json!("chosen"), &json!("chat"))
    );
    assert_eq!(core_event.data["reportingComponent"], "ostler");
}
