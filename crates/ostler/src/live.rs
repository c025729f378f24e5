//! A cluster as it is: what decisions depend on, read once.

use anyhow::{Context, Result};
use api::manifest::Document;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use plan::Snapshot;
use serde_json::Value;

use crate::report::explain::witness::Witnesses;

/// A kind by group, version and name.
pub(crate) type Kind = (&'static str, &'static str, &'static str);

pub(crate) const OME_SERVICE: Kind = ("ome.io", "v1beta1", "InferenceService");
pub(crate) const ROLES_SERVICE: Kind = ("fusioninfer.io", "v1alpha1", "InferenceService");
pub(crate) const NODE: Kind = ("", "v1", "Node");
pub(crate) const POD: Kind = ("", "v1", "Pod");
/// What only we bring to a cluster.
const OFFERED: [Kind; 5] = [
    ("ome.io", "v1beta1", "ServingRuntime"),
    ("ome.io", "v1beta1", "ClusterServingRuntime"),
    ("ome.io", "v1beta1", "BaseModel"),
    ("ome.io", "v1beta1", "ClusterBaseModel"),
    ("ome.io", "v1beta1", "AcceleratorClass"),
];
/// Objects per answer; a large cluster's Pods come in pages.
const PAGE: u32 = 500;
const NOT_FOUND: u16 = 404;

/// What is in a cluster.
#[derive(Default)]
pub(crate) struct Live {
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    /// Runtimes, models and classes.
    pub offered: Vec<Value>,
    /// `ome.io` services.
    pub services: Vec<Value>,
    /// What is said of Pods of the one service that is looked at.
    pub witnesses: Witnesses,
}

impl Live {
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let mut offered = Vec::new();
        for kind in OFFERED {
            offered.extend(list(client, kind).await?);
        }
        let (nodes, pods) = (list(client, NODE).await?, list(client, POD).await?);
        let services = list(client, OME_SERVICE).await?;
        Ok(Self { nodes, pods, offered, services, witnesses: Witnesses::new() })
    }

    /// Everything that a decision depends on, as documents.
    pub(crate) fn documents(&self) -> Vec<Document> {
        self.offered.iter().chain(&self.nodes).chain(&self.pods).cloned().map(document).collect()
    }

    /// What decisions are made of. An object that cannot be read takes no part, as in the operator: a broken neighbour
    /// must not hide why a service waits.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for document in self.documents() {
            snapshot.add_supply(&document).ok();
        }
        snapshot.claims = self.services.iter().filter_map(plan::Claim::recorded).collect();
        snapshot
    }
}

/// Every object of a kind in all namespaces; none where the cluster does not serve it.
pub(crate) async fn list(client: &Client, kind: Kind) -> Result<Vec<Value>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
    let mut objects = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = match api.list(&params).await {
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(objects),
            page => page.with_context(|| format!("reading every {} of the cluster", kind.2))?,
        };
        for object in page.items {
            objects.push(typed(serde_json::to_value(object)?, kind));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// One object, if it exists; `namespace` only where the kind has one.
pub(crate) async fn get(client: &Client, kind: Kind, namespace: Option<&str>, name: &str) -> Result<Option<Value>> {
    let resource = resource(kind);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let found = match api.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => None,
        found => found.with_context(|| format!("{}.{}/{name}", kind.2.to_lowercase(), kind.0))?,
    };
    found.map(|object| Ok(typed(serde_json::to_value(object)?, kind))).transpose()
}

/// An object of the cluster as a manifest.
pub(crate) fn document(value: Value) -> Document {
    Document { source: "the cluster".to_owned(), index: 1, value }
}

/// Items of a list carry no kind of their own on some servers.
fn typed(mut object: Value, (group, version, kind): Kind) -> Value {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object
}

/// What a client needs to know of a kind.
pub(crate) fn resource((group, version, kind): Kind) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
