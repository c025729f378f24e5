//! Updates mounted volumes when their objects change.

use std::path::PathBuf;
use std::sync::Arc;

use apimachinery::{catch_panic, object};
use apiserver::Subscription;
use serde_json::Value;

use crate::context::NodeContext;
use crate::sources::NamespaceSources;
use crate::volumes;

/// Updates the volumes when a ConfigMap or Secret of the namespace, or the labels or annotations of the Pod, change.
pub(crate) async fn update_volumes(
    context: Arc<NodeContext>,
    pod: Arc<Value>,
    pod_dir: PathBuf,
    mut changes: Subscription,
) {
    let (namespace, name) = (object::namespace(&pod), object::name(&pod));
    let sources = NamespaceSources::new(&context.server, &pod);
    loop {
        match changes.next().await {
            Ok(change) if change.namespace != namespace => continue,
            Ok(change) => match change.resource.as_str() {
                "configmaps" | "secrets" => {}
                "pods" if change.name == name => {}
                _ => continue,
            },
            Err(_lagged) => {}
        }
        let current =
            context.server.get("pods", namespace, name).filter(|stored| object::uid(stored) == object::uid(&pod));
        let Some(current) = current else { return };
        // As in the kubelet, a volume whose object was deleted keeps its content.
        match catch_panic(|| volumes::set_up(&current, &sources, &pod_dir)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(name, %error, "failed to update a volume"),
            // The next change is another attempt.
            Err(panic) => tracing::error!(namespace, name, %panic, "failed to update the volumes of a Pod"),
        }
    }
}
