//! Parses and applies manifests.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::retry::retry_transient_errors;

/// Field manager of objects that tests apply.
const FIELD_MANAGER: &str = "realcluster";

/// Parses the documents of a YAML text and skips empty ones.
///
/// # Errors
/// The text is not valid YAML.
pub fn parse_documents(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Reads the documents of a file, or of all YAML files of a directory sorted by name.
pub(crate) fn read_manifests(path: &Path) -> Result<Vec<Value>> {
    if path.is_file() {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        return parse_documents(&text).with_context(|| path.display().to_string());
    }
    let mut files: Vec<_> = std::fs::read_dir(path)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let documents: Result<Vec<Vec<Value>>> = files.iter().map(|file| self::read_manifests(file)).collect();
    Ok(documents?.concat())
}

/// Returns the API of `plural.group` (or `plural`) at `version`, in `namespace` or in all namespaces if it is empty.
#[must_use]
pub fn dynamic_api(client: &Client, resource: &str, version: &str, namespace: &str) -> Api<DynamicObject> {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let api_resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: String::new(),
        plural: plural.to_owned(),
    };
    match namespace {
        "" => Api::all_with(client.clone(), &api_resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &api_resource),
    }
}

/// Applies `object` by server-side apply, which also accepts definitions larger than 256 KiB. Discovers the resource of the
/// kind and retries transient errors.
///
/// # Errors
/// The error of the API server, with kind and name of the object.
pub async fn apply(client: &Client, object: &Value) -> Result<Value> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
    let (api_resource, capabilities) =
        retry_transient_errors(async || kube::discovery::pinned_kind(client, &gvk).await).await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &api_resource),
        kube::discovery::Scope::Namespaced => {
            let namespace =
                Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty()).unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &api_resource)
        }
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let result = retry_transient_errors(async || api.patch(name, &params, &Patch::Apply(object)).await).await;
    let stored = result.with_context(|| format!("failed to apply {kind} {name}"))?;
    Ok(serde_json::to_value(stored)?)
}
