//! State and construction of the API server. [`calls`] provides the API as methods, [`crate::http`] over HTTP.

mod calls;

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;

use crate::ports::{Admission, Clock, PodLogs, Random, ServerPorts};
use crate::resources::{Registry, Resource};
use crate::store::{DEFAULT_HISTORY_SIZE, ObjectKey, StorageFailure, Store};
use crate::watch::Subscription;
use crate::{crd, deletion, object};

/// Kubernetes version reported to clients; kubectl 1.32 to 1.34 are within the supported skew.
pub const KUBERNETES_VERSION: &str = "v1.33.4";

/// Handle to an API server. Clones share one server.
#[derive(Clone)]
pub struct Server {
    pub(crate) core: Arc<Core>,
}

/// State of an API server.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) admission: Arc<dyn Admission>,
    registry: RwLock<Arc<Registry>>,
    logs: RwLock<Option<Arc<dyn PodLogs>>>,
    /// Number of Service addresses allocated so far.
    address_count: AtomicU32,
    /// Time of the last sweep of expired Events, in seconds since the epoch.
    last_event_sweep: AtomicI64,
}

// === impl Server ===

impl Server {
    /// Creates an API server with an empty in-memory store and the standard namespaces and priority classes.
    #[must_use]
    pub fn new(ports: &ServerPorts) -> Self {
        Self::with_history(ports, DEFAULT_HISTORY_SIZE)
    }

    /// Like [`Self::new`], with a history of `revisions` revisions; watch clients that fall further behind must relist.
    #[must_use]
    pub fn with_history(ports: &ServerPorts, revisions: usize) -> Self {
        Self::with_store(ports, Store::new(revisions))
    }

    /// Creates an API server with an existing store, and the standard namespaces and priority classes that are missing.
    #[must_use]
    pub fn with_store(ports: &ServerPorts, store: Store) -> Self {
        let server = Self {
            core: Arc::new(Core {
                store,
                clock: Arc::clone(&ports.clock),
                random: Arc::clone(&ports.random),
                admission: Arc::clone(&ports.admission),
                registry: RwLock::new(Arc::new(Registry::builtin())),
                logs: RwLock::new(None),
                address_count: AtomicU32::new(0),
                last_event_sweep: AtomicI64::new(0),
            }),
        };
        // The creation of every namespaced object reads its Namespace.
        server.cache_resources(&["namespaces"]);
        if server.store().revision() > 0 {
            server.resume();
        }
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            if server.get("namespaces", "", name).is_none()
                && let Err(error) = server.create("namespaces", json!({"metadata": {"name": name}}))
            {
                tracing::error!(name, %error, "failed to create a standard namespace");
            }
        }
        for class in crate::write::admit::priority::system_classes() {
            const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
            if server.get(CLASSES, "", object::name(&class)).is_none()
                && let Err(error) = server.create(CLASSES, class)
            {
                tracing::error!(%error, "failed to create a standard priority class");
            }
        }
        server
    }

    /// Restores the state that is derived from the store: served custom resources and unfinished deletions. Call this
    /// after every rollback of writes.
    pub fn resume(&self) {
        crd::reload_all(self);
        deletion::resume(self);
    }

    /// Waits until every write so far is durable.
    ///
    /// # Errors
    /// If the storage failed.
    pub async fn flush(&self) -> Result<(), Arc<StorageFailure>> {
        self.core.store.wait_durable(self.core.store.epoch()).await
    }

    /// Keeps the parsed objects of these resources in memory, because controllers of this process list them frequently.
    pub fn cache_resources(&self, resources: &[&str]) {
        resources.iter().for_each(|resource| self.core.store.pin_resource(resource));
    }

    /// Subscribes to all changes from now on.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        Subscription::new(&self.core.store)
    }

    /// Sets the source of `kubectl logs`.
    pub fn set_pod_logs(&self, logs: Arc<dyn PodLogs>) {
        *self.core.logs.write().unwrap_or_else(PoisonError::into_inner) = Some(logs);
    }

    /// Returns the API as an HTTP service without TLS and authentication, for example for `kube::Client::new`.
    pub fn router(&self) -> axum::Router {
        crate::http::router(self.clone())
    }

    /// Returns the group resource of a kind, such as `deployments.apps`, or `None` if the kind is not served.
    #[must_use]
    pub fn group_resource(&self, api_version: &str, kind: &str) -> Option<String> {
        Some(self.registry().by_kind(api_version, kind)?.group_resource())
    }

    /// Returns the currently served resources.
    #[must_use]
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.core.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn update_registry(&self, change: impl FnOnce(&mut Registry)) {
        let mut current = self.core.registry.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Registry::clone(&current);
        change(&mut next);
        *current = Arc::new(next);
    }

    pub(crate) fn pod_logs(&self) -> Option<Arc<dyn PodLogs>> {
        self.core.logs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.core.store
    }

    /// Returns the clock of the cluster.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.clock
    }

    /// Returns the source of random names of the cluster.
    #[must_use]
    pub fn random(&self) -> &dyn Random {
        self.core.random.as_ref()
    }

    /// Returns the current time of the clock.
    #[must_use]
    pub fn now(&self) -> jiff::Timestamp {
        self.core.clock.now()
    }

    /// Starts a sweep of expired Events; returns `false` if the last one started less than `interval` seconds ago.
    pub(crate) fn start_event_sweep(&self, interval: i64) -> bool {
        let (now, last) = (self.now().as_second(), self.core.last_event_sweep.load(Ordering::Relaxed));
        now - last >= interval
            && self.core.last_event_sweep.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn next_address_offset(&self) -> u32 {
        self.core.address_count.fetch_add(1, Ordering::Relaxed)
    }
}

/// Returns the store key of an object of `resource`.
pub(crate) fn object_key(resource: &Resource, namespace: &str, name: &str) -> ObjectKey {
    let namespace = if resource.namespaced { namespace } else { "" };
    ObjectKey { resource: resource.storage.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
}
