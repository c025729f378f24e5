//! The API server as a Rust type: construction, and the verbs of the API as methods for callers in this process.
//! [`crate::http`] serves the API over HTTP.

use std::sync::Arc;

use apimachinery::{ApplyOptions, CaughtPanic, Status, object, server_side_apply};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::core::Core;
use crate::cpu_threads::CpuThreads;
use crate::deletion::{self, DeleteOptions, DeleteResult, Deletion, DeletionCheck, PropagationPolicy};
use crate::ports::{Clock, PodLogs, Random, ServerPorts};
use crate::resources::{Registry, Resource};
use crate::store::{DEFAULT_HISTORY_SIZE, StorageFailure, Store};
use crate::watch::Subscription;
use crate::write::{self, Proposal, ProposeFn, Subresource, WriteOptions, WriteRequest, WriteResult, priority_class};
use crate::{binding, cascade, events};

/// Handle to an API server. Clones share one server.
#[derive(Clone)]
pub struct Server {
    core: Arc<Core>,
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
        let server = Self { core: Arc::new(Core::new(ports, store)) };
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
        for class in priority_class::system_classes() {
            const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
            if server.get(CLASSES, "", object::name(&class)).is_none()
                && let Err(error) = server.create(CLASSES, class)
            {
                tracing::error!(%error, "failed to create a standard priority class");
            }
        }
        server
    }

    /// Returns an independent server in memory with the same objects at the same revision, without the history that watches
    /// read. Unlike the start with an existing store, it compiles no definition. No deletion of this server must be in
    /// progress.
    #[must_use]
    pub fn fork(&self, ports: &ServerPorts) -> Self {
        Self { core: Arc::new(self.core.fork(ports)) }
    }

    /// Restores the state that is derived from the store: served custom resources and unfinished deletions.
    pub(crate) fn resume(&self) {
        cascade::resume(&self.core);
    }

    /// Restores the state that is derived from the store whenever the store has rolled back writes that it could not
    /// persist, until `stop`.
    pub async fn resume_after_rollbacks(&self, stop: CancellationToken) {
        cascade::resume_after_rollbacks(&self.core, stop).await;
    }

    /// Repeats the steps of deletions that panicked, with increasing delays, until `stop`.
    pub async fn retry_deletions(&self, stop: CancellationToken) {
        cascade::run_retries(&self.core, stop).await;
    }

    /// Waits until every write so far is durable.
    ///
    /// # Errors
    /// If the storage failed.
    pub async fn flush(&self) -> Result<(), Arc<StorageFailure>> {
        self.core.store.wait_durable(self.core.store.epoch()).await
    }

    /// Lets other tasks of this thread continue, and waits while the journal is behind.
    /// Tasks of this process call it before a write, because they do not wait until their writes are durable.
    /// Cancel-safe.
    pub async fn before_write(&self) {
        tokio::task::yield_now().await;
        if self.core.store.is_journal_behind() {
            // After a failure, nothing is queued.
            let _ = self.flush().await;
        }
    }

    /// Waits until the storage has failed in a way that retries cannot repair. A full disk is no such failure.
    pub async fn storage_failed(&self) -> StorageFailure {
        self.core.store.failed().await
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

    /// Returns the group resource of a kind, such as `deployments.apps`, or `None` if the kind is not served.
    #[must_use]
    pub fn group_resource(&self, api_version: &str, kind: &str) -> Option<String> {
        Some(self.registry().by_kind(api_version, kind)?.group_resource())
    }

    /// Returns an object, or `None` if it or its resource does not exist. `namespace` is empty for cluster-scoped
    /// objects.
    #[must_use]
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.core.get(resource, namespace, name)
    }

    /// Returns every object of a resource, ordered by namespace and name; empty if the resource does not exist.
    #[must_use]
    pub fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        self.core.list(resource)
    }

    /// Returns every object of a resource in one namespace, ordered by name.
    #[must_use]
    pub fn list_namespace(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        self.core.list_namespace(resource, namespace)
    }

    /// Creates an object in the namespace named in its metadata.
    ///
    /// # Errors
    /// The errors of the API: 404 for an unknown resource or namespace, 409, 422.
    pub fn create(&self, resource: &str, object: Value) -> Result<Arc<Value>, Status> {
        let resource = self.resource(resource)?;
        let namespace = object::namespace(&object).to_owned();
        Ok(self
            .create_object(&resource, &namespace, Proposal::Update(object), &WriteOptions::controller_manager())?
            .object)
    }

    /// Replaces an object except its status. A `resourceVersion` in the object must be the current one.
    ///
    /// # Errors
    /// The errors of the API: 404, 409, 422.
    pub fn update(&self, resource: &str, object: Value) -> Result<Arc<Value>, Status> {
        self.replace(resource, Subresource::Main, &object)
    }

    /// Applies an object with server-side apply, without force.
    ///
    /// # Errors
    /// The errors of the API: 404, 422; 409 if another manager owns one of the fields with another value.
    pub fn apply(&self, resource: &str, object: &Value, manager: &str) -> Result<Arc<Value>, Status> {
        let resource = self.resource(resource)?;
        let options = ApplyOptions {
            manager: manager.to_owned(),
            force: false,
            api_version: resource.api_version(),
            subresource: None,
            now: object::format_time(self.now()),
        };
        let propose = |current: Option<&Value>| {
            Ok(Proposal::Apply(server_side_apply(&resource.merge_schema, current, object, &options)?))
        };
        self.modify_as_controller(&resource, Subresource::Main, object, &propose)
    }

    /// Replaces the status of an object. A `resourceVersion` in the object must be the current one.
    ///
    /// # Errors
    /// The errors of the API: 404, 409, 422.
    pub fn update_status(&self, resource: &str, object: Value) -> Result<Arc<Value>, Status> {
        self.replace(resource, Subresource::Status, &object)
    }

    /// Deletes an object with background propagation. A Pod bound to a node is only marked for deletion; the node agent
    /// removes it.
    ///
    /// # Errors
    /// 404 if the object does not exist; 409 if `uid` is not its UID.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str, uid: Option<&str>) -> Result<(), Status> {
        self.delete_by_name(resource, namespace, name, uid, None)
    }

    /// Deletes an object with a grace period of 0, as the node agent does once the containers of a Pod have stopped.
    ///
    /// # Errors
    /// 404 if the object does not exist; 409 if `uid` is not its UID.
    pub fn force_delete(&self, resource: &str, namespace: &str, name: &str, uid: Option<&str>) -> Result<(), Status> {
        self.delete_by_name(resource, namespace, name, uid, Some(0))
    }

    /// Records an Event about the object `subject`, or increments the count if the same Event already exists.
    /// `kind` is `Normal` or `Warning`.
    pub fn record_event(&self, subject: &Value, kind: &str, reason: &str, message: &str, component: &str) {
        events::record(&self.core, subject, kind, reason, message, component);
    }

    /// Logs a panic of a component that processed `subject`, and records it as a Warning Event of `subject`.
    pub fn report_panic(&self, subject: &Value, panic: &CaughtPanic, component: &str) {
        events::report_panic(&self.core, subject, panic, component, "It retries with increasing delays.");
    }

    fn resource(&self, name: &str) -> Result<Arc<Resource>, Status> {
        self.registry().by_name(name).ok_or_else(Status::path_not_found)
    }

    fn replace(&self, resource: &str, subresource: Subresource, object: &Value) -> Result<Arc<Value>, Status> {
        let resource = self.resource(resource)?;
        self.modify_as_controller(&resource, subresource, object, &|_| Ok(Proposal::Update(object.clone())))
    }

    fn modify_as_controller(
        &self,
        resource: &Arc<Resource>,
        subresource: Subresource,
        object: &Value,
        propose: ProposeFn<'_>,
    ) -> Result<Arc<Value>, Status> {
        let options = WriteOptions::controller_manager();
        let request = WriteRequest { resource, subresource, namespace: object::namespace(object), options: &options };
        Ok(self.modify(&request, object::name(object), propose)?.object)
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
            propagation: PropagationPolicy::Background,
            uid: uid.map(str::to_owned),
            grace_period_seconds: grace,
            ..DeleteOptions::default()
        };
        self.delete_object(&resource, namespace, name, &options).map(|_| ())
    }

    /// Binds a Pod to a node.
    ///
    /// # Errors
    /// 404 if the Pod does not exist; 409 if it is already bound, is being deleted, or has scheduling gates.
    pub fn bind(&self, namespace: &str, name: &str, node: &str) -> Result<Arc<Value>, Status> {
        binding::bind(&self.core, namespace, name, node)
    }

    /// Creates an object with everything that follows from it. If only `generateName` is set, the server generates the
    /// name.
    pub(crate) fn create_object(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        proposal: Proposal,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let request = WriteRequest { resource, subresource: Subresource::Main, namespace, options };
        Ok(self.with_consequences(write::create(&self.core, &request, proposal)?))
    }

    /// Updates an object with everything that follows from it. `propose` computes the new object and is called again
    /// after a conflict.
    ///
    /// # Errors
    /// 404 if the object does not exist and the write does not create it, 409 on a conflict, 422 if the object is
    /// invalid, and the errors of `propose`.
    pub(crate) fn modify(
        &self,
        request: &WriteRequest<'_>,
        name: &str,
        propose: ProposeFn<'_>,
    ) -> Result<WriteResult, Status> {
        Ok(self.with_consequences(write::modify(&self.core, request, name, propose)?))
    }

    /// Deletes an object with everything that follows from it.
    ///
    /// # Errors
    /// 404 if the object does not exist, 403 if admission rejects the deletion, 409 if a precondition fails.
    pub(crate) fn delete_object(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        let deletion = deletion::delete(&self.core, resource, namespace, name, options)?;
        Ok(self.with_consequences_of_deletion(deletion))
    }

    /// Deletes an object with everything that follows from it if `check` allows it; returns `None` otherwise.
    ///
    /// # Errors
    /// Those of [`Self::delete_object`] and of `check`.
    pub(crate) fn delete_object_if(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        check: DeletionCheck<'_>,
    ) -> Result<Option<DeleteResult>, Status> {
        let deletion = deletion::delete_if(&self.core, resource, namespace, name, options, check)?;
        Ok(deletion.map(|deletion| self.with_consequences_of_deletion(deletion)))
    }

    fn with_consequences_of_deletion(&self, deletion: Deletion) -> DeleteResult {
        let Some(committed) = deletion.committed else { return deletion.result };
        let key = committed.key.clone();
        cascade::run(&self.core, committed);
        match deletion.result {
            // The object may have been removed, or has changed, with its dependents or contents.
            DeleteResult::Terminating(marked) => match self.core.store.get(&key) {
                Some(remaining) => DeleteResult::Terminating(remaining),
                None => DeleteResult::Removed(marked),
            },
            removed @ DeleteResult::Removed(_) => removed,
        }
    }

    fn with_consequences(&self, mut result: WriteResult) -> WriteResult {
        if let Some(committed) = result.committed.take() {
            cascade::run(&self.core, committed);
        }
        result
    }

    /// Returns the source of `kubectl logs`.
    pub(crate) fn pod_logs(&self) -> Option<Arc<dyn PodLogs>> {
        self.core.pod_logs()
    }

    /// Sets the source of `kubectl logs`.
    pub fn set_pod_logs(&self, logs: Arc<dyn PodLogs>) {
        self.core.set_pod_logs(logs);
    }

    /// Returns the currently served resources.
    #[must_use]
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.core.registry()
    }

    /// Serves the resources of a definition that another request has just stored.
    pub(crate) fn serve_definition(&self, name: &str) {
        // Its reconciliation reports the panic.
        let _ = self.core.serve_definition(name);
    }

    /// Reports whether the resources of a definition are served as it is stored.
    pub(crate) fn is_definition_served(&self, name: &str) -> bool {
        self.core.is_definition_served(name)
    }

    /// Returns the threads for CPU-heavy requests.
    pub(crate) fn cpu_threads(&self) -> &CpuThreads {
        &self.core.cpu_threads
    }

    /// Returns the object store.
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
        self.core.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "default"}})
    }

    fn definition() -> Value {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({"metadata": {"name": "shirts.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "shirts", "singular": "shirt", "kind": "Shirt", "listKind": "ShirtList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
    }

    #[tokio::test]
    async fn fork_serves_the_same_objects_and_changes_independently() {
        let server = Server::new(&ServerPorts::default());
        server.create("customresourcedefinitions.apiextensions.k8s.io", definition()).unwrap();
        server.create("shirts.example.com", config_map("shared")).unwrap();
        let fork = server.fork(&ServerPorts::default());
        let mut changes = fork.subscribe();
        assert_eq!(fork.list("shirts.example.com"), server.list("shirts.example.com"));
        let created = fork.create("shirts.example.com", config_map("forked")).unwrap();
        assert_eq!(object::resource_version(&created), (server.store().revision() + 1).to_string());
        assert_eq!(changes.next().await.unwrap().name, "forked", "the first change is that of the fork");
        fork.delete("shirts.example.com", "default", "shared", None).unwrap();
        fork.delete("customresourcedefinitions.apiextensions.k8s.io", "", "shirts.example.com", None).unwrap();
        assert_eq!(fork.group_resource("example.com/v1", "Shirt"), None);
        assert_eq!(server.list("shirts.example.com").len(), 1);
        server.create("shirts.example.com", config_map("original")).unwrap();
    }

    #[test]
    fn watches_of_a_fork_start_at_its_revision() {
        let server = Server::new(&ServerPorts::default());
        let fork = server.fork(&ServerPorts::default());
        let revision = server.store().revision();
        assert!(fork.store().check_revision(revision).is_ok() && fork.store().check_revision(revision - 1).is_err());
    }
}
