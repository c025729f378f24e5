//! Applies manifests like `kubectl apply --server-side`.

use anyhow::{Context, Result};
use api::Document;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::{self, Scope};

use crate::report::errors::error_with_hint;

/// Field manager of objects from `ostler up -f`.
pub(crate) const FIELD_MANAGER: &str = "ostler-up";

/// Applies the documents in order and stops at the first error, which names the file and the document.
pub(crate) async fn documents(client: &Client, documents: &[Document]) -> Result<()> {
    for document in documents {
        apply(client, document).await.with_context(|| format!("{}, document {}", document.source, document.index))?;
    }
    Ok(())
}

async fn apply(client: &Client, document: &Document) -> Result<()> {
    let type_meta = TypeMeta { api_version: document.api_version().to_owned(), kind: document.kind().to_owned() };
    let kind = GroupVersionKind::try_from(&type_meta)?;
    let (resource, capabilities) = discovery::pinned_kind(client, &kind).await.map_err(|_| {
        error_with_hint(
            format!("the cluster does not serve kind {} in {}", type_meta.kind, type_meta.api_version),
            "apply its CustomResourceDefinition first; `kubectl api-resources` lists the served kinds",
        )
    })?;
    let api: Api<DynamicObject> = match (capabilities.scope, document.namespace()) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
    };
    api.patch(document.name(), &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&document.value)).await?;
    Ok(())
}
