//! Fills the ConfigMap `gpu-map`: on each node with GPUs and without a complete entry, a Pod that sees all GPUs of the node lists
//! them. It requests none, so that it runs although all are assigned, and creates no compute context.

use std::collections::BTreeMap;
use std::time::Duration;

use api::dual_pods::GPU_MAP;
use apimachinery::object;
use cluster::{Error, list_objects, read_object};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, LogParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::coordinator::{CONFIG_MAP, NODE, POD};

/// Field manager of the entries.
pub const GPU_MAP_MANAGER: &str = "ostler-gpu-map";
/// Extended resource of the GPUs whose indexes `CUDA_VISIBLE_DEVICES` contains.
const GPU_RESOURCE: &str = "nvidia.com/gpu";
/// Maximum number of Pods that run at a time.
const MAX_PODS: usize = 16;
/// Interval at which Pods are read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of the deletion of a Pod, after which it remains.
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum of `activeDeadlineSeconds` (`pkg/apis/core/validation` of Kubernetes).
const MAX_ACTIVE_SECONDS: u64 = i32::MAX as u64;
/// User of the Pods, as of the shipped image: namespaces may enforce the Pod security standard `restricted`.
const USER: u32 = 65532;
/// Maximum size of the output of a Pod that is read.
const MAX_LOG_BYTES: i64 = 64 << 10;

/// Options of [`discover_gpus`].
#[derive(Clone, Debug)]
pub struct GpuDiscovery {
    /// Namespace of the ConfigMap and the Pods.
    pub namespace: String,
    /// Image of the Pods, whose entry point is `ostler`. It needs `nvidia-smi`, or a C library for that of the container runtime.
    pub image: String,
    /// RuntimeClass of the Pods.
    pub runtime_class: Option<String>,
    /// How long Pods may take.
    pub timeout: Duration,
}

/// Outcome for one node with GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeOutcome {
    /// The map already had a complete entry.
    Complete,
    /// A user wrote the entry, which is retained although it has fewer GPUs than the node.
    Retained,
    /// The entry was written; it has this number of GPUs.
    Written(usize),
    /// The GPUs could not be listed.
    Failed(String),
}

/// Fills `gpu-map` and returns the outcome for each node with GPUs, by name.
///
/// # Errors
/// Nodes or the ConfigMap cannot be read or written.
pub async fn discover_gpus(client: &Client, options: &GpuDiscovery) -> Result<BTreeMap<String, NodeOutcome>, Error> {
    let nodes = list_objects(client, NODE, "", |_| true).await?;
    let live = read_object(client, CONFIG_MAP, &options.namespace, GPU_MAP).await?;
    let counts: BTreeMap<String, usize> = nodes
        .iter()
        .map(|node| (object::name(node).to_owned(), gpu_count(node)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let mut outcomes: BTreeMap<String, NodeOutcome> = counts
        .iter()
        .filter_map(|(node, count)| Some((node.clone(), existing_outcome(live.as_ref()?, node, *count)?)))
        .collect();
    let mut missing: Vec<String> = counts.into_keys().filter(|node| !outcomes.contains_key(node)).collect();
    let mut entries = BTreeMap::new();
    let mut pods = JoinSet::new();
    loop {
        while pods.len() < MAX_PODS
            && let Some(node) = missing.pop()
        {
            outcomes.insert(node.clone(), NodeOutcome::Failed("the task that lists its GPUs panicked".to_owned()));
            let (client, options) = (client.clone(), options.clone());
            pods.spawn(async move {
                let result = list_gpus(&client, &options, &node).await;
                (node, result)
            });
        }
        let Some(finished) = pods.join_next().await else { break };
        let Ok((node, result)) = finished else { continue };
        let outcome = match result {
            Ok(gpus) => {
                let count = gpus.len();
                entries.insert(node.clone(), json!(gpus).to_string());
                NodeOutcome::Written(count)
            }
            Err(error) => NodeOutcome::Failed(error),
        };
        outcomes.insert(node, outcome);
    }
    if !entries.is_empty() {
        write_map(client, &options.namespace, entries).await?;
    }
    Ok(outcomes)
}

/// Returns the outcome for a node whose entry is not written; `None` if its GPUs have to be listed.
fn existing_outcome(map: &Value, node: &str, count: usize) -> Option<NodeOutcome> {
    let entry = map["data"].get(node)?;
    let indexes: Option<BTreeMap<String, u32>> = entry.as_str().and_then(|text| serde_json::from_str(text).ok());
    if indexes.is_some_and(|indexes| indexes.len() >= count) {
        return Some(NodeOutcome::Complete);
    }
    (!is_own_gpu_map_entry(map, node)).then_some(NodeOutcome::Retained)
}

/// Returns whether ostler, and no user, wrote the entry of a node in a ConfigMap `gpu-map`.
#[must_use]
pub fn is_own_gpu_map_entry(map: &Value, node: &str) -> bool {
    let mut managers = map["metadata"]["managedFields"].as_array().into_iter().flatten();
    managers.any(|entry| {
        entry["manager"] == GPU_MAP_MANAGER && entry["fieldsV1"]["f:data"].get(format!("f:{node}")).is_some()
    })
}

fn gpu_count(node: &Value) -> usize {
    let capacity = node["status"]["capacity"][GPU_RESOURCE].as_str();
    capacity.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Writes entries. Other entries of this program remain, also those that were written while Pods ran.
async fn write_map(client: &Client, namespace: &str, mut entries: BTreeMap<String, String>) -> Result<(), Error> {
    let live = read_object(client, CONFIG_MAP, namespace, GPU_MAP).await?.unwrap_or_default();
    for (node, entry) in live["data"].as_object().into_iter().flatten() {
        if let (true, Some(entry)) = (is_own_gpu_map_entry(&live, node), entry.as_str()) {
            entries.entry(node.clone()).or_insert_with(|| entry.to_owned());
        }
    }
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": GPU_MAP, "namespace": namespace},
        "data": entries,
    });
    let api = CONFIG_MAP.api(client.clone(), namespace);
    let response = api.patch(GPU_MAP, &PatchParams::apply(GPU_MAP_MANAGER), &Patch::Apply(&map)).await;
    response.map(drop).map_err(|source| Error::Request {
        action: "apply",
        object: format!("ConfigMap {namespace}/{GPU_MAP}"),
        source: Box::new(source),
    })
}

/// Runs a Pod on a node, and returns the indexes of the GPUs by UUID.
async fn list_gpus(client: &Client, options: &GpuDiscovery, node: &str) -> Result<BTreeMap<String, u32>, String> {
    let api: Api<DynamicObject> = POD.api(client.clone(), &options.namespace);
    let pod: DynamicObject = serde_json::from_value(pod(options, node)).map_err(|error| error.to_string())?;
    let created = api.create(&PostParams::default(), &pod).await.map_err(|error| error.to_string())?;
    let name = created.metadata.name.clone().unwrap_or_default();
    let deadline = Instant::now().checked_add(options.timeout).unwrap_or_else(Instant::now);
    let output = timeout_at(deadline, read_output(client, &options.namespace, &name)).await;
    let output =
        output.unwrap_or_else(|_| Err(format!("Pod {name} did not end within {} s", options.timeout.as_secs())));
    let preconditions = Preconditions { uid: created.metadata.uid.clone(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(0);
    if !matches!(tokio::time::timeout(DELETE_TIMEOUT, api.delete(&name, &parameters)).await, Ok(Ok(_))) {
        tracing::warn!(pod = name, namespace = options.namespace, "failed to delete a Pod");
    }
    parse_list(&output?)
}

/// Waits until the Pod has succeeded and returns its output.
async fn read_output(client: &Client, namespace: &str, name: &str) -> Result<String, String> {
    loop {
        let pod = read_object(client, POD, namespace, name).await.map_err(|error| error.to_string())?;
        let pod = pod.ok_or_else(|| format!("Pod {name} was deleted"))?;
        let logs = async || {
            let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), namespace);
            let parameters = LogParams { limit_bytes: Some(MAX_LOG_BYTES), ..LogParams::default() };
            api.logs(name, &parameters).await.map_err(|error| error.to_string())
        };
        match pod["status"]["phase"].as_str() {
            Some("Succeeded") => return logs().await,
            Some("Failed") => {
                let cause = object::text(&pod, "/status/message").to_owned();
                let output = logs().await.unwrap_or(cause);
                return Err(format!("Pod {name} failed: {}", output.trim().lines().last().unwrap_or_default()));
            }
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Returns a Pod that lists the GPUs of a node. It is not scheduled, so that it runs on cordoned nodes, too.
fn pod(options: &GpuDiscovery, node: &str) -> Value {
    let mut spec = json!({
        "nodeName": node,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": options.timeout.as_secs().clamp(1, MAX_ACTIVE_SECONDS),
        "securityContext": {"runAsNonRoot": true, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "automountServiceAccountToken": false,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{
            "name": "list",
            "image": options.image,
            "args": ["requester", "--list"],
            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            "resources": {"limits": {GPU_RESOURCE: "0"}, "requests": {"cpu": "10m", "memory": "32Mi"}},
        }],
    });
    if let Some(runtime_class) = &options.runtime_class {
        spec["runtimeClassName"] = json!(runtime_class);
    }
    let metadata = json!({
        "generateName": "ostler-gpu-map-",
        "namespace": options.namespace,
        "labels": {"app.kubernetes.io/name": "ostler", "app.kubernetes.io/component": "gpu-map"},
    });
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Parses lines such as `0, GPU-5a4b…`.
fn parse_list(output: &str) -> Result<BTreeMap<String, u32>, String> {
    let parse = |line: &str| {
        let (index, uuid) = line.split_once(',')?;
        Some((uuid.trim().to_owned(), index.trim().parse::<u32>().ok()?))
    };
    let lines = output.lines().filter(|line| !line.trim().is_empty());
    let gpus: Option<BTreeMap<String, u32>> = lines.map(parse).collect();
    match gpus {
        Some(gpus) if !gpus.is_empty() => Ok(gpus),
        _ => Err(format!("unexpected list of GPUs: {}", output.trim().lines().next().unwrap_or("it is empty"))),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::indexes("0, GPU-a\n1, GPU-b\n", Ok(2))]
    #[case::without_index("-, GPU-a\n", Err("unexpected list of GPUs: -, GPU-a"))]
    #[case::empty("\n", Err("unexpected list of GPUs: it is empty"))]
    fn lists_are_parsed(#[case] output: &str, #[case] expected: Result<usize, &str>) {
        assert_eq!(parse_list(output).map(|gpus| gpus.len()), expected.map_err(str::to_owned));
    }

    // spec: DP-107
    #[rstest]
    #[case::complete(r#"{"GPU-a":0,"GPU-b":1}"#, "user", Some(NodeOutcome::Complete))]
    #[case::incomplete_own(r#"{"GPU-a":0}"#, GPU_MAP_MANAGER, None)]
    #[case::incomplete_of_user(r#"{"GPU-a":0}"#, "user", Some(NodeOutcome::Retained))]
    #[case::invalid_of_user("{", "user", Some(NodeOutcome::Retained))]
    fn entries_of_users_remain(#[case] entry: &str, #[case] manager: &str, #[case] expected: Option<NodeOutcome>) {
        let map = json!({
            "metadata": {"managedFields": [{"manager": manager, "fieldsV1": {"f:data": {"f:n": {}}}}]},
            "data": {"n": entry},
        });
        assert_eq!(existing_outcome(&map, "n", 2), expected);
        assert_eq!(existing_outcome(&map, "other", 2), None);
    }

    #[test]
    fn pod_sees_all_gpus_but_requests_none() {
        let options = GpuDiscovery {
            namespace: "n".to_owned(),
            image: "ostler:1".to_owned(),
            runtime_class: Some("nvidia".to_owned()),
            timeout: Duration::ZERO,
        };
        let pod = pod(&options, "node-1");
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"][GPU_RESOURCE], "0");
        assert_eq!(container["env"][0], json!({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}));
        assert_eq!(
            (&pod["spec"]["activeDeadlineSeconds"], &pod["spec"]["securityContext"]["runAsNonRoot"]),
            (&json!(1), &json!(true))
        );
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
        assert_eq!((&pod["spec"]["nodeName"], &pod["spec"]["runtimeClassName"]), (&json!("node-1"), &json!("nvidia")));
    }
}
