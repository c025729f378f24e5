//! Reads the objects of a cluster that decisions depend on.

use anyhow::{Context, Result};
use api::Document;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use plan::Snapshot;
use serde_json::Value;

use crate::report::explain::pod_diagnostics::PodDiagnostics;

/// Group, version and kind.
pub(crate) type StaticGvk = (&'static str, &'static str, &'static str);

pub(crate) const OME_SERVICE: StaticGvk = ("ome.io", "v1beta1", "InferenceService");
pub(crate) const ROLE_BASED_SERVICE: StaticGvk = ("fusioninfer.io", "v1alpha1", "InferenceService");
pub(crate) const NODE: StaticGvk = ("", "v1", "Node");
pub(crate) const POD: StaticGvk = ("", "v1", "Pod");
/// The kinds of runtimes, models and classes, which ostler defines.
const SUPPLY_KINDS: [StaticGvk; 5] = [
    ("ome.io", "v1beta1", "ServingRuntime"),
    ("ome.io", "v1beta1", "ClusterServingRuntime"),
    ("ome.io", "v1beta1", "BaseModel"),
    ("ome.io", "v1beta1", "ClusterBaseModel"),
    ("ome.io", "v1beta1", "AcceleratorClass"),
];
/// Maximum number of objects per page of a list.
const PAGE_SIZE: u32 = 500;
/// HTTP status of an object or a resource that does not exist.
const NOT_FOUND: u16 = 404;

/// The objects of a cluster.
#[derive(Default)]
pub(crate) struct ClusterObjects {
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    /// Runtimes, models and classes.
    pub supply: Vec<Value>,
    /// `ome.io` services.
    pub services: Vec<Value>,
    /// Diagnostics of the Pods of the explained service.
    pub pod_diagnostics: PodDiagnostics,
}

impl ClusterObjects {
    /// Lists the objects in all namespaces.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let mut supply = Vec::new();
        for kind in SUPPLY_KINDS {
            supply.extend(list(client, kind).await?);
        }
        let (nodes, pods) = (list(client, NODE).await?, list(client, POD).await?);
        let services = list(client, OME_SERVICE).await?;
        Ok(Self { nodes, pods, supply, services, pod_diagnostics: PodDiagnostics::new() })
    }

    /// Returns all objects that a decision depends on, as documents.
    pub(crate) fn documents(&self) -> Vec<Document> {
        self.supply.iter().chain(&self.nodes).chain(&self.pods).cloned().map(document).collect()
    }

    /// Returns the snapshot that decisions are computed from. Invalid objects are ignored, as in the operator, so that they do
    /// not hide why a service is not ready.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for document in self.documents() {
            snapshot.add_supply(&document).ok();
        }
        snapshot.claims = self.services.iter().filter_map(plan::Claim::from_status).collect();
        snapshot
    }
}

/// Lists the objects of a kind in all namespaces. Returns an empty list if the cluster does not serve the kind.
pub(crate) async fn list(client: &Client, kind: StaticGvk) -> Result<Vec<Value>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
    let mut objects = Vec::new();
    let mut params = ListParams::default().limit(PAGE_SIZE);
    loop {
        let page = match api.list(&params).await {
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(objects),
            page => page.with_context(|| format!("failed to list {} objects", kind.2))?,
        };
        for object in page.items {
            objects.push(with_type_meta(serde_json::to_value(object)?, kind));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// Reads an object if it exists. `namespace` is `None` for cluster-scoped kinds.
pub(crate) async fn get(
    client: &Client,
    kind: StaticGvk,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Value>> {
    let resource = resource(kind);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object = match api.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => None,
        response => response.with_context(|| format!("{}.{}/{name}", kind.2.to_lowercase(), kind.0))?,
    };
    object.map(|object| Ok(with_type_meta(serde_json::to_value(object)?, kind))).transpose()
}

/// Wraps an object of the cluster in a document.
pub(crate) fn document(value: Value) -> Document {
    Document { source: "the cluster".to_owned(), index: 1, value }
}

/// Sets apiVersion and kind, which some servers omit from the items of a list.
fn with_type_meta(mut object: Value, (group, version, kind): StaticGvk) -> Value {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object
}

/// Returns the resource of a kind, for dynamic clients.
pub(crate) fn resource((group, version, kind): StaticGvk) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
