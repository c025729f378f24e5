//! Services in several namespaces, and an operator that is restricted to namespaces.

use std::collections::{BTreeMap, BTreeSet};

use embedded::Server;
use operator::Options;
use serde_json::{Value, json};

use crate::scaling::add_node;
use crate::simulated_cluster::{SimulatedCluster, role, service_with_roles};
use crate::supply::{CLASSES, class, create_supply, node};
use crate::test_cluster::{FUSIONINFER_SERVICES, OME_SERVICES, TestCluster, minimal_service, server_with_ostler_crds};

fn service_in(namespace: &str) -> Value {
    let mut service = minimal_service("chat", "small");
    service["metadata"]["namespace"] = json!(namespace);
    service
}

/// Services in the namespaces are served, including changes; other namespaces and cluster-scoped objects are not written.
#[tokio::test(start_paused = true)]
async fn only_objects_of_the_namespaces_are_written() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    // Discovery would create a class for this node.
    server.create("nodes", node("unknown", "NVIDIA-X900")).unwrap();
    for namespace in ["team-a", "team-b", "team-c"] {
        server.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
        server.create(OME_SERVICES, service_in(namespace)).unwrap();
    }
    let namespaces = vec!["team-a".to_owned(), "team-b".to_owned()];
    let test_cluster = TestCluster::with_server(server, Options { namespaces, ..Options::default() });
    for namespace in ["team-a", "team-b"] {
        test_cluster
            .wait_for("the Deployment", |server| server.get("deployments.apps", namespace, "chat-engine"))
            .await;
    }
    test_cluster.wait_until_idle().await;
    let server = &test_cluster.server;
    assert!(server.get("deployments.apps", "team-c", "chat-engine").is_none());
    let unserved = server.get(OME_SERVICES, "team-c", "chat").unwrap();
    assert!(unserved["status"].is_null(), "{unserved}");
    let classes = server.list(CLASSES);
    assert_eq!(classes.len(), 1, "no class is discovered");
    assert_eq!(classes[0]["status"], class("big", "80Gi", "5")["status"], "no status is written");

    server.delete("deployments.apps", "team-b", "chat-engine", None).unwrap();
    test_cluster
        .wait_for("the Deployment that replaces the deleted one", |server| {
            server.get("deployments.apps", "team-b", "chat-engine")
        })
        .await;
}

/// Returns the objects of a namespace that are owned by a service, as `resource/name`, with the UID of their owner.
fn owned_objects(server: &Server, namespace: &str) -> BTreeMap<String, Value> {
    let kinds = [
        "deployments.apps",
        "leaderworkersets.leaderworkerset.x-k8s.io",
        "services",
        "backendpools.inference.networking.x-k8s.io",
        "llmusecasesets.inference.networking.x-k8s.io",
        "controllerrevisions.apps",
    ];
    let of_kind = |kind: &'static str| {
        let objects = server.list(kind).into_iter().filter(|object| object["metadata"]["namespace"] == namespace);
        objects.map(move |object| {
            let owner = object["metadata"]["ownerReferences"][0]["uid"].clone();
            (format!("{kind}/{}", object["metadata"]["name"].as_str().unwrap()), owner)
        })
    };
    kinds.into_iter().flat_map(of_kind).collect()
}

/// Two teams use the same names, for services of both kinds. Each becomes ready, and what one team deletes or edits
/// changes nothing of the other one.
#[tokio::test(start_paused = true)]
async fn teams_with_equal_names_do_not_affect_each_other() {
    const TEAMS: [&str; 2] = ["team-a", "team-b"];
    let cluster = SimulatedCluster::with_gpus(16);
    create_supply(&cluster.server, &[("big", "80Gi", "5")]);
    add_node(&cluster.server, "node-big-2", "big", 8);
    let create = |team: &str| {
        let mut roles = service_with_roles("roles", vec![role("w", "worker", 1, 1, 1)]);
        roles["metadata"]["namespace"] = json!(team);
        cluster.server.create(FUSIONINFER_SERVICES, roles).unwrap();
        cluster.server.create(OME_SERVICES, service_in(team)).unwrap();
    };
    for team in TEAMS {
        cluster.server.create("namespaces", json!({"metadata": {"name": team}})).unwrap();
        create(team);
    }
    let are_ready = |server: &Server| {
        let is_ready = |(team, resource, name)| {
            let service = server.get(resource, team, name)?;
            let ready = cluster::find_condition(&service["status"]["conditions"], "Ready")?["status"] == "True";
            ready.then_some(service)
        };
        let services = TEAMS.map(|team| [(team, OME_SERVICES, "chat"), (team, FUSIONINFER_SERVICES, "roles")]).concat();
        services.into_iter().map(is_ready).collect::<Option<Vec<_>>>()
    };
    let services = cluster.wait_for("all services to be ready", &are_ready).await;
    let url = |service: &Value| service["status"]["url"].as_str().unwrap_or_default().to_owned();
    assert_eq!(url(&services[0]), "http://chat-engine.team-a.svc.cluster.local:8080");
    assert_eq!(url(&services[2]), "http://chat-engine.team-b.svc.cluster.local:8080");
    cluster.test_cluster.wait_until_idle().await;
    let [objects_of_a, objects_of_b] = TEAMS.map(|team| owned_objects(&cluster.server, team));
    assert_eq!(objects_of_a.keys().collect::<Vec<_>>(), objects_of_b.keys().collect::<Vec<_>>());
    let owners = |objects: &BTreeMap<String, Value>| objects.values().map(Value::to_string).collect::<BTreeSet<_>>();
    assert!(owners(&objects_of_a).is_disjoint(&owners(&objects_of_b)));

    let generations = |team: &str| -> Vec<(Value, Value)> {
        let objects = ["deployments.apps", "leaderworkersets.leaderworkerset.x-k8s.io", "pods"]
            .into_iter()
            .flat_map(|kind| cluster.server.list(kind))
            .filter(|object| object["metadata"]["namespace"] == team);
        objects.map(|object| (object["metadata"]["uid"].clone(), object["metadata"]["generation"].clone())).collect()
    };
    let generations_of_b = generations("team-b");
    for (resource, name) in [(OME_SERVICES, "chat"), (FUSIONINFER_SERVICES, "roles")] {
        cluster.server.delete(resource, "team-a", name, None).unwrap();
    }
    let is_deleted = |server: &Server| {
        let mut pods = server.list("pods").into_iter();
        (owned_objects(server, "team-a").is_empty() && pods.all(|pod| pod["metadata"]["namespace"] == "team-b"))
            .then_some(())
    };
    cluster.wait_for("the deletion of the objects of team-a", &is_deleted).await;
    create("team-a");
    cluster.wait_for("all services to be ready again", &are_ready).await;
    assert_eq!(owned_objects(&cluster.server, "team-b"), objects_of_b);
    assert_eq!(generations("team-b"), generations_of_b);
}

/// The gateway reports that the model name of a use case set belongs to the older one of another pool; the service repeats it as
/// long as it is true.
#[tokio::test(start_paused = true)]
async fn service_reports_that_its_model_name_is_shared() {
    const SETS: &str = "llmusecasesets.inference.networking.x-k8s.io";
    const MESSAGE: &str = "`/v1` routes model chat to pool default/other, whose use case is older; send requests for this one to \
        `/default/chat/v1`.";
    let cluster = SimulatedCluster::with_gpus(8);
    create_supply(&cluster.server, &[("big", "80Gi", "5")]);
    cluster.server.create(OME_SERVICES, minimal_service("chat", "small")).unwrap();
    let set = cluster.wait_for("the use case set", &|server| server.get(SETS, "default", "chat")).await;
    let report = |conditions: Value| {
        let mut set = (*cluster.server.get(SETS, "default", "chat").unwrap()).clone();
        set["status"]["conditions"] = conditions;
        cluster.server.update_status(SETS, set).unwrap();
    };
    let condition = |server: &Server| {
        let service = server.get(OME_SERVICES, "default", "chat")?;
        cluster::find_condition(&service["status"]["conditions"], "ModelNameShared").cloned()
    };
    report(json!([{"type": "ModelNameShared", "status": "True", "reason": "OlderUseCase", "message": MESSAGE,
        "observedGeneration": set["metadata"]["generation"], "lastTransitionTime": "2026-01-01T00:00:00Z"}]));
    let reported = cluster.wait_for("the condition", &condition).await;
    assert_eq!((&reported["reason"], &reported["message"]), (&json!("OlderUseCase"), &json!(MESSAGE)));
    report(json!([]));
    cluster.wait_for("the end of the condition", &|server| condition(server).is_none().then_some(())).await;
}
