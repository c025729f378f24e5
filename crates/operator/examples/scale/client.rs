//! Client of the cluster that records when changes are observed.

use std::path::Path;
use std::time::{Duration, Instant};

use cluster::Kind;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::DynamicObject;
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::result::Result;

/// Maximum number of concurrent requests.
pub(crate) const MAX_CONCURRENT_REQUESTS: usize = 16;

#[derive(Clone)]
pub(crate) struct Cluster {
    client: kube::Client,
}

/// An observed change of an object.
pub(crate) struct ObservedChange {
    pub(crate) observed_at: Instant,
    pub(crate) kind: Kind,
    pub(crate) object: Value,
}

// === impl Cluster ===

impl Cluster {
    pub(crate) async fn connect(kubeconfig: &Path) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Self { client: kube::Client::try_from(config)? })
    }

    fn api(&self, kind: Kind, namespace: &str) -> kube::Api<DynamicObject> {
        kind.api(self.client.clone(), namespace)
    }

    pub(crate) async fn create(&self, kind: Kind, object: Value) -> Result<()> {
        let namespace = string_at(&object, "/metadata/namespace").to_owned();
        let object: DynamicObject = serde_json::from_value(object)?;
        self.api(kind, &namespace).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    pub(crate) async fn create_all(&self, kind: Kind, objects: Vec<Value>) -> Result<()> {
        stream::iter(objects)
            .map(|object| self.create(kind, object))
            .buffer_unordered(MAX_CONCURRENT_REQUESTS)
            .try_collect()
            .await
    }

    pub(crate) async fn patch(&self, kind: Kind, namespace: &str, name: &str, patch: &Value) -> Result<()> {
        self.api(kind, namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub(crate) async fn patch_status(&self, kind: Kind, namespace: &str, name: &str, status: &Value) -> Result<()> {
        let patch = serde_json::json!({"status": status});
        self.api(kind, namespace).patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Returns the current resource version of the cluster; each write increments it by one.
    pub(crate) async fn resource_version(&self) -> Result<u64> {
        let api = self.api(Kind::namespaced("", "v1", "ConfigMap", "configmaps"), "kube-system");
        let list = api.list(&ListParams::default().limit(1)).await?;
        Ok(list.metadata.resource_version.unwrap_or_default().parse()?)
    }

    /// Watches these kinds, starting at the current resource version.
    pub(crate) async fn watch(&self, kinds: &[Kind]) -> Result<UnboundedReceiver<ObservedChange>> {
        let resource_version = self.resource_version().await?;
        let (sender, receiver) = mpsc::unbounded_channel();
        for kind in kinds.iter().copied() {
            let api: kube::Api<DynamicObject> = kube::Api::all_with(self.client.clone(), &kind.api_resource());
            tokio::spawn(forward_events(api, kind, resource_version, sender.clone()));
        }
        Ok(receiver)
    }
}

async fn forward_events(
    api: kube::Api<DynamicObject>,
    kind: Kind,
    resource_version: u64,
    sender: UnboundedSender<ObservedChange>,
) {
    let parameters = WatchParams::default().timeout(290);
    let mut resource_version = resource_version.to_string();
    while let Ok(events) = api.watch(&parameters, &resource_version).await {
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) = event else {
                continue;
            };
            resource_version = object.metadata.resource_version.clone().unwrap_or_default();
            let object = serde_json::to_value(object).unwrap_or_default();
            if sender.send(ObservedChange { observed_at: Instant::now(), kind, object }).is_err() {
                return;
            }
        }
    }
}

/// Returns the next change, or `None` after `timeout` without a change.
pub(crate) async fn next_change(
    changes: &mut UnboundedReceiver<ObservedChange>,
    timeout: Duration,
) -> Option<ObservedChange> {
    tokio::time::timeout(timeout, changes.recv()).await.ok().flatten()
}

pub(crate) fn string_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
