//! The API server: what it holds and how it starts. [`calls`] is its API by function call, [`crate::http`] that over HTTP.

mod calls;

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;

use crate::ports::{Admission, Clock, PodLogs, Ports, Random};
use crate::resources::{Registry, Resource};
use crate::store::{Failure, HISTORY, Key, Store};
use crate::watch::Subscription;
use crate::{crd, deletion, object};

/// The version that clients are told; kubectl 1.32 to 1.34 are within its skew.
pub const VERSION: &str = "v1.33.4";

/// One API server. Clones are the same server.
#[derive(Clone)]
pub struct Server {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) admission: Arc<dyn Admission>,
    registry: RwLock<Arc<Registry>>,
    logs: RwLock<Option<Arc<dyn PodLogs>>>,
    /// How many Service addresses were handed out.
    addresses: AtomicU32,
    /// When old Events were last looked for, in seconds.
    swept: AtomicI64,
}

// === impl Server ===

impl Server {
    /// An empty cluster with the namespaces that every cluster has.
    #[must_use]
    pub fn new(ports: &Ports) -> Self {
        Self::with_history(ports, HISTORY)
    }

    /// As [`Self::new`], with a history of so many revisions: who falls behind further has to list again.
    #[must_use]
    pub fn with_history(ports: &Ports, revisions: usize) -> Self {
        Self::on(ports, Store::new(revisions))
    }

    /// The cluster that a store holds; the namespaces and priority classes that every cluster has are made if they are not
    /// there.
    #[must_use]
    pub fn on(ports: &Ports, store: Store) -> Self {
        let server = Self {
            inner: Arc::new(Inner {
                store,
                clock: Arc::clone(&ports.clock),
                random: Arc::clone(&ports.random),
                admission: Arc::clone(&ports.admission),
                registry: RwLock::new(Arc::new(Registry::builtin())),
                logs: RwLock::new(None),
                addresses: AtomicU32::new(0),
                swept: AtomicI64::new(0),
            }),
        };
        // Every write looks at its namespace.
        server.keep_ready(&["namespaces"]);
        if server.store().revision() > 0 {
            server.resume();
        }
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            if server.get("namespaces", "", name).is_none()
                && let Err(error) = server.create("namespaces", json!({"metadata": {"name": name}}))
            {
                tracing::error!(name, %error, "a namespace of every cluster was refused");
            }
        }
        for class in crate::write::admit::priority::system_classes() {
            const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
            if server.get(CLASSES, "", object::name(&class)).is_none()
                && let Err(error) = server.create(CLASSES, class)
            {
                tracing::error!(%error, "a priority class of every cluster was refused");
            }
        }
        server
    }

    /// Makes what is not stored fit what is: the resources that are served, and deletions that were begun. To be done
    /// after everything that undoes writes.
    pub fn resume(&self) {
        crd::reload(self);
        deletion::resume(self);
    }

    /// Waits until every write is durable.
    ///
    /// # Errors
    /// When the newest could not be written.
    pub async fn flush(&self) -> Result<(), Arc<Failure>> {
        self.inner.store.durable(self.inner.store.since_now()).await
    }

    /// Controllers of this process read these resources all the time: they are kept ready to be read.
    pub(crate) fn keep_ready(&self, resources: &[&str]) {
        resources.iter().for_each(|resource| self.inner.store.hold(resource));
    }

    /// Every change from now on.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        Subscription::new(&self.inner.store)
    }

    /// Tells where `kubectl logs` reads.
    pub fn set_logs(&self, logs: Arc<dyn PodLogs>) {
        *self.inner.logs.write().unwrap_or_else(PoisonError::into_inner) = Some(logs);
    }

    /// The whole API over HTTP, without TLS or authentication: the service for `kube::Client::new`.
    pub fn router(&self) -> axum::Router {
        crate::http::router(self.clone())
    }

    /// The resources served at this moment.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.inner.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn change_registry(&self, change: impl FnOnce(&mut Registry)) {
        let mut current = self.inner.registry.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Registry::clone(&current);
        change(&mut next);
        *current = Arc::new(next);
    }

    pub(crate) fn logs(&self) -> Option<Arc<dyn PodLogs>> {
        self.inner.logs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.inner.clock.now()
    }

    /// Whether it is so many seconds since this was last true.
    pub(crate) fn is_time_to_sweep(&self, every: i64) -> bool {
        let (now, last) = (self.now().as_second(), self.inner.swept.load(Ordering::Relaxed));
        now - last >= every
            && self.inner.swept.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn count_address(&self) -> u32 {
        self.inner.addresses.fetch_add(1, Ordering::Relaxed)
    }
}

/// Where an object of `resource` is kept.
pub(crate) fn key(resource: &Resource, namespace: &str, name: &str) -> Key {
    let namespace = if resource.namespaced { namespace } else { "" };
    Key { resource: resource.storage.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
}
