//! Changes the number of replicas of a workload through its subresource `scale`, which leaves its other fields to their owners.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::namespaced_name::NamespacedName;
use crate::{Error, Kind};

/// The scale of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Desired number of replicas.
    pub replicas: i32,
    /// Number of replicas that exist, with those of an update.
    pub existing: i32,
    /// Label selector of the Pods, such as `app=llama`; empty if the workload states none.
    pub selector: String,
}

/// Sets the number of replicas of a workload to what `desired` returns for the current scale, `None` to leave it. Returns the new number
/// if it was set.
///
/// # Errors
/// A request failed or was rejected; a conflict if the workload changed in between.
pub async fn scale(
    client: &Client,
    kind: Kind,
    key: &NamespacedName,
    manager: &str,
    desired: impl FnOnce(&Scale) -> Option<i32>,
) -> Result<Option<i32>, Error> {
    let failed = |action: &'static str| {
        move |source| Error::Request { action, object: format!("{} {key}", kind.kind), source: Box::new(source) }
    };
    let api = kind.api(client.clone(), &key.namespace);
    let current = api.get_scale(&key.name).await.map_err(failed("read the scale of"))?;
    let status = current.status.unwrap_or_default();
    let scale = Scale {
        replicas: current.spec.and_then(|spec| spec.replicas).unwrap_or_default(),
        existing: status.replicas,
        selector: status.selector.unwrap_or_default(),
    };
    let Some(desired) = desired(&scale) else { return Ok(None) };
    let patch = json!({
        "metadata": {"resourceVersion": current.metadata.resource_version},
        "spec": {"replicas": desired},
    });
    let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    api.patch_scale(&key.name, &parameters, &Patch::Merge(&patch)).await.map_err(failed("scale"))?;
    Ok(Some(desired))
}
