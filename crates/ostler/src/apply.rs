//! Applying manifests, as `kubectl apply --server-side` does.

use anyhow::{Context, Result};
use api::manifest::Document;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::{self, Scope};

use crate::report::errors::hinted;

const MANAGER: &str = "ostler-up";

/// Applies every document in order; the first refusal ends it, naming file and document.
pub(crate) async fn documents(client: &Client, documents: &[Document]) -> Result<()> {
    for document in documents {
        apply(client, document).await.with_context(|| format!("{}, document {}", document.source, document.index))?;
    }
    Ok(())
}

async fn apply(client: &Client, document: &Document) -> Result<()> {
    let types = TypeMeta { api_version: document.api_version().to_owned(), kind: document.kind().to_owned() };
    let kind = GroupVersionKind::try_from(&types)?;
    let (resource, capabilities) = discovery::pinned_kind(client, &kind).await.map_err(|_| {
        hinted(
            format!("no kind {} in {}", types.kind, types.api_version),
            "apply its CustomResourceDefinition first; `kubectl api-resources` lists the kinds that exist",
        )
    })?;
    let api: Api<DynamicObject> = match (capabilities.scope, document.namespace()) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
    };
    api.patch(document.name(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(&document.value)).await?;
    Ok(())
}
