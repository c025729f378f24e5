//! A pool of ready Pods without containers, for gateways and endpoint pickers.

use std::{path::Path, time::Duration};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::result::Result;

const NAMESPACE: &str = "default";

/// How often an object is applied whose definition is not served yet, and the delay between the attempts.
const ATTEMPTS: usize = 100;
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Creates the pool `pool` of `endpoints` engines that listen on `port` of 127.1.0.1, 127.1.0.2, …
pub(crate) fn create(kubeconfig: &Path, port: u16, endpoints: u8, definitions: Option<&Path>) -> Result<()> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = cluster::new_client(config)?;
        for definition in definitions.map_or_else(|| Ok(own_definitions()), read_definitions)? {
            apply(&client, &definition, "customresourcedefinitions", None).await?;
        }
        for (object, plural) in pools(port) {
            apply(&client, &object, plural, None).await?;
        }
        for number in 1..=endpoints {
            let pod = pod(number);
            apply(&client, &pod, "pods", None).await?;
            apply(&client, &pod, "pods", Some("status")).await?;
        }
        Ok(())
    })
}

fn own_definitions() -> Vec<Value> {
    [api::crds(), api::integrations::crds()].concat()
}

/// Returns the definitions of upstream in `directory` in addition to our own.
fn read_definitions(directory: &Path) -> Result<Vec<Value>> {
    let mut definitions = api::crds();
    for entry in std::fs::read_dir(directory)? {
        definitions.push(serde_saphyr::from_str(&std::fs::read_to_string(entry?.path())?)?);
    }
    Ok(definitions)
}

/// Returns the pools of native gateway and endpoint pickers, and the plural names of their kinds.
fn pools(port: u16) -> [(Value, &'static str); 2] {
    let metadata = json!({"name": "pool", "namespace": NAMESPACE});
    let backend_pool = json!({
        "apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": "BackendPool", "metadata": metadata,
        "spec": {"selector": {"app": "engine"}, "targetPorts": [port], "implicitUseCases": "Allow"},
    });
    let inference_pool = json!({
        "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": {"app": "engine"}}, "targetPorts": [{"number": port}],
            "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
        },
    });
    [(backend_pool, "backendpools"), (inference_pool, "inferencepools")]
}

fn pod(number: u8) -> Value {
    let address = format!("127.1.0.{number}");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("engine-{number}"), "namespace": NAMESPACE, "labels": {"app": "engine"}},
        "spec": {"nodeName": "node", "containers": [{"name": "engine", "image": "example.com/engine:1"}]},
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// Applies `object` or one of its subresources.
async fn apply(client: &Client, object: &Value, plural: &str, subresource: Option<&str>) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.clone().ok_or("an object has no kind")?;
    let (group, version) = types.api_version.rsplit_once('/').unwrap_or(("", &types.api_version));
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: types.api_version.clone(),
        kind: types.kind.clone(),
        plural: plural.to_owned(),
    };
    let name = object.metadata.name.clone().unwrap_or_default();
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let (parameters, patch) = (PatchParams::apply("gateway-load").force(), Patch::Apply(&object));
    for attempt in 1.. {
        let result = match subresource {
            None => api.patch(&name, &parameters, &patch).await,
            Some(subresource) => api.patch_subresource(subresource, &name, &parameters, &patch).await,
        };
        match result {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 404 && attempt < ATTEMPTS => {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(error) => return Err(format!("{} {name}: {error}", types.kind).into()),
        }
    }
    Ok(())
}
