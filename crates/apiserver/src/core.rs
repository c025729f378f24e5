//! State of the API server. Every layer above the store takes it as `&Core`.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use apimachinery::CaughtPanic;
use serde_json::Value;

use crate::cascade_panics::CascadePanics;
use crate::cpu_threads::CpuThreads;
use crate::ports::{Admission, Clock, PodLogs, Random, ServerPorts};
use crate::resources::definition;
use crate::resources::{CompiledDefinition, Registry, Resource};
use crate::store::{CollectionKey, Store};

/// State of an API server.
pub(crate) struct Core {
    /// The objects.
    pub(crate) store: Store,
    /// Source of timestamps.
    pub(crate) clock: Arc<dyn Clock>,
    /// Source of UIDs and generated names.
    pub(crate) random: Arc<dyn Random>,
    /// Admission control after the built-in plugins.
    pub(crate) admission: Arc<dyn Admission>,
    /// Threads for CPU-heavy requests.
    pub(crate) cpu_threads: CpuThreads,
    /// Steps that follow from writes and panicked.
    pub(crate) cascade_panics: CascadePanics,
    registry: RwLock<Arc<Registry>>,
    /// Held from checking that definitions are the stored ones until their resources are served, so that an older
    /// definition never replaces a newer one.
    serving: Mutex<()>,
    logs: RwLock<Option<Arc<dyn PodLogs>>>,
    /// Number of Service addresses allocated so far.
    address_count: AtomicU32,
    /// Time of the last sweep of expired Events, in seconds since the epoch.
    last_event_sweep: AtomicI64,
}

// === impl Core ===

impl Core {
    /// Returns the state of a server with this store that serves the built-in resources.
    pub(crate) fn new(ports: &ServerPorts, store: Store) -> Self {
        Self::with_registry(ports, store, Arc::new(Registry::builtin()))
    }

    /// Returns the state of an independent server with the same objects and resources.
    pub(crate) fn fork(&self, ports: &ServerPorts) -> Self {
        Self {
            address_count: AtomicU32::new(self.address_count.load(Ordering::Relaxed)),
            last_event_sweep: AtomicI64::new(self.last_event_sweep.load(Ordering::Relaxed)),
            ..Self::with_registry(ports, self.store.fork(), self.registry())
        }
    }

    fn with_registry(ports: &ServerPorts, store: Store, registry: Arc<Registry>) -> Self {
        Self {
            store,
            clock: Arc::clone(&ports.clock),
            random: Arc::clone(&ports.random),
            admission: Arc::clone(&ports.admission),
            cpu_threads: CpuThreads::default(),
            cascade_panics: CascadePanics::default(),
            registry: RwLock::new(registry),
            serving: Mutex::new(()),
            logs: RwLock::new(None),
            address_count: AtomicU32::new(0),
            last_event_sweep: AtomicI64::new(0),
        }
    }

    /// Returns the currently served resources.
    #[must_use]
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reports whether the resources of a definition are served as it is stored.
    pub(crate) fn is_definition_served(&self, name: &str) -> bool {
        self.registry().is_current(name, self.store.get_stored(&definition::key(name)).as_ref())
    }

    /// Serves the resources of a definition as it is stored, or none if it does not exist or is not established.
    /// Returns the panic that prevents serving it.
    pub(crate) fn serve_definition(&self, name: &str) -> Option<CaughtPanic> {
        loop {
            let stored = self.store.get_stored(&definition::key(name));
            if self.registry().is_current(name, stored.as_ref()) {
                return None;
            }
            // Other requests do not wait for the compilation.
            let compiled = stored.as_ref().and_then(CompiledDefinition::new);
            let failure = compiled.as_ref().and_then(|compiled| compiled.failure.clone());
            let _serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
            let is_latest = match (self.store.get_stored(&definition::key(name)), &stored) {
                (Some(latest), Some(stored)) => Arc::ptr_eq(&latest, stored),
                (None, None) => true,
                _ => false,
            };
            if is_latest {
                let mut next = Registry::clone(&self.registry());
                next.remove_definition(name);
                if let Some(compiled) = compiled {
                    next.insert_definition(compiled);
                }
                self.set_registry(next);
                return failure;
            }
        }
    }

    /// Serves the built-in resources and those of all stored definitions that are established. Returns the definitions
    /// that cannot be served because of a panic.
    pub(crate) fn serve_stored_definitions(&self) -> Vec<(Arc<Value>, CaughtPanic)> {
        let _serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        let all_definitions = CollectionKey { resource: definition::STORAGE.to_owned(), namespace: None };
        let mut next = Registry::builtin();
        let mut failures = Vec::new();
        for (_, stored) in self.store.list(&all_definitions).objects {
            if let Some(compiled) = CompiledDefinition::new(&stored) {
                failures.extend(compiled.failure.clone().map(|panic| (stored.value(), panic)));
                next.insert_definition(compiled);
            }
        }
        self.set_registry(next);
        failures
    }

    fn set_registry(&self, next: Registry) {
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }

    /// Returns an object, or `None` if it or its resource does not exist. `namespace` is empty for cluster-scoped
    /// objects.
    #[must_use]
    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let resource = self.registry().by_name(resource)?;
        self.store.get(&resource.object_key(namespace, name))
    }

    /// Returns every object of a resource, ordered by namespace and name; empty if the resource does not exist.
    #[must_use]
    pub(crate) fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        self.registry().by_name(resource).map(|resource| self.list_collection(&resource, None)).unwrap_or_default()
    }

    /// Returns every object of a resource in one namespace, ordered by name.
    #[must_use]
    pub(crate) fn list_namespace(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let Some(resource) = self.registry().by_name(resource) else { return Vec::new() };
        self.list_collection(&resource, Some(namespace.to_owned()))
    }

    fn list_collection(&self, resource: &Resource, namespace: Option<String>) -> Vec<Arc<Value>> {
        let scope = CollectionKey { resource: resource.storage.clone(), namespace };
        self.store.list(&scope).objects.iter().map(|(_, object)| object.value()).collect()
    }

    /// Returns the current time.
    #[must_use]
    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// Returns the source of `kubectl logs`.
    pub(crate) fn pod_logs(&self) -> Option<Arc<dyn PodLogs>> {
        self.logs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the source of `kubectl logs`.
    pub(crate) fn set_pod_logs(&self, logs: Arc<dyn PodLogs>) {
        *self.logs.write().unwrap_or_else(PoisonError::into_inner) = Some(logs);
    }

    /// Returns how many Service addresses were allocated before this call.
    pub(crate) fn next_address_offset(&self) -> u32 {
        self.address_count.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts a sweep of expired Events; returns `false` if the last one started less than `interval` seconds ago.
    pub(crate) fn start_event_sweep(&self, interval: i64) -> bool {
        let (now, last) = (self.now().as_second(), self.last_event_sweep.load(Ordering::Relaxed));
        now.saturating_sub(last) >= interval
            && self.last_event_sweep.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
