//! Reads the objects of a cluster that decisions depend on.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use api::{Document, ome};
use cluster::{Kind, is_terminating};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use operator::kinds;
use plan::{Claim, Snapshot};
use serde_json::{Value, json};

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
/// HTTP status of a request that the user may not send.
const FORBIDDEN: u16 = 403;
/// HTTP status of an object or a resource that does not exist.
const NOT_FOUND: u16 = 404;

/// The objects of a cluster, as far as the user may read them.
#[derive(Default)]
pub(crate) struct ClusterObjects {
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    /// Runtimes, models and classes.
    pub supply: Vec<Value>,
    /// `ome.io` services.
    pub services: Vec<Value>,
    /// Kinds of which the user may not read all objects.
    unreadable: Vec<UnreadableKind>,
}

/// A kind of which the user may not read all objects.
struct UnreadableKind {
    kind: Kind,
    /// The namespace whose objects were read; `None` if no objects were read.
    namespace: Option<String>,
    /// Message of the API server, which names the user.
    cause: String,
}

/// Namespaces to list.
#[derive(Clone, Copy)]
pub(crate) enum ListScope<'a> {
    All,
    Namespace(&'a str),
}

// === impl ClusterObjects ===

impl ClusterObjects {
    /// Lists the objects in all namespaces, or only in `namespace` where the user may not read the others.
    pub(crate) async fn read(client: &Client, namespace: &str) -> Result<Self> {
        let mut objects = Self::default();
        for kind in SUPPLY_KINDS {
            let listed = objects.list_readable(client, kind, namespace).await?;
            objects.supply.extend(listed);
        }
        objects.nodes = objects.list_readable(client, kinds::NODE, namespace).await?;
        objects.pods = objects.list_readable(client, kinds::POD, namespace).await?;
        objects.services = objects.list_readable(client, kinds::OME_SERVICE, namespace).await?;
        Ok(objects)
    }

    /// Lists the objects of a kind that the user may read, and records what the user may not read.
    async fn list_readable(&mut self, client: &Client, kind: Kind, namespace: &str) -> Result<Vec<Value>> {
        let cause = match list(client, kind, ListScope::All).await {
            Err(error) => forbidden_message(&error).ok_or(error)?,
            listed => return listed,
        };
        let of_namespace = match kind.namespaced {
            true => match list(client, kind, ListScope::Namespace(namespace)).await {
                Err(error) if forbidden_message(&error).is_some() => None,
                listed => Some(listed?),
            },
            false => None,
        };
        let namespace = of_namespace.as_ref().map(|_| namespace.to_owned());
        self.unreadable.push(UnreadableKind { kind, namespace, cause });
        Ok(of_namespace.unwrap_or_default())
    }

    /// Returns whether the user may read all objects of a cluster-scoped kind.
    pub(crate) fn is_readable(&self, kind: Kind) -> bool {
        self.unreadable.iter().all(|unreadable| unreadable.kind != kind)
    }

    /// Returns whether all runtimes, models and classes that a service of the namespace can use were read.
    pub(crate) fn has_complete_supply(&self) -> bool {
        let is_incomplete =
            |unreadable: &UnreadableKind| SUPPLY_KINDS.contains(&unreadable.kind) && unreadable.namespace.is_none();
        !self.unreadable.iter().any(is_incomplete)
    }

    /// Describes what was not read and why, one line each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let unknown = self.unreadable.iter().filter(|unreadable| unreadable.namespace.is_none()).map(|unreadable| {
            let subject = match unreadable.kind {
                kinds::NODE => "the capacity of nodes is unknown".to_owned(),
                kind => format!("{} objects are not considered", kind.kind),
            };
            format!("{subject}: {}", unreadable.cause)
        });
        let restricted: Vec<&UnreadableKind> =
            self.unreadable.iter().filter(|unreadable| unreadable.namespace.is_some()).collect();
        let other_namespaces = restricted.first().map(|first| {
            let names: Vec<&str> = restricted.iter().map(|unreadable| unreadable.kind.kind).collect();
            let namespace = first.namespace.as_deref().unwrap_or_default();
            format!(
                "{} objects outside of namespace `{namespace}` are not considered: {}",
                names.join(", "),
                first.cause
            )
        });
        unknown.chain(other_namespaces).collect()
    }

    /// Returns all objects that a decision depends on, as documents.
    pub(crate) fn documents(&self) -> Vec<Document> {
        self.supply.iter().chain(&self.nodes).chain(&self.pods).cloned().map(document).collect()
    }

    /// Returns the snapshot that decisions are computed from. Invalid objects are ignored, as in the operator, so that they do
    /// not hide why a service is not ready.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot_after(&|object| Some(object.clone()))
    }

    /// Returns the snapshot once `edit` has changed Pods and services, or removed those for which it returns `None`.
    pub(crate) fn snapshot_after(&self, edit: &dyn Fn(&Value) -> Option<Value>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let pods = self.pods.iter().filter_map(edit);
        for object in self.supply.iter().chain(&self.nodes).cloned().chain(pods) {
            snapshot.add_supply(&document(object)).ok();
        }
        snapshot.claims = self.claims_after(edit);
        snapshot
    }

    /// Returns the accelerators that services claim, also for Pods that do not run yet.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        self.claims_after(&|object| Some(object.clone()))
    }

    fn claims_after(&self, edit: &dyn Fn(&Value) -> Option<Value>) -> Vec<Claim> {
        let services = self.services.iter().filter(|service| !is_terminating(service)).filter_map(edit);
        services.filter_map(|service| Claim::from_status(&service)).collect()
    }
}

/// Reads the objects of `kinds` in all namespaces, or only in `namespace` where the user may not read the others. Of ConfigMaps,
/// which may be many, it reads only those with the name and in the namespaces `config_maps`. Also describes what was not read.
pub(crate) async fn read_kinds(
    client: &Client,
    kinds: &[Kind],
    namespace: &str,
    config_maps: (&str, &BTreeSet<&str>),
) -> Result<(Vec<(Kind, Vec<Value>)>, Vec<String>)> {
    let (mut objects, mut read) = (ClusterObjects::default(), Vec::new());
    for kind in kinds {
        if kind.kind != "ConfigMap" {
            read.push((*kind, objects.list_readable(client, *kind, namespace).await?));
            continue;
        }
        let (name, namespaces) = config_maps;
        let mut found = Vec::new();
        for namespace in namespaces {
            match get(client, *kind, namespace, name).await {
                Ok(object) => found.extend(object),
                Err(error) => {
                    let cause = forbidden_message(&error).ok_or(error)?;
                    objects.unreadable.push(UnreadableKind { kind: *kind, namespace: None, cause });
                }
            }
        }
        read.push((*kind, found));
    }
    Ok((read, objects.notes()))
}

/// Lists the objects of a kind. Returns an empty list if the cluster does not serve the kind.
async fn list(client: &Client, kind: Kind, scope: ListScope<'_>) -> Result<Vec<Value>> {
    Ok(list_served(client, kind, scope).await?.unwrap_or_default())
}

/// Lists the objects of a kind that match its label selector. Returns `None` if the cluster does not serve the kind.
pub(crate) async fn list_served(client: &Client, kind: Kind, scope: ListScope<'_>) -> Result<Option<Vec<Value>>> {
    let api: Api<DynamicObject> = match scope {
        ListScope::All => Api::all_with(client.clone(), &kind.api_resource()),
        ListScope::Namespace(namespace) => kind.api(client.clone(), namespace),
    };
    let mut objects = Vec::new();
    let mut params = ListParams::default().limit(PAGE_SIZE);
    if !kind.label_selector.is_empty() {
        params = params.labels(kind.label_selector);
    }
    loop {
        let page = match api.list(&params).await {
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(None),
            page => page.with_context(|| format!("failed to list {} objects", kind.kind))?,
        };
        for object in page.items {
            objects.push(with_type_meta(serde_json::to_value(object)?, kind));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(Some(objects)),
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

/// Returns the message of the API server if it forbids the request that failed with `error`.
pub(crate) fn forbidden_message(error: &anyhow::Error) -> Option<String> {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) if status.code == FORBIDDEN => Some(status.message.clone()),
        _ => None,
    }
}

/// Wraps an object of the cluster in a document.
pub(crate) fn document(value: Value) -> Document {
    Document { source: "the cluster".to_owned(), index: 1, value }
}

/// Returns a service that sets only the model, and optionally the runtime.
pub(crate) fn minimal_service(namespace: &str, model: &str, runtime: Option<&str>) -> Value {
    let mut service = json!({
        "apiVersion": ome::API_VERSION, "kind": "InferenceService",
        "metadata": {"name": model, "namespace": namespace}, "spec": {"model": {"name": model}},
    });
    if let Some(runtime) = runtime {
        service["spec"]["runtime"] = json!({"name": runtime});
    }
    service
}

/// Sets apiVersion and kind, which some servers omit from the items of a list.
fn with_type_meta(mut object: Value, kind: Kind) -> Value {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.into();
    object
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// Returns a client of a user who may read only the namespaced objects of `namespace`. Each list contains one object.
    fn client_of_namespace(namespace: &'static str) -> Client {
        let respond = move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let plural = path.rsplit('/').next().unwrap_or_default().to_owned();
            let allowed = path.contains(&format!("/namespaces/{namespace}/"));
            let (status, body) = match allowed {
                true => (
                    StatusCode::OK,
                    json!({"kind": "List", "metadata": {}, "items": [{"metadata": {"name": "x", "namespace": namespace}}]}),
                ),
                false => {
                    let message = format!("{plural} is forbidden: User \"jane\" cannot list resource \"{plural}\"");
                    (
                        StatusCode::FORBIDDEN,
                        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": message, "reason": "Forbidden", "code": 403}),
                    )
                }
            };
            let response = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(response)
        };
        Client::new(tower::service_fn(respond), "default")
    }

    #[tokio::test]
    async fn user_of_a_namespace_reads_its_objects_and_notes() {
        let objects = ClusterObjects::read(&client_of_namespace("team"), "team").await.unwrap();
        assert_eq!(
            (objects.pods.len(), objects.services.len(), objects.supply.len(), objects.nodes.len()),
            (1, 1, 2, 0)
        );
        assert!(!objects.has_complete_supply() && !objects.is_readable(kinds::NODE));
        let cause = |plural: &str| format!("{plural} is forbidden: User \"jane\" cannot list resource \"{plural}\"");
        let expect = [
            format!("ClusterServingRuntime objects are not considered: {}", cause("clusterservingruntimes")),
            format!("ClusterBaseModel objects are not considered: {}", cause("clusterbasemodels")),
            format!("AcceleratorClass objects are not considered: {}", cause("acceleratorclasses")),
            format!("the capacity of nodes is unknown: {}", cause("nodes")),
            format!(
                "ServingRuntime, BaseModel, Pod, InferenceService objects outside of namespace `team` are not considered: {}",
                cause("servingruntimes")
            ),
        ];
        assert_eq!(objects.notes(), expect);
    }

    #[tokio::test]
    async fn user_of_another_namespace_reads_nothing() {
        let objects = ClusterObjects::read(&client_of_namespace("other"), "team").await.unwrap();
        assert!(objects.supply.is_empty() && objects.pods.is_empty());
        assert!(
            objects.notes().contains(
                &"Pod objects are not considered: pods is forbidden: User \"jane\" cannot list resource \"pods\""
                    .to_owned()
            )
        );
    }
}
