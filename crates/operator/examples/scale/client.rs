//! Requests to the cluster, and its changes, with the moment they were seen.

use std::path::Path;
use std::time::{Duration, Instant};

use cluster::Kind;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::DynamicObject;
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::Result;

/// Requests at the same time.
pub(crate) const PARALLEL: usize = 16;

#[derive(Clone)]
pub(crate) struct Cluster {
    client: kube::Client,
}

/// Something that happened to an object.
pub(crate) struct Seen {
    pub(crate) at: Instant,
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
        let namespace = text(&object, "/metadata/namespace").to_owned();
        let object: DynamicObject = serde_json::from_value(object)?;
        self.api(kind, &namespace).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    pub(crate) async fn create_all(&self, kind: Kind, objects: Vec<Value>) -> Result<()> {
        stream::iter(objects).map(|object| self.create(kind, object)).buffer_unordered(PARALLEL).try_collect().await
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

    /// The newest revision of everything; each write is one.
    pub(crate) async fn revision(&self) -> Result<u64> {
        let api = self.api(Kind::namespaced("", "v1", "ConfigMap", "configmaps"), "kube-system");
        let list = api.list(&ListParams::default().limit(1)).await?;
        Ok(list.metadata.resource_version.unwrap_or_default().parse()?)
    }

    /// Every change of these kinds from now on.
    pub(crate) async fn follow(&self, kinds: &[Kind]) -> Result<UnboundedReceiver<Seen>> {
        let from = self.revision().await?;
        let (sender, receiver) = mpsc::unbounded_channel();
        for kind in kinds.iter().copied() {
            let api: kube::Api<DynamicObject> = kube::Api::all_with(self.client.clone(), &kind.api_resource());
            tokio::spawn(feed(api, kind, from, sender.clone()));
        }
        Ok(receiver)
    }
}

async fn feed(api: kube::Api<DynamicObject>, kind: Kind, from: u64, sender: UnboundedSender<Seen>) {
    let parameters = WatchParams::default().timeout(290);
    let mut from = from.to_string();
    while let Ok(events) = api.watch(&parameters, &from).await {
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) = event else {
                continue;
            };
            from = object.metadata.resource_version.clone().unwrap_or_default();
            let object = serde_json::to_value(object).unwrap_or_default();
            if sender.send(Seen { at: Instant::now(), kind, object }).is_err() {
                return;
            }
        }
    }
}

/// The next change, or `None` when there is none for so long.
pub(crate) async fn next_within(seen: &mut UnboundedReceiver<Seen>, silence: Duration) -> Option<Seen> {
    tokio::time::timeout(silence, seen.recv()).await.ok().flatten()
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
