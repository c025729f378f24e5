//! Tests of `ostler up` with dual pods: the controller, requesters and simulated engines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::session::{Session, TIMEOUT, ostler, outcome};

const REQUESTERS: &str = "app=requester";
/// Label of providers.
const SLEEPING: &str = "dual-pods.llm-d.ai/sleeping";
const STATUS: &str = "dual-pods.llm-d.ai/status";
/// Label by which pools select engines of the model.
const POOL_LABEL: &str = "model";

/// Returns metadata and spec of a requester, whose label `app` the patch changes.
fn requester(model: &str) -> Value {
    let patch = json!({
        "metadata": {"labels": {"app": "engine", POOL_LABEL: model}},
        "spec": {"containers": [{
            "name": "inference-server",
            "image": "vllm/vllm-openai:v0.10.2",
            "command": ["vllm", "serve", model, "--port=8000", "--enable-sleep-mode"],
            "env": [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}],
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1},
            "resources": {"limits": {"cpu": "2", "memory": "9Gi"}},
        }]},
    });
    let annotations =
        json!({"dual-pod.llm-d.ai/server-patch": patch.to_string(), "dual-pod.llm-d.ai/admin-port": "8082"});
    let container = json!({
        "name": "inference-server",
        "image": "some-registry/some-namespace/requester:v0.1.0",
        "command": ["/app/requester", "--probes-port=8081", "--spi-port=8082"],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8081}, "periodSeconds": 1},
        "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "200m", "memory": "250Mi"}},
    });
    let metadata = json!({"labels": {"app": "requester"}, "annotations": annotations});
    json!({"metadata": metadata, "spec": {"containers": [container]}})
}

async fn create_requester(pods: &Api<Pod>, name: &str, model: &str) {
    let mut pod = requester(model);
    pod["metadata"]["name"] = json!(name);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

fn replica_set(model: &str) -> ReplicaSet {
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "requester"}}, "template": requester(model)});
    serde_json::from_value(json!({"metadata": {"name": "granite"}, "spec": spec})).unwrap()
}

/// Waits until `observe` returns a value.
async fn wait_for<T>(what: &str, observe: impl AsyncFn() -> Option<T>) -> T {
    let poll = async {
        loop {
            match observe().await {
                Some(value) => return value,
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(TIMEOUT, poll).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

async fn list(pods: &Api<Pod>, selector: &str) -> Vec<Value> {
    let list = pods.list(&ListParams::default().labels(selector)).await.unwrap();
    list.items.into_iter().map(|pod| serde_json::to_value(pod).unwrap()).collect()
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["containerStatuses"][0]["ready"] == true && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Waits until there are `count` requesters and all are ready, and returns their UIDs.
async fn ready_requesters(pods: &Api<Pod>, count: usize) -> BTreeSet<String> {
    wait_for("requesters", async || {
        let requesters = list(pods, REQUESTERS).await;
        let uids = requesters.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect();
        (requesters.len() == count && requesters.iter().all(is_ready)).then_some(uids)
    })
    .await
}

/// Returns the label `sleeping` and the pool label of each provider by UID.
async fn providers(pods: &Api<Pod>) -> BTreeMap<String, (Value, Value)> {
    let entry = |pod: &Value| {
        let labels = &pod["metadata"]["labels"];
        (pod["metadata"]["uid"].as_str().unwrap().to_owned(), (labels[SLEEPING].clone(), labels[POOL_LABEL].clone()))
    };
    list(pods, SLEEPING).await.iter().map(entry).collect()
}

async fn scale(sets: &Api<ReplicaSet>, replicas: usize) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    sets.patch("granite", &PatchParams::default(), &patch).await.unwrap();
}

async fn count_events(client: &kube::Client, reason: &str) -> usize {
    let events = Api::<Event>::namespaced(client.clone(), "default").list(&ListParams::default()).await.unwrap();
    events.items.iter().filter(|event| event.reason.as_deref() == Some(reason)).count()
}

/// All GPUs of the node are assigned to requesters. A set is scaled from zero, to zero, and from zero again.
// spec: DP-3, DP-6, DP-11, DP-36, DP-37, DP-62, DP-71, DP-93, DP-95
#[tokio::test(flavor = "multi_thread")]
async fn set_starts_cold_sleeps_and_starts_hot() {
    let session = Session::start(&["--nodes", "2×L4"]);
    let client = session.client().await;
    let (pods, sets) =
        (Api::<Pod>::namespaced(client.clone(), "default"), Api::<ReplicaSet>::namespaced(client.clone(), "default"));
    sets.create(&PostParams::default(), &replica_set("granite")).await.unwrap();
    scale(&sets, 2).await;
    ready_requesters(&pods, 2).await;
    let all = list(&Api::all(client.clone()), "").await;
    let is_of_a_pair =
        |pod: &Value| !pod["metadata"]["labels"][SLEEPING].is_null() || pod["metadata"]["labels"]["app"] == "requester";
    assert!(all.len() == 4 && all.iter().all(is_of_a_pair), "the node runs no agent: {all:?}");
    let awake = (json!("false"), json!("granite"));
    let started = providers(&pods).await;
    assert!(started.len() == 2 && started.values().all(|labels| *labels == awake), "{started:?}");
    let requesters = list(&pods, REQUESTERS).await;
    assert!(requesters.iter().all(|pod| pod["metadata"]["labels"][POOL_LABEL].is_null()), "{requesters:?}");
    let visible: BTreeSet<String> = list(&pods, SLEEPING).await.iter().map(visible_devices).collect();
    assert_eq!(visible, BTreeSet::from(["0".to_owned(), "1".to_owned()]));
    assert_eq!(sets.get("granite").await.unwrap().status.unwrap().replicas, 2, "the set counts requesters only");

    scale(&sets, 0).await;
    wait_for("the end of the requesters", async || list(&pods, REQUESTERS).await.is_empty().then_some(())).await;
    let asleep = (json!("true"), Value::Null);
    let sleeping = providers(&pods).await;
    assert!(sleeping.keys().eq(started.keys()) && sleeping.values().all(|labels| *labels == asleep), "{sleeping:?}");

    scale(&sets, 2).await;
    let requesters = ready_requesters(&pods, 2).await;
    let woken = providers(&pods).await;
    assert!(woken.keys().eq(started.keys()) && woken.values().all(|labels| *labels == awake), "{woken:?}");
    for (reason, count) in [("ProviderCreated", 2), ("ProviderBound", 2), ("EngineAsleep", 2), ("EngineWoken", 2)] {
        wait_for(reason, async || (count_events(&client, reason).await == count).then_some(())).await;
    }

    // The provider of one requester is deleted: the set replaces the requester.
    let name = list(&pods, SLEEPING).await[0]["metadata"]["name"].as_str().unwrap().to_owned();
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    wait_for("a replacement", async || {
        let current = list(&pods, REQUESTERS).await;
        let is_new = |pod: &&Value| !requesters.contains(pod["metadata"]["uid"].as_str().unwrap());
        (current.len() == 2 && current.iter().all(is_ready) && current.iter().filter(is_new).count() == 1).then_some(())
    })
    .await;
    assert_eq!(providers(&pods).await.len(), 2);
}

fn visible_devices(pod: &Value) -> String {
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let variable = env.iter().find(|variable| variable["name"] == "CUDA_VISIBLE_DEVICES").unwrap();
    variable["value"].as_str().unwrap().to_owned()
}

/// The entry of the node is missing: the requester reports it, and the command adds it.
// spec: DP-106, DP-107
#[tokio::test(flavor = "multi_thread")]
async fn missing_entry_of_gpu_map_is_reported_and_added() {
    let session = Session::start(&["--nodes", "2×L4"]);
    let client = session.client().await;
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let patch = Patch::Merge(json!({"data": {"l4-0": null}}));
    maps.patch("gpu-map", &PatchParams::default(), &patch).await.unwrap();
    create_requester(&pods, "r", "granite").await;
    let error = wait_for("a status", async || {
        let pod = pods.get("r").await.unwrap();
        let status = pod.metadata.annotations?.get(STATUS)?.clone();
        status.contains("is not known").then_some(status)
    })
    .await;
    assert!(error.starts_with(r#"{"Errors":["UUID GPU-"#), "{error}");
    assert_eq!(providers(&pods).await.len(), 0);

    let run = async || {
        let kubeconfig = session.kubeconfig.clone();
        let command = move || {
            outcome(
                &ostler(&["actuation", "gpu-map", "--image", "ostler:0.1.0", "--kubeconfig", &kubeconfig])
                    .output()
                    .unwrap(),
            )
        };
        tokio::task::spawn_blocking(command).await.unwrap()
    };
    assert_eq!(run().await, ("node l4-0: written, 2 GPUs\n".to_owned(), String::new(), Some(0)));
    ready_requesters(&pods, 1).await;
    let serving = providers(&pods).await;
    assert_eq!(run().await, ("node l4-0: already complete\n".to_owned(), String::new(), Some(0)));
    assert_eq!(
        list(&pods, "app.kubernetes.io/component=gpu-map").await.len(),
        0,
        "the Pods of the command are deleted"
    );
    assert_eq!(providers(&pods).await, serving, "the engine is not disturbed");
}

/// The entry of the node is wrong. The commands that `explain` prints lead to a requester that is ready.
// spec: DP-106
#[tokio::test(flavor = "multi_thread")]
async fn explain_shows_how_to_repair_the_map() {
    let session = Session::start(&["--nodes", "2×L4"]);
    let client = session.client().await;
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let wrong = |value: Value| Patch::Merge(json!({"data": {"l4-0": value}}));
    maps.patch("gpu-map", &PatchParams::default(), &wrong(json!("{\"GPU-wrong\":0}"))).await.unwrap();
    create_requester(&pods, "r", "granite").await;
    let run = async |args: &[&str]| {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let kubeconfig = session.kubeconfig.clone();
        let command = move || outcome(&ostler(&[]).args(args).args(["--kubeconfig", &kubeconfig]).output().unwrap());
        tokio::task::spawn_blocking(command).await.unwrap().0
    };
    let explanation = wait_for("the problem", async || {
        let text = run(&["explain", "pod/r"]).await;
        text.contains("is not known").then_some(text)
    })
    .await;
    assert!(explanation.starts_with("default/r: not served, because its provider cannot be derived"), "{explanation}");
    let removal = r#"kubectl -n default patch configmap gpu-map --type=merge -p '{"data":{"l4-0":null}}'"#;
    assert!(explanation.contains(removal), "{explanation}");
    assert!(explanation.contains("ostler actuation gpu-map --namespace default --image IMAGE"), "{explanation}");

    maps.patch("gpu-map", &PatchParams::default(), &wrong(Value::Null)).await.unwrap();
    run(&["actuation", "gpu-map", "--namespace", "default", "--image", "ostler:0.1.0"]).await;
    ready_requesters(&pods, 1).await;
    let explanation = run(&["explain", "pod/r"]).await;
    assert!(explanation.starts_with("default/r: cold start; the engine of Pod r-dual-"), "{explanation}");
    assert!(!explanation.contains("What would help"), "{explanation}");
    let node: Value = serde_json::from_str(&run(&["explain", "node/l4-0", "-o", "json"]).await).unwrap();
    assert_eq!(node["message"], "2 GPUs, 1 engine of dual pods");
}

// spec: DP-82
#[tokio::test(flavor = "multi_thread")]
async fn namespace_with_pairs_and_sleepers_is_deleted() {
    let session = Session::start(&["--nodes", "2×L4"]);
    let client = session.client().await;
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "team"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let pods = Api::<Pod>::namespaced(client, "team");
    for (name, model) in [("a", "granite"), ("b", "llama")] {
        create_requester(&pods, name, model).await;
    }
    ready_requesters(&pods, 2).await;
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    ready_requesters(&pods, 1).await;
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    wait_for("the end of the namespace", async || namespaces.get_opt("team").await.unwrap().is_none().then_some(()))
        .await;
}

/// Sends a request to the launcher in a Pod, and returns the response's body.
async fn call_launcher(pod: &Value, method: &str, path: &str) -> Value {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = format!("{}:8001", pod["status"]["podIP"].as_str().unwrap());
    let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    let request = format!("{method} /v2/vllm/instances{path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Two engines take turns as instances of one launcher. Another client deletes the one that serves.
// spec: DP-20, DP-22, DP-100, DP-103, DP-108
#[tokio::test(flavor = "multi_thread")]
async fn engines_share_a_launcher() {
    let session = Session::start(&["--nodes", "1×L4"]);
    let client = session.client().await;
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let create = async |name: &str, model: &str, port: &str| {
        let mut pod = requester(model);
        let annotations = &mut pod["metadata"]["annotations"];
        let patch = annotations["dual-pod.llm-d.ai/server-patch"].as_str().unwrap().replace("8000", port);
        annotations["dual-pod.llm-d.ai/server-patch"] = json!(patch);
        annotations["dual-pod.llm-d.ai/mode"] = json!("launcher");
        pod["metadata"]["name"] = json!(name);
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        ready_requesters(&pods, 1).await;
    };
    let delete = async |name: &str| {
        pods.delete(name, &DeleteParams::default()).await.unwrap();
        wait_for("the end of the requester", async || list(&pods, REQUESTERS).await.is_empty().then_some(())).await;
    };
    let launcher = async || {
        let [launcher] = list(&pods, SLEEPING).await.try_into().unwrap();
        launcher
    };
    create("first", "granite", "8000").await;
    let created = launcher().await;
    assert_eq!(created["spec"]["containers"][0]["command"][1], "launcher");
    assert_eq!(created["metadata"]["labels"][POOL_LABEL], "granite");
    let list = call_launcher(&created, "GET", "").await;
    assert_eq!(list["instances"][0]["env_vars"]["CUDA_VISIBLE_DEVICES"], "0");
    assert_eq!(list["instances"][0]["args"], json!([]));
    delete("first").await;
    assert_eq!(launcher().await["metadata"]["labels"][POOL_LABEL], Value::Null);

    create("second", "llama", "8010").await;
    assert_eq!(launcher().await["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(call_launcher(&created, "GET", "").await["running_instances"], 2);
    delete("second").await;

    create("third", "granite", "8000").await;
    for (reason, count) in [("ProviderCreated", 1), ("LauncherBound", 1), ("ProviderBound", 1), ("EngineWoken", 1)] {
        wait_for(reason, async || (count_events(&client, reason).await == count).then_some(())).await;
    }
    let bound = launcher().await["metadata"]["annotations"]["dual-pods.llm-d.ai/instance-id"].clone();
    call_launcher(&created, "DELETE", &format!("/{}", bound.as_str().unwrap())).await;
    wait_for("the end of the requester", async || {
        pods.get_opt("third").await.unwrap().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(())
    })
    .await;
    wait_for("the end of the instance", async || {
        (call_launcher(&created, "GET", "").await["total_instances"] == 1).then_some(())
    })
    .await;
}
