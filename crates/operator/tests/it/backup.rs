//! Backup with `kubectl get -o yaml` and restore into an empty cluster.

use std::sync::Arc;

use cluster::{find_current_condition, is_managed_by};
use embedded::Server;
use operator::FIELD_MANAGER;
use serde_json::{Value, json};

use crate::accelerator_classes::{CLASSES, gpu_node, user_class};
use crate::base_set::invalid_document_event;
use crate::kueue::{FLAVORS, flavor, flavor_crd};
use crate::simulated_cluster::SimulatedCluster;
use crate::test_cluster::{FUSIONINFER_SERVICES, OME_SERVICES};
use crate::upgrade::{SERVICES, SUPPLY, create_node, documents, h100_nodes, resource};

/// Resources of a backup, in the order of the restore.
const BACKUP: [&str; 9] = [
    "namespaces",
    "configmaps",
    "servingruntimes.ome.io",
    "clusterservingruntimes.ome.io",
    "clusterbasemodels.ome.io",
    CLASSES,
    FLAVORS,
    OME_SERVICES,
    FUSIONINFER_SERVICES,
];
/// A base set with a class that matches no node.
const BASE_SET: &str = "apiVersion: ome.io/v1beta1
kind: AcceleratorClass
metadata: {name: small-gpu}
spec:
  discovery: {nodeSelector: {nvidia.com/gpu.product: Tesla-T4}}
  capabilities: {memoryGB: 16Gi}
";

fn empty_cluster() -> SimulatedCluster {
    let flavor_crd = flavor_crd(&["v1beta1", "v1beta2"]);
    SimulatedCluster::without_operator([api::crds(), api::integrations::crds(), vec![flavor_crd]].concat())
}

/// Creates nodes of a class of a user, of a class to discover, and of a class of a ResourceFlavor.
fn create_nodes(server: &Server) {
    h100_nodes().take(14).for_each(|node| create_node(server, &node));
    create_node(server, &gpu_node("x900", "NVIDIA-X900"));
    create_node(server, &gpu_node("x901", "NVIDIA-X901"));
}

/// Returns the objects as `kubectl get -o yaml` prints them: without `managedFields`.
fn backup(server: &Server) -> Vec<(&'static str, Value)> {
    let without_managed_fields = |object: Arc<Value>| {
        let mut object = (*object).clone();
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        object
    };
    BACKUP
        .into_iter()
        .flat_map(|resource| server.list(resource).into_iter().map(move |object| (resource, object)))
        .map(|(resource, object)| (resource, without_managed_fields(object)))
        .collect()
}

/// Creates the objects as `kubectl create` does: without `resourceVersion`.
fn restore(server: &Server, backup: Vec<(&'static str, Value)>) {
    for (resource, mut object) in backup {
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let is_default_namespace = resource == "namespaces" && server.get(resource, "", name(&object)).is_some();
        // The operator generates the objects that its own cluster contains; only the user's ConfigMap is restored.
        let is_generated = resource == "configmaps" && name(&object) != "accelerator-classes-base";
        if !is_default_namespace && !is_generated {
            server.create(resource, object).unwrap();
        }
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn is_ready(service: &Value) -> bool {
    find_current_condition(service, "Ready").is_some_and(|ready| ready["status"] == "True")
}

async fn wait_until_all_ready(cluster: &SimulatedCluster) {
    let all_ready = |server: &Server| {
        let services: Vec<_> = [OME_SERVICES, FUSIONINFER_SERVICES].map(|resource| server.list(resource)).concat();
        let is_running = !server.list("deployments.apps").is_empty();
        (is_running && services.len() == 10 && services.iter().all(|service| is_ready(service))).then_some(())
    };
    cluster.wait_for("all services to be ready", &all_ready).await;
    cluster.test_cluster.wait_until_idle().await;
}

/// Returns the condition with reason `NotOwned` of a class.
fn not_owned_condition(server: &Server, class: &str) -> Option<Value> {
    let class = server.get(CLASSES, "", class)?;
    let conditions = class["status"]["conditions"].as_array()?.clone();
    conditions.into_iter().find(|condition| condition["reason"] == "NotOwned")
}

/// Runs the command that `condition` proposes.
fn run_proposed_command(server: &Server, condition: &Value) {
    let message = condition["message"].as_str().unwrap();
    let command = message.split('`').find(|text| text.starts_with("kubectl")).unwrap_or_else(|| panic!("{message}"));
    let ["kubectl", "delete", resource, name] = command.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{command}");
    };
    server.delete(resource, "", name, None).unwrap();
}

#[tokio::test(start_paused = true)]
async fn restored_services_become_ready_and_restored_classes_are_reported() {
    let original = empty_cluster();
    let server = &original.server;
    create_nodes(server);
    for namespace in ["team-a", "ome-system"] {
        server.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
    }
    let base_set = json!({"metadata": {"namespace": "ome-system", "name": "accelerator-classes-base"},
        "data": {"accelerator-classes.yaml": BASE_SET}});
    server.create("configmaps", base_set).unwrap();
    server.create(FLAVORS, flavor("x901-pool", json!({"nvidia.com/gpu.product": "NVIDIA-X901"}))).unwrap();
    let mut linked_class = user_class("linked", json!({"nvidia.com/gpu.product": "NVIDIA-L4"}));
    linked_class["spec"]["integration"] = json!({"kueueResourceFlavor": "l4-pool"});
    server.create(CLASSES, linked_class).unwrap();
    for object in documents(SUPPLY).into_iter().chain(documents(SERVICES)) {
        server.create(&resource(server, &object), object).unwrap();
    }
    original.test_cluster.start_operator(operator::Options::default());
    wait_until_all_ready(&original).await;

    let restored = empty_cluster();
    let server = &restored.server;
    create_nodes(server);
    restore(server, backup(&original.server));
    drop(original);
    restored.test_cluster.start_operator(operator::Options::default());
    wait_until_all_ready(&restored).await;
    for (class, reporting_class, generated) in [
        ("nvidia-x900", "nvidia-x900", (CLASSES, "nvidia-x900")),
        ("x901-pool", "x901-pool", (CLASSES, "x901-pool")),
        ("small-gpu", "small-gpu", (CLASSES, "small-gpu")),
        ("linked", "linked", (FLAVORS, "l4-pool")),
    ] {
        assert!(!is_managed_by(&server.get(generated.0, "", generated.1).unwrap(), FIELD_MANAGER), "{generated:?}");
        let condition = not_owned_condition(server, reporting_class).unwrap_or_else(|| {
            panic!("{:#}", server.get(CLASSES, "", class).unwrap()["status"]);
        });
        assert_eq!(condition["status"], "False");
        run_proposed_command(server, &condition);
        let is_generated = |server: &Server| {
            let object = server.get(generated.0, "", generated.1)?;
            (is_managed_by(&object, FIELD_MANAGER) && not_owned_condition(server, reporting_class).is_none())
                .then_some(())
        };
        restored.wait_for(&format!("{generated:?} to be generated"), &is_generated).await;
    }
    assert_eq!(invalid_document_event(server), None);
    wait_until_all_ready(&restored).await;
}
