//! Tests of `ostler up` with engines that share a GPU and take turns by sleep mode.

use std::io::{Read, Write};
use std::net::TcpStream;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::session::{Session, TIMEOUT};

/// A Pod that has a GPU, like a server-requesting Pod.
fn requester(name: &str) -> Pod {
    let container = json!({"name": "c", "image": "pause:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}});
    pod(name, &container)
}

/// A Pod that requests no GPU and uses the one with this index, like a server-providing Pod.
fn provider(name: &str, gpu: u64) -> Pod {
    let variable = |name: &str, value: String| json!({"name": name, "value": value});
    let container = json!({
        "name": "c",
        "image": "vllm/vllm-openai:v0.32.0",
        "command": ["vllm", "serve", "Llama-3.1-8B", "--port=8000", "--enable-sleep-mode"],
        "env": [variable("VLLM_SERVER_DEV_MODE", "1".into()), variable("CUDA_VISIBLE_DEVICES", gpu.to_string())],
        "resources": {"limits": {"nvidia.com/gpu": "0"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
    });
    pod(name, &container)
}

fn pod(name: &str, container: &Value) -> Pod {
    let spec = json!({"restartPolicy": "Never", "containers": [container]});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

/// Waits until the status of the Pod satisfies `predicate`, and returns it.
async fn wait_for_status(pods: &Api<Pod>, name: &str, predicate: impl Fn(&Value) -> bool) -> Value {
    let poll = async {
        loop {
            let status = serde_json::to_value(pods.get(name).await.unwrap().status).unwrap();
            if predicate(&status) {
                return status;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, poll).await.unwrap_or_else(|_| panic!("timed out waiting for Pod {name}"))
}

fn is_ready(status: &Value) -> bool {
    status["containerStatuses"][0]["ready"] == true
}

/// Starts a provider and returns its address.
async fn start_provider(pods: &Api<Pod>, name: &str, gpu: u64) -> String {
    pods.create(&PostParams::default(), &provider(name, gpu)).await.unwrap();
    let status = wait_for_status(pods, name, is_ready).await;
    format!("{}:8000", status["podIP"].as_str().unwrap())
}

/// Sends a POST request without a body and returns the status line.
fn post(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response.lines().next().unwrap_or_default().to_owned()
}

/// Waits until the Pod has a GPU, and returns its index in the ConfigMap `gpu-map`.
async fn gpu_of(pods: &Api<Pod>, map: &Value, name: &str) -> u64 {
    let status = wait_for_status(pods, name, is_ready).await;
    let id = &status["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0]["resourceID"];
    map[id.as_str().unwrap()].as_u64().unwrap()
}

/// Both GPUs of the node are allocated to requesters; their providers are scheduled nevertheless.
// spec: DP-3
#[tokio::test(flavor = "multi_thread")]
async fn engines_of_a_gpu_take_turns() {
    let session = Session::start(&["--nodes", "2×L4"]);
    let client = session.client().await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let requesters = ["requester-a", "requester-b"];
    for name in requesters {
        pods.create(&PostParams::default(), &requester(name)).await.unwrap();
    }
    let map = Api::<ConfigMap>::namespaced(client, "default").get("gpu-map").await.unwrap();
    let map: Value = serde_json::from_str(&map.data.unwrap()["l4-0"]).unwrap();
    let (gpu, other_gpu) = (gpu_of(&pods, &map, requesters[0]).await, gpu_of(&pods, &map, requesters[1]).await);
    assert_ne!(gpu, other_gpu);

    let first = start_provider(&pods, "first", gpu).await;
    pods.create(&PostParams::default(), &provider("early", gpu)).await.unwrap();
    let early = wait_for_status(&pods, "early", |status| status["phase"] == "Failed").await;
    let message = early["containerStatuses"][0]["state"]["terminated"]["message"].as_str().unwrap();
    assert!(message.starts_with("ValueError: Free memory on device cuda:0 (1.8/22.49 GiB) on startup"), "{message}");

    assert_eq!(post(&first, "/sleep?level=1"), "HTTP/1.1 200 OK");
    let second = start_provider(&pods, "second", gpu).await;
    let other = start_provider(&pods, "other", other_gpu).await;
    assert_eq!(post(&other, "/sleep"), "HTTP/1.1 200 OK");
    assert_eq!(post(&other, "/wake_up"), "HTTP/1.1 200 OK", "the other GPU has memory");
    assert_eq!(post(&first, "/wake_up"), "HTTP/1.1 500 Internal Server Error");
    let failed = wait_for_status(&pods, "first", |status| status["phase"] == "Failed").await;
    let message = &failed["containerStatuses"][0]["state"]["terminated"]["message"];
    assert_eq!(message, "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:139");
    assert_eq!(post(&second, "/sleep"), "HTTP/1.1 200 OK");
}
