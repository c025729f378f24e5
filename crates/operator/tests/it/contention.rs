//! Services that compete for the same accelerators, and caching of decisions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use operator::{Metrics, Options};
use serde_json::{Value, json};

use crate::supply::{self, RUNTIMES, create_supply, selected_class};
use crate::test_cluster::{OME_SERVICES, TestCluster, server_with_ostler_crds};

/// Returns a service that uses all eight accelerators of one node.
fn whole_node_service(name: &str) -> Value {
    let mut service = supply::service(name, "small");
    service["spec"]["engine"] = json!({"runner": {"resources": {"limits": {"nvidia.com/gpu": "8"}}}});
    service
}

/// Returns the warning that the service waits for capacity.
fn waiting_message(service: &Value) -> Option<String> {
    let warnings = service["status"]["decision"]["warnings"].as_array()?;
    let capacity_warning = warnings.iter().find(|warning| warning["code"] == "NoFreeCapacity")?;
    capacity_warning["message"].as_str().map(str::to_owned)
}

/// Returns name and selected class of every decided service, with `waiting` if it waits for capacity.
fn selections(server: &embedded::Server) -> Vec<String> {
    let decided_services = server.list(OME_SERVICES).into_iter().filter(|service| selected_class(service).is_string());
    let selection = |service: Arc<Value>| {
        let (name, class) = (service["metadata"]["name"].as_str().unwrap(), selected_class(&service).as_str().unwrap());
        format!("{name} {class}{}", if waiting_message(&service).is_some() { " waiting" } else { "" })
    };
    decided_services.map(selection).collect()
}

async fn wait_for_selections(test_cluster: &TestCluster, expect: &[&str]) {
    test_cluster.wait_for(&format!("{expect:?}"), |server| (selections(server) == expect).then_some(())).await;
}

/// Two nodes with eight accelerators each, and three services that require eight each: the first uses the cheap node,
/// the second the other node, and the third waits for the cheap node and names the service that uses it. No Pods run,
/// so only claims prevent the services from selecting the same accelerators.
#[tokio::test(start_paused = true)]
async fn competing_services_get_stable_selections() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("cheap", "80Gi", "1"), ("dear", "80Gi", "5")]);
    for name in ["one", "three", "two"] {
        server.create(OME_SERVICES, whole_node_service(name)).unwrap();
    }
    let test_cluster = TestCluster::with_server(server, Options::default());
    let expected_selections = ["one cheap", "three dear", "two cheap waiting"];
    wait_for_selections(&test_cluster, &expected_selections).await;
    let message = waiting_message(&test_cluster.server.get(OME_SERVICES, "default", "two").unwrap()).unwrap();
    assert_eq!(
        message,
        "Waiting for free accelerators: the engine requires 8 × cheap, and 0 of 8 are free on eligible nodes (8 claimed by default/one)"
    );
    test_cluster.wait_until_idle().await;
    // Repeated decisions change nothing and write nothing.
    let writes_before = test_cluster.writes.load(Ordering::Relaxed);
    for round in 0..5 {
        let mut runtime = (*test_cluster.server.get(RUNTIMES, "", "any").unwrap()).clone();
        runtime["metadata"]["annotations"] = json!({"example.com/round": round.to_string()});
        test_cluster.server.update(RUNTIMES, runtime).unwrap();
        test_cluster.wait_until_idle().await;
    }
    assert_eq!(test_cluster.writes.load(Ordering::Relaxed), writes_before);
    assert_eq!(selections(&test_cluster.server), expected_selections);
    // Released capacity goes to the waiting services, and the selections become stable again.
    test_cluster.server.delete(OME_SERVICES, "default", "one", None).unwrap();
    wait_for_selections(&test_cluster, &["three cheap", "two dear"]).await;
}

/// A ready service keeps its capacity although none of its Pods is counted.
#[tokio::test(start_paused = true)]
async fn ready_service_keeps_its_capacity() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("cheap", "80Gi", "1"), ("dear", "80Gi", "5")]);
    let test_cluster = TestCluster::with_server(server, Options::default());
    test_cluster.server.create(OME_SERVICES, whole_node_service("first")).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "first", "RuntimeResolved", "True").await;
    test_cluster.mark_deployment_ready("first-engine");
    test_cluster.wait_for_condition(OME_SERVICES, "first", "Ready", "True").await;
    test_cluster.server.create(OME_SERVICES, whole_node_service("second")).unwrap();
    wait_for_selections(&test_cluster, &["first cheap", "second dear"]).await;
    let first_service = test_cluster.server.get(OME_SERVICES, "default", "first").unwrap();
    assert!(cluster::find_condition(&first_service["status"]["conditions"], "DecisionStale").is_none());
}

/// Creates a Pod of the service's Deployment, optionally on a node.
fn pod(test_cluster: &TestCluster, name: &str, node: Option<&str>) {
    let deployment = test_cluster.server.get("deployments.apps", "default", "chat-engine").unwrap();
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec});
    test_cluster.server.create("pods", pod).unwrap();
}

async fn set_pod_status_and_wait(test_cluster: &TestCluster, pod: &str, status: Value, expected_text: &str) {
    let mut object = (*test_cluster.server.get("pods", "default", pod).unwrap()).clone();
    object["status"] = status;
    test_cluster.server.update_status("pods", object).unwrap();
    test_cluster
        .wait_for(expected_text, |server| {
            let service = server.get(OME_SERVICES, "default", "chat")?;
            let ready = cluster::find_condition(&service["status"]["conditions"], "Ready")?;
            ready["message"].as_str().filter(|message| message.contains(expected_text)).map(drop)
        })
        .await;
}

fn decisions(metrics: &Metrics) -> u64 {
    let text = metrics.render();
    let lines = text.lines().filter(|line| line.starts_with("ostler_accelerator_selection_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

// spec: ACC-46
#[tokio::test(start_paused = true)]
async fn pod_status_is_reported_without_a_new_decision() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let metrics = Arc::new(Metrics::default());
    let test_cluster =
        TestCluster::with_server(server, Options { metrics: Arc::clone(&metrics), ..Options::default() });
    test_cluster.server.create(OME_SERVICES, supply::service("chat", "small")).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    pod(&test_cluster, "waiting", None);
    let unschedulable = |message: &str| json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]});
    set_pod_status_and_wait(&test_cluster, "waiting", unschedulable("no capacity yet"), "no capacity yet").await;
    let decisions_before = decisions(&metrics);
    assert!(decisions_before > 0);
    for message in ["still none", "none at all"] {
        set_pod_status_and_wait(&test_cluster, "waiting", unschedulable(message), message).await;
    }
    assert_eq!(decisions(&metrics), decisions_before);
    // Scheduling a Pod changes the free capacity.
    pod(&test_cluster, "placed", Some("node-big"));
    let failing = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]});
    set_pod_status_and_wait(&test_cluster, "placed", failing, "no such image").await;
    assert!(decisions(&metrics) > decisions_before);
}
