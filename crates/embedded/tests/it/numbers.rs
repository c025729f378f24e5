//! Extreme numbers in stored objects and requests: no component may panic, and the cluster must start.

mod mutations;

use std::panic;
use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use apiserver::StorageDirectory;
use embedded::ports::{Admission, AdmissionRequest, AdmissionResponse, NoDevices, Ports, ServerPorts};
use embedded::{Cluster, NodeDirectories, Server, Store, StoreSettings, TaskState};
use http_body_util::BodyExt;
use kube::client::Body;
use proptest::prelude::*;
use serde_json::{Value, json};
use xxhash_rust::xxh64::xxh64;

use crate::workloads::{HealthyNetwork, PausedClock, SimulatedRuntime, pod};

/// Panics of all threads: thread and message.
static PANICS: Mutex<Vec<(ThreadId, String)>> = Mutex::new(Vec::new());

/// Number of Pods that controllers may create; otherwise a number of replicas would keep them busy forever.
const POD_QUOTA: usize = 20;

/// Limits the number of Pods.
struct PodQuota;

// === impl PodQuota ===

impl Admission for PodQuota {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        let is_new_pod = request.resource == "pods" && request.operation == "CREATE";
        let allowed =
            !is_new_pod || CREATED_PODS.with_borrow_mut(|count| std::mem::replace(count, *count + 1)) < POD_QUOTA;
        AdmissionResponse { allowed, message: "exceeded quota".to_owned(), ..AdmissionResponse::default() }
    }
}

thread_local! {
    static CREATED_PODS: std::cell::RefCell<usize> = const { std::cell::RefCell::new(0) };
}

/// Returns the panics of this thread since the last call.
fn take_panics() -> Vec<String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default_hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let message = info.to_string();
            PANICS.lock().unwrap_or_else(PoisonError::into_inner).push((thread::current().id(), message));
            default_hook(info);
        }));
    });
    let mut all = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    let own: Vec<String> = all
        .iter()
        .filter(|(thread, _)| *thread == thread::current().id())
        .map(|(_, message)| message.clone())
        .collect();
    all.retain(|(thread, _)| *thread != thread::current().id());
    own
}

fn ports() -> Ports {
    let clock = Arc::new(PausedClock::new());
    Ports {
        server: ServerPorts { clock, admission: Arc::new(PodQuota), ..ServerPorts::default() },
        runtime: Arc::new(SimulatedRuntime::default()),
        network: Arc::new(HealthyNetwork),
        devices: Arc::new(NoDevices),
    }
}

/// Writes a journal file with these objects, as an older version could have written it. The format is documented in
/// `apiserver/src/store/format.rs`.
fn write_journal(directory: &Path, objects: &[Value]) {
    let frame = |kind: u32, payload: &[u8]| {
        let mut bytes = b"\xFF\xFEF\n".to_vec();
        bytes.extend(kind.to_le_bytes());
        bytes.extend((payload.len() as u64).to_le_bytes());
        bytes.extend(xxh64(payload, 0).to_le_bytes());
        bytes.extend(xxh64(&bytes, 0).to_le_bytes());
        bytes.extend(payload);
        bytes
    };
    let entry = |(index, object): (usize, &Value)| {
        let mut object = object.clone();
        let resource = object.as_object_mut().unwrap().remove("resource").unwrap();
        object["metadata"]["resourceVersion"] = json!((index + 1).to_string());
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        format!("{}\n{object}\n", json!([index + 1, resource, namespace, metadata["name"]]))
    };
    let entries: String = objects.iter().enumerate().map(entry).collect();
    let end = json!({"revision": objects.len(), "issued": objects.len()}).to_string();
    let mut file = b"\xFFostler objects\n".to_vec();
    file.extend(1_u32.to_le_bytes());
    file.extend([0; 4]);
    file.extend(xxh64(&file, 0).to_le_bytes());
    file.extend([frame(1, entries.as_bytes()), frame(2, end.as_bytes())].concat());
    std::fs::write(directory.join("objects.log"), file).unwrap();
}

/// The objects of `tests/numbers/objects.yaml`, and definitions of their custom resources.
fn objects() -> Vec<Value> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/numbers/objects.yaml");
    let objects: Vec<Value> = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let definition = |group: &str, version: &str, kind: &str, plural: &str| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "resource": "customresourcedefinitions.apiextensions.k8s.io",
            "metadata": {"name": format!("{plural}.{group}"), "uid": plural},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{
                    "name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }],
            },
            "status": {"storedVersions": [version]},
        })
    };
    let namespaces = ["default", "kube-node-lease"].map(|name| {
        json!({"apiVersion": "v1", "kind": "Namespace", "resource": "namespaces",
            "metadata": {"name": name, "uid": name}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    });
    let definitions = [
        definition("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
        definition("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    ];
    namespaces.into_iter().chain(definitions).chain(objects).collect()
}

/// Sends a request and reads the response for at most a minute of paused time.
async fn send(server: &Server, method: &str, uri: &str, accept: &str, body: Value) -> u16 {
    let request = http::Request::builder().method(method).uri(uri).header("Accept", accept);
    let request = request.header("Content-Type", "application/merge-patch+json");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let client = crate::client(server);
    let response = advance_slowly(client.send(request.body(Body::from(body.into_bytes())).unwrap())).await.unwrap();
    let code = response.status().as_u16();
    let body = tokio::time::timeout(Duration::from_secs(60), response.into_body().collect());
    let _ = advance_slowly(body).await;
    code
}

/// Awaits `future` without a timeout. Paused time advances while other threads work (the journal, readers of files), so the
/// wait is divided into seconds: otherwise the end of a very long period could be next.
async fn advance_slowly<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        if let Ok(output) = tokio::time::timeout(Duration::from_secs(1), &mut future).await {
            return output;
        }
    }
}

/// Lets `seconds` of paused time pass in steps, each after the journal and all tasks have handled earlier writes.
async fn advance(server: &Server, seconds: &[u64]) {
    for step in seconds {
        for _ in 0..20 {
            server.flush().await.unwrap();
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
        tokio::time::sleep(Duration::from_secs(*step)).await;
    }
}

/// Lists, watches, scales, evicts and deletes all objects.
async fn use_all_objects(server: &Server, objects: &[Value]) {
    const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for object in objects {
        let (resource, api_version) = (object["resource"].as_str().unwrap(), object["apiVersion"].as_str().unwrap());
        let prefix = if api_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{api_version}") };
        let plural = resource.split('.').next().unwrap();
        let metadata = &object["metadata"];
        let scope = metadata["namespace"].as_str().map_or_else(String::new, |name| format!("/namespaces/{name}"));
        let collection = format!("{prefix}{scope}/{plural}");
        let uri = format!("{collection}/{}", metadata["name"].as_str().unwrap());
        send(server, "GET", &collection, TABLE, Value::Null).await;
        send(server, "GET", &format!("{collection}?watch=true&timeoutSeconds=1"), TABLE, Value::Null).await;
        send(server, "PATCH", &uri, "application/json", json!({"metadata": {"labels": {"touched": "true"}}})).await;
        send(server, "PATCH", &format!("{uri}/status"), "application/json", json!({"status": {"note": 1}})).await;
        send(server, "PATCH", &format!("{uri}/scale"), "application/json", json!({"spec": {"replicas": 1}})).await;
        if resource == "pods" {
            send(server, "GET", &format!("{uri}/log?tailLines=1&sinceSeconds=5"), "text/plain", Value::Null).await;
            let eviction =
                json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": metadata["name"]}});
            send(server, "POST", &format!("{uri}/eviction"), "application/json", eviction).await;
        }
    }
    advance(server, &[1, 5, 30, 60, 300]).await;
    for object in objects {
        let (namespace, name) =
            (object["metadata"]["namespace"].as_str().unwrap_or_default(), &object["metadata"]["name"]);
        let _ = server.delete(object["resource"].as_str().unwrap(), namespace, name.as_str().unwrap(), None);
    }
    advance(server, &[1, 5, 30, 60, 300]).await;
}

/// Starts a cluster twice with these objects in its data directory and uses them. Returns the panics.
fn run(objects: &[Value]) -> Vec<String> {
    take_panics();
    CREATED_PODS.set(0);
    let directory = tempfile::tempdir().unwrap();
    write_journal(directory.path(), objects);
    for is_used in [true, false] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let storage = Arc::new(StorageDirectory(directory.path().to_owned()));
            let store = Store::open(storage, StoreSettings::default()).unwrap();
            let cluster = Cluster::start_with_store(store, ports(), Vec::new(), NodeDirectories::default()).unwrap();
            advance(cluster.server(), &[1, 5, 30, 60]).await;
            if is_used {
                use_all_objects(cluster.server(), objects).await;
            }
            for status in cluster.task_statuses().borrow().values() {
                assert_eq!((status.restarts, &status.state), (0, &TaskState::Running), "{}", status.name);
            }
            cluster.stop().await;
        });
    }
    take_panics()
}

#[test]
fn unmodified_objects_are_processed() {
    assert_eq!(run(&objects()), Vec::<String>::new());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_with_arbitrary_numbers_are_processed(objects in mutations::mutated(objects(), 4)) {
        prop_assert_eq!(run(&objects), Vec::<String>::new());
    }

    #[test]
    fn objects_with_few_arbitrary_numbers_are_processed(objects in mutations::mutated(objects(), 40)) {
        prop_assert_eq!(run(&objects), Vec::<String>::new());
    }
}

/// A Pod spec with the longest periods. Its container ignores the termination.
fn long_lived_spec() -> Value {
    json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 999_999_999_999_i64,
        "tolerations": [{"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 999_999_999_999_i64}],
        "containers": [{"name": "c", "image": "stubborn"}],
    })
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"},
        "spec": {"taints": [{"key": "gone", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}}})
}

async fn wait_until(server: &Server, predicate: impl Fn(&Server) -> bool) {
    while !predicate(server) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn start(directory: &Path) -> Cluster {
    let storage = Arc::new(StorageDirectory(directory.to_owned()));
    let store = Store::open(storage, StoreSettings::default()).unwrap();
    Cluster::start_with_store(store, ports(), vec![node()], NodeDirectories::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn long_periods_are_accepted_and_survive_a_restart() {
    take_panics();
    CREATED_PODS.set(0);
    let directory = tempfile::tempdir().unwrap();
    let cluster = start(directory.path());
    let server = cluster.server().clone();
    server.create("pods", pod("a", long_lived_spec())).unwrap();
    let job = json!({"metadata": {"name": "slow", "namespace": "default"}, "spec": {
        "activeDeadlineSeconds": i64::MAX, "ttlSecondsAfterFinished": i32::MAX,
        "template": {"spec": long_lived_spec()}}});
    server.create("jobs.batch", job).unwrap();
    let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
    wait_until(&server, |server| server.list("pods").iter().filter(|pod| is_running(pod)).count() == 2).await;
    server.delete("pods", "default", "a", None).unwrap();
    let deleted = server.get("pods", "default", "a").unwrap();
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 999_999_999_999_i64);
    assert_eq!(deleted["metadata"]["deletionTimestamp"], "9999-12-30T22:00:00Z");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(server.get("pods", "default", "a").is_some(), "its container ignores the termination");
    cluster.stop().await;
    drop(server);

    let cluster = start(directory.path());
    wait_until(cluster.server(), |server| server.get("pods", "default", "a").is_none()).await;
    let statuses = cluster.task_statuses().borrow().clone();
    assert!(statuses.values().all(|status| status.restarts == 0), "{statuses:?}");
    cluster.stop().await;
    assert_eq!(take_panics(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn long_periods_in_requests_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = start(directory.path());
    cluster.server().create("pods", pod("a", long_lived_spec())).unwrap();
    wait_until(cluster.server(), |server| server.list("pods")[0]["status"]["phase"] == "Running").await;
    for parameters in ["sinceSeconds=999999999999", "sinceSeconds=9223372036854775807", "tailLines=9223372036854775807"]
    {
        let uri = format!("/api/v1/namespaces/default/pods/a/log?{parameters}&limitBytes=9223372036854775807");
        assert_eq!(send(cluster.server(), "GET", &uri, "text/plain", Value::Null).await, 200, "{parameters}");
    }
    for seconds in ["999999999999", "9223372036854775807", "-1"] {
        let uri = format!("/api/v1/pods?watch=true&timeoutSeconds={seconds}");
        assert_eq!(send(cluster.server(), "GET", &uri, "application/json", Value::Null).await, 200, "{seconds}");
    }
    cluster.stop().await;
}
