//! Keeps what a Pod has mounted as the objects are that it comes from.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::shared::Shared;
use super::sources::InNamespace;
use super::volumes;
use crate::object;
use crate::watch::Subscription;

/// Brings what is mounted up to date with the objects it comes from, and with the Pod's own labels and annotations.
pub(super) async fn follow(shared: Arc<Shared>, pod: Arc<Value>, folder: PathBuf, mut changes: Subscription) {
    let (namespace, name) = (object::namespace(&pod), object::name(&pod));
    let sources = InNamespace::of(&shared.server, &pod);
    loop {
        match changes.next().await {
            Ok(change) if change.namespace != namespace => continue,
            Ok(change) => match change.resource.as_str() {
                "configmaps" | "secrets" => {}
                "pods" if change.name == name => {}
                _ => continue,
            },
            Err(_missed) => {}
        }
        let current = shared.server.get("pods", namespace, name).filter(|it| object::uid(it) == object::uid(&pod));
        let Some(current) = current else { return };
        // What is gone now stays as it was, as a kubelet leaves it.
        if let Err(error) = volumes::lay_out(&current, &sources, &folder) {
            tracing::debug!(name, %error, "a volume was not brought up to date");
        }
    }
}
