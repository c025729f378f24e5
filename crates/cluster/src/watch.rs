//! Keeps the stores fed: one watch per kind, started when the kind is served and ended when it is not.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Kind;
use crate::neighbours::DEFINITIONS;
use crate::stores::{Change, Changes, Key, Stores};

/// Changes that wait for the reader; a slow reader slows the watches down, nothing is lost.
const BUFFER: usize = 256;
/// Objects of one page of a list: a page is in memory as a whole, as trees.
const PAGE: u32 = 100;
/// Definitions are hundreds of times as large as other objects.
const PAGE_OF_DEFINITIONS: u32 = 4;
/// How long the others wait for a kind whose first list failed: one that may not be read must not stop everything. A
/// server that is merely slow is waited for, since what is decided without a list may be decided for good.
const PATIENCE: Duration = Duration::from_secs(10);

struct Running {
    /// When the first list failed, if it did.
    failed: Arc<OnceLock<Instant>>,
    stop: CancellationToken,
}

/// The running watches.
pub struct Watches {
    client: Client,
    stores: Stores,
    changes: mpsc::Sender<Change>,
    running: BTreeMap<Kind, Running>,
    stop: CancellationToken,
}

// === impl Watches ===

impl Watches {
    /// No watch runs yet; changes will arrive at the receiver after the stores hold them.
    #[must_use]
    pub fn new(client: Client, stores: Stores, stop: CancellationToken) -> (Watches, mpsc::Receiver<Change>) {
        let (changes, receiver) = mpsc::channel(BUFFER);
        (Watches { client, stores, changes, running: BTreeMap::new(), stop }, receiver)
    }

    /// Starts the watch of `kind` unless it runs. Returns whether it was started.
    pub fn start(&mut self, kind: Kind) -> bool {
        let api = kube::Api::all_with(self.client.clone(), &kind.api_resource());
        let config = watcher::Config::default();
        self.spawn(kind, api, if kind.labels.is_empty() { config } else { config.labels(kind.labels) })
    }

    /// Starts the watch of one object of a namespaced `kind` unless it runs: of kinds that a cluster has very many of,
    /// or that hold what is not ours to read. Returns whether it was started.
    pub fn start_one(&mut self, kind: Kind, key: &Key) -> bool {
        let api = kind.api(self.client.clone(), &key.namespace);
        self.spawn(kind, api, watcher::Config::default().fields(&format!("metadata.name={}", key.name)))
    }

    /// Starts the watch of a namespaced `kind` in one namespace unless it runs: for who may read no other. Returns whether
    /// it was started.
    pub fn start_in(&mut self, kind: Kind, namespace: &str) -> bool {
        let api = kind.api(self.client.clone(), namespace);
        self.spawn(kind, api, watcher::Config::default())
    }

    fn spawn(&mut self, kind: Kind, api: kube::Api<DynamicObject>, config: watcher::Config) -> bool {
        if self.running.contains_key(&kind) {
            return false;
        }
        let config = config.page_size(if kind == DEFINITIONS { PAGE_OF_DEFINITIONS } else { PAGE });
        let stop = self.stop.child_token();
        let failed = Arc::default();
        self.running.insert(kind, Running { failed: Arc::clone(&failed), stop: stop.clone() });
        tokio::spawn(feed(api, config, kind, self.stores.clone(), self.changes.clone(), failed, stop));
        true
    }

    /// Ends the watch of `kind` and empties its store; what it held is returned as gone.
    #[must_use]
    pub fn end(&mut self, kind: Kind) -> Changes {
        if let Some(running) = self.running.remove(&kind) {
            running.stop.cancel();
        }
        self.stores.forget(kind)
    }

    /// Whether every running watch has its first list, or has failed to get it for 10 seconds.
    #[must_use]
    pub fn settled(&self) -> bool {
        let given_up = |running: &Running| running.failed.get().is_some_and(|since| since.elapsed() >= PATIENCE);
        self.running.iter().all(|(kind, running)| self.stores.synced(*kind) || given_up(running))
    }

    /// Whether `kind` is being watched.
    #[must_use]
    pub fn runs(&self, kind: Kind) -> bool {
        self.running.contains_key(&kind)
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.stop.cancel());
    }
}

async fn feed(
    api: kube::Api<DynamicObject>,
    config: watcher::Config,
    kind: Kind,
    stores: Stores,
    changes: mpsc::Sender<Change>,
    failed: Arc<OnceLock<Instant>>,
    stop: CancellationToken,
) {
    let mut events = pin!(watcher(api, config).default_backoff());
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            Some(Ok(event)) => {
                for change in accept(&stores, kind, event) {
                    if changes.send(change).await.is_err() {
                        return;
                    }
                }
            }
            Some(Err(error)) => {
                failed.get_or_init(Instant::now);
                tracing::warn!(resource = kind.resource(), %error, "watch interrupted, trying again");
            }
            None => return,
        }
    }
}

fn accept(stores: &Stores, kind: Kind, event: watcher::Event<DynamicObject>) -> Changes {
    use watcher::Event;
    let event = match event {
        Event::Apply(object) => Event::Apply(json(object)),
        Event::Delete(object) => Event::Delete(json(object)),
        Event::InitApply(object) => Event::InitApply(json(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    };
    stores.accept(kind, event)
}

/// Metadata are typed on the way in, everything else stays the JSON it was.
fn json(object: DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
