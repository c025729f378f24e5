//! Manifests, and applying them.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::patience::patiently;

/// Field manager of what the tests write.
const MANAGER: &str = "realcluster";

/// The documents of a YAML text, without empty ones.
///
/// # Errors
/// It is no YAML.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(all.into_iter().filter(|one| !one.is_null()).collect())
}

/// The documents of a file, or of every YAML file of a folder in order of name.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>> {
    if path.is_file() {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        return documents(&text).with_context(|| path.display().to_string());
    }
    let mut files: Vec<_> = std::fs::read_dir(path)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let read: Result<Vec<Vec<Value>>> = files.iter().map(|file| self::read(file)).collect();
    Ok(read?.concat())
}

/// The API of `plural.group` (or `plural`) at `version`, in `namespace` unless that is empty.
#[must_use]
pub fn resource(client: &Client, resource: &str, version: &str, namespace: &str) -> Api<DynamicObject> {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let kind = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: String::new(),
        plural: plural.to_owned(),
    };
    match namespace {
        "" => Api::all_with(client.clone(), &kind),
        namespace => Api::namespaced_with(client.clone(), namespace, &kind),
    }
}

/// Server-side apply, which also takes definitions above 256 KiB. Where the kind lives is asked of the server. A server
/// that is busy is asked again.
///
/// # Errors
/// What the server refuses, in its words.
pub async fn apply(client: &Client, object: &Value) -> Result<Value> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
    let (found, capabilities) = patiently(async || kube::discovery::pinned_kind(client, &gvk).await).await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &found),
        kube::discovery::Scope::Namespaced => {
            let namespace = Some(text("/metadata/namespace")).filter(|stated| !stated.is_empty()).unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &found)
        }
    };
    let params = PatchParams::apply(MANAGER).force();
    let sent = patiently(async || api.patch(name, &params, &Patch::Apply(object)).await).await;
    let stored = sent.with_context(|| format!("{kind} {name}"))?;
    Ok(serde_json::to_value(stored)?)
}
