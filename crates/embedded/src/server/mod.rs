//! The API server by function call: what controllers in this process use, and what [`crate::http`] is built on.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use apimachinery::apply::{self, ApplyOptions};
use apimachinery::status::Status;
use serde_json::{Value, json};

use crate::deletion::{self, DeleteOptions, Propagation};
use crate::ports::{Admission, Clock, PodLogs, Ports, Random};
use crate::resources::{Registry, Resource};
use crate::store::{Failure, HISTORY, Key, Scope, Store};
use crate::watch::Subscription;
use crate::write::{Face, Options, Proposal};
use crate::{crd, object};

/// The version that clients are told; kubectl 1.32 to 1.34 are within its skew.
pub const VERSION: &str = "v1.33.4";

/// Field manager of what the controllers here write, as in a real cluster.
const CONTROLLERS: &str = "kube-controller-manager";

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

    /// The object, or `None` when it or its resource does not exist. `namespace` is empty for cluster scope.
    #[must_use]
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let resource = self.registry().by_name(resource)?;
        self.inner.store.get(&key(&resource, namespace, name))
    }

    /// Every object of a resource, by namespace and name; empty if the resource does not exist.
    #[must_use]
    pub fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        let Some(resource) = self.registry().by_name(resource) else { return Vec::new() };
        self.trees(&resource, None)
    }

    /// The same of one namespace.
    #[must_use]
    pub fn list_in(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let Some(resource) = self.registry().by_name(resource) else { return Vec::new() };
        self.trees(&resource, Some(namespace.to_owned()))
    }

    fn trees(&self, resource: &Resource, namespace: Option<String>) -> Vec<Arc<Value>> {
        let scope = Scope { resource: resource.storage.clone(), namespace };
        self.inner.store.list(&scope).objects.iter().map(|(_, object)| object.tree()).collect()
    }

    /// Controllers of this process read these resources all the time: they are kept ready to be read.
    pub(crate) fn keep_ready(&self, resources: &[&str]) {
        resources.iter().for_each(|resource| self.inner.store.hold(resource));
    }

    /// # Errors
    /// As the API answers: 404 for the resource or namespace, 409, 422.
    pub fn create(&self, resource: &str, object: Value) -> Result<Arc<Value>, Status> {
        let resource = self.resource(resource)?;
        let namespace = object::namespace(&object).to_owned();
        Ok(self.create_object(&resource, &namespace, Proposal::Written(object), &controllers())?.object)
    }

    /// Replaces all but the status. A `resourceVersion` in the object must be the current one.
    ///
    /// # Errors
    /// As the API answers: 404, 409, 422.
    pub fn update(&self, resource: &str, object: Value) -> Result<Arc<Value>, Status> {
        self.replace(resource, Face::Main, &object)
    }

    /// Server-side apply without force: makes the object, or of it what `manager` says, and leaves the rest to others.
    ///
    /// # Errors
    /// As the API answers: 404, 422; 409 when somebody else has set one of the fields to another value.
    pub fn apply(&self, resource: &str, object: &Value, manager: &str) -> Result<Arc<Value>, Status> {
        let resource = self.resource(resource)?;
        let (namespace, name) = (object::namespace(object), object::name(object));
        let options = ApplyOptions {
            manager: manager.to_owned(),
            force: false,
            api_version: resource.api_version(),
            subresource: None,
            now: object::time(self.now()),
        };
        let propose = |current: Option<&Value>| {
            Ok(Proposal::Applied(apply::apply(&resource.structure, current, object, &options)?))
        };
        Ok(self.modify(&resource, Face::Main, namespace, name, &controllers(), &propose)?.object)
    }

    /// Replaces the status only. A `resourceVersion` in the object must be the current one.
    ///
    /// # Errors
    /// As the API answers: 404, 409, 422.
    pub fn update_status(&self, resource: &str, object: Value) -> Result<Arc<Value>, Status> {
        self.replace(resource, Face::Status, &object)
    }

    /// Deletes with background propagation. A Pod on a node is only marked; its node removes it.
    ///
    /// # Errors
    /// 404; 409 when `uid` is not the uid of the object.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str, uid: Option<&str>) -> Result<(), Status> {
        self.delete_by_name(resource, namespace, name, uid, None)
    }

    /// The last step of a Pod's deletion, by its node: no grace.
    ///
    /// # Errors
    /// 404; 409 when `uid` is not the uid of the object.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str, uid: Option<&str>) -> Result<(), Status> {
        self.delete_by_name(resource, namespace, name, uid, Some(0))
    }

    /// Every change from now on.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        Subscription::new(&self.inner.store)
    }

    /// Records an Event about `about`; repeats are counted in one Event. `kind` is `Normal` or `Warning`.
    pub fn event(&self, about: &Value, kind: &str, reason: &str, message: &str, component: &str) {
        crate::events::record(self, about, kind, reason, message, component);
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

    fn resource(&self, name: &str) -> Result<Arc<Resource>, Status> {
        self.registry().by_name(name).ok_or_else(Status::no_such_path)
    }

    fn replace(&self, resource: &str, face: Face, object: &Value) -> Result<Arc<Value>, Status> {
        let resource = self.resource(resource)?;
        let (namespace, name) = (object::namespace(object), object::name(object));
        let propose = |_: Option<&Value>| Ok(Proposal::Written(object.clone()));
        Ok(self.modify(&resource, face, namespace, name, &controllers(), &propose)?.object)
    }

    fn delete_by_name(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        grace: Option<i64>,
    ) -> Result<(), Status> {
        let resource = self.resource(resource)?;
        let options = DeleteOptions {
            propagation: Propagation::Background,
            uid: uid.map(str::to_owned),
            grace,
            ..DeleteOptions::default()
        };
        self.delete_object(&resource, namespace, name, &options).map(|_| ())
    }
}

/// Where an object of `resource` is kept.
pub(crate) fn key(resource: &Resource, namespace: &str, name: &str) -> Key {
    let namespace = if resource.namespaced { namespace } else { "" };
    Key { resource: resource.storage.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
}

fn controllers() -> Options {
    Options { manager: CONTROLLERS.to_owned(), ..Options::default() }
}
