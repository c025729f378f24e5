//! Reads the objects of a cluster that decisions depend on.

use anyhow::{Context, Result};
use api::Document;
use cluster::Kind;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use operator::kinds;
use plan::Snapshot;
use serde_json::Value;

/// The kinds of runtimes, models and classes, which ostler defines.
const SUPPLY_KINDS: [Kind; 5] = [
    kinds::SERVING_RUNTIME,
    kinds::CLUSTER_SERVING_RUNTIME,
    kinds::BASE_MODEL,
    kinds::CLUSTER_BASE_MODEL,
    kinds::ACCELERATOR_CLASS,
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
}

impl ClusterObjects {
    /// Lists the objects in all namespaces.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let mut supply = Vec::new();
        for kind in SUPPLY_KINDS {
            supply.extend(list(client, kind).await?);
        }
        let (nodes, pods) = (list(client, kinds::NODE).await?, list(client, kinds::POD).await?);
        let services = list(client, kinds::OME_SERVICE).await?;
        Ok(Self { nodes, pods, supply, services })
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
pub(crate) async fn list(client: &Client, kind: Kind) -> Result<Vec<Value>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.api_resource());
    let mut objects = Vec::new();
    let mut params = ListParams::default().limit(PAGE_SIZE);
    loop {
        let page = match api.list(&params).await {
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(objects),
            page => page.with_context(|| format!("failed to list {} objects", kind.kind))?,
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

/// Reads an object if it exists. `namespace` applies to namespaced kinds.
pub(crate) async fn get(client: &Client, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>> {
    let object = match kind.api(client.clone(), namespace).get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => None,
        response => response.with_context(|| format!("{}.{}/{name}", kind.kind.to_lowercase(), kind.group))?,
    };
    object.map(|object| Ok(with_type_meta(serde_json::to_value(object)?, kind))).transpose()
}

/// Wraps an object of the cluster in a document.
pub(crate) fn document(value: Value) -> Document {
    Document { source: "the cluster".to_owned(), index: 1, value }
}

/// Sets apiVersion and kind, which some servers omit from the items of a list.
fn with_type_meta(mut object: Value, kind: Kind) -> Value {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.into();
    object
}
