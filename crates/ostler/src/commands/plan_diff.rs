//! `ostler plan --diff`: what applying manifests would change in a cluster, or what the operator of this version would change.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use api::Document;
use cluster::{Kind, NamespacedName, ObjectPreview, is_terminating, predict_apply_by_user};
use jiff::Timestamp;
use kube::Client;
use operator::{ClusterListing, FIELD_MANAGER, Options, kinds, preview_services};
use plan::Service;
use serde_json::Value;

use crate::apply::FIELD_MANAGER as UP_FIELD_MANAGER;
use crate::report::errors::error_with_hint;
use crate::report::plan_diff::PlanDiff;
use crate::{cluster_listing, output};

/// Kinds of objects that users apply and that plans depend on.
const APPLIED_KINDS: [Kind; 7] = [
    kinds::OME_SERVICE,
    kinds::FUSIONINFER_SERVICE,
    kinds::SERVING_RUNTIME,
    kinds::CLUSTER_SERVING_RUNTIME,
    kinds::BASE_MODEL,
    kinds::CLUSTER_BASE_MODEL,
    kinds::ACCELERATOR_CLASS,
];
const SERVICE_KINDS: [Kind; 2] = [kinds::OME_SERVICE, kinds::FUSIONINFER_SERVICE];

/// What to compare.
pub(super) struct DiffInput {
    pub client: Client,
    /// Manifests to apply, with namespaces; `None` compares the services as they are.
    pub documents: Option<Vec<Document>>,
    /// Shipped objects that replace those of kinds that the user may not list.
    pub catalog: Vec<Document>,
    /// Namespace of objects that the user may list only in one namespace.
    pub namespace: String,
    /// Compare only the services of this namespace, unless manifests are applied.
    pub only_namespace: Option<String>,
    /// Image of endpoint pickers, if it changes.
    pub picker_image: Option<String>,
    /// Options of the operator, except for the image of endpoint pickers.
    pub options: Options,
}

/// Predicts the changes.
pub(super) async fn diff(input: DiffInput) -> Result<PlanDiff> {
    let (mut listing, notes) = cluster_listing::read(&input.client, &input.namespace).await?;
    notes.iter().for_each(|note| output::print_message(&format!("note: {note}")));
    add_shipped_objects(&mut listing, input.catalog);
    let mut manifests = Vec::new();
    for document in input.documents.iter().flatten() {
        manifests.extend(apply(&mut listing, document)?);
    }
    let mut options = input.options;
    if let Some(image) = input.picker_image.or_else(|| listing.picker_image()) {
        options.picker_image = image;
    }
    let selected = input.documents.as_deref().and_then(selected_services);
    let is_selected = |kind: Kind, key: &NamespacedName| match (&selected, &input.documents) {
        (Some(selected), _) => selected.contains(&(kind, key.clone())),
        (None, Some(_)) => true,
        (None, None) => input.only_namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace),
    };
    let services = preview_services(input.client, &listing, &options, is_selected).await?;
    Ok(PlanDiff::new(&manifests, services))
}

/// Adds the shipped objects of kinds that the user may not list.
fn add_shipped_objects(listing: &mut ClusterListing, catalog: Vec<Document>) {
    let mut added_kinds = BTreeSet::new();
    for document in catalog {
        if let Some(kind) = applied_kind(&document).filter(|kind| listing.unreadable.contains_key(kind)) {
            listing.insert(kind, document.value);
            added_kinds.insert(kind.kind);
        }
    }
    if !added_kinds.is_empty() {
        let kinds: Vec<&str> = added_kinds.into_iter().collect();
        output::print_message(&format!("note: planning with the shipped {} objects", kinds.join(", ")));
    }
}

/// Returns the services of the manifests; `None` if a runtime, model or class is applied, which may change any service.
fn selected_services(documents: &[Document]) -> Option<BTreeSet<(Kind, NamespacedName)>> {
    let applied = documents.iter().filter_map(|document| Some((applied_kind(document)?, document)));
    applied
        .map(|(kind, document)| {
            SERVICE_KINDS.contains(&kind).then(|| (kind, NamespacedName::from_object(&document.value)))
        })
        .collect()
}

fn applied_kind(document: &Document) -> Option<Kind> {
    let is_kind = |kind: &Kind| document.is_kind(&kind.api_version(), kind.kind);
    APPLIED_KINDS.into_iter().find(is_kind)
}

/// Applies a manifest to the listing and returns the change.
fn apply(listing: &mut ClusterListing, document: &Document) -> Result<Option<ObjectPreview>> {
    let Some(kind) = applied_kind(document) else {
        output::print_message(&format!("note: {} is not compared", document.display_name()));
        return Ok(None);
    };
    Service::from_document(document)?;
    let definition = listing.definition(kind);
    if definition.is_none() && !listing.unreadable.contains_key(&kind) {
        return Err(error_with_hint(
            format!("the cluster does not serve kind {} in {}", kind.kind, kind.api_version()),
            "install the definitions first: `ostler crds | kubectl apply --server-side -f -`",
        ));
    }
    if let (Some(cause), true) = (listing.unreadable.get(&kind), SERVICE_KINDS.contains(&kind)) {
        bail!("{}: {cause}", document.display_name());
    }
    let live = listing.get(kind, &NamespacedName::from_object(&document.value)).cloned();
    if live.as_ref().is_some_and(is_terminating) {
        return Err(error_with_hint(
            format!("{} is being deleted", document.display_name()),
            "wait until it is deleted, then run the command again",
        ));
    }
    let predict = |other_managers: &[&str]| {
        predict_apply_by_user(kind, definition.as_ref(), live.as_ref(), &document.value, other_managers)
    };
    let mut applied = predict(&[FIELD_MANAGER, UP_FIELD_MANAGER])?;
    if without_managed_fields(&applied) != without_managed_fields(&predict(&[FIELD_MANAGER])?) {
        output::print_message(&format!(
            "note: {}: `kubectl apply -f` retains fields that `ostler up -f` applied and the file no longer has; \
             `kubectl apply --server-side --field-manager={UP_FIELD_MANAGER} -f` removes them",
            document.display_name()
        ));
    }
    let generation = live.as_ref().map_or(0, cluster::generation);
    if live.as_ref().is_none_or(|live| live["spec"] != applied["spec"]) {
        applied["metadata"]["generation"] = (generation + 1).into();
    }
    if live.is_none() {
        // The oldest service selects first.
        applied["metadata"]["creationTimestamp"] = cluster::rfc3339_seconds(Timestamp::now()).into();
    }
    listing.insert(kind, applied.clone());
    Ok(Some(ObjectPreview::new(live, Some(applied))))
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

#[cfg(test)]
mod tests {
    use embedded::Server;
    use embedded::ports::ServerPorts;
    use http::{Method, Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;

    /// Returns a client of a user who may only read, and only the namespaced objects of `team`.
    fn client_of_namespace(server: &Server) -> Client {
        let router = embedded::router(server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (path, router) = (request.uri().path().to_owned(), router.clone());
            let is_discovery = path == "/apis" || (path.starts_with("/apis/") && path.matches('/').count() == 3);
            let is_allowed = request.method() == Method::GET && (is_discovery || path.contains("/namespaces/team/"));
            async move {
                if is_allowed {
                    return router.oneshot(request.map(axum::body::Body::new)).await;
                }
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": format!("{path} is forbidden"), "reason": "Forbidden", "code": 403});
                let response = Response::builder().status(StatusCode::FORBIDDEN);
                Ok(response.body(axum::body::Body::from(status.to_string())).unwrap())
            }
        });
        Client::new(service, "team")
    }

    fn server() -> Server {
        let server = Server::new(&ServerPorts::default());
        for definition in api::crds() {
            server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
        server.create("namespaces", namespace).unwrap();
        server
    }

    fn service() -> Document {
        let value = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": "chat", "namespace": "team"}, "spec": {"model": {"name": "llama-3-2-3b-instruct"}}});
        Document { source: "f.yaml".to_owned(), index: 1, value }
    }

    #[tokio::test]
    async fn user_who_may_only_read_a_namespace_gets_an_answer() {
        let server = server();
        let diff = |documents: Option<Vec<Document>>| {
            diff(DiffInput {
                client: client_of_namespace(&server),
                documents,
                catalog: crate::catalog::documents().unwrap(),
                namespace: "team".to_owned(),
                only_namespace: None,
                picker_image: None,
                options: Options::default(),
            })
        };
        let output = diff(Some(vec![service()])).await.unwrap();
        assert!(output.is_feasible());
        let text = output.render();
        for created in ["InferenceService team/chat", "Deployment team/chat-engine", "BackendPool team/chat"] {
            assert!(text.contains(&format!("--- /dev/null\n+++ planned/{created}\n")), "{text}");
        }
        assert!(text.ends_with("5 objects would be created; no Pod would restart.\n"), "{text}");
        assert_eq!(diff(None).await.unwrap().render(), "Nothing would change (0 services).\n");
        server.create("inferenceservices.ome.io", service().value).unwrap();
        let text = diff(None).await.unwrap().render();
        assert!(text.ends_with("4 objects would be created; no Pod would restart.\n"), "{text}");
    }

    #[test]
    fn cluster_without_definitions_is_an_error_with_a_remedy() {
        let error = apply(&mut ClusterListing::default(), &service()).unwrap_err();
        assert_eq!(
            crate::report::errors::render(&error),
            "error: the cluster does not serve kind InferenceService in ome.io/v1beta1\n\
             hint: install the definitions first: `ostler crds | kubectl apply --server-side -f -`"
        );
    }
}
