//! The API verbs as methods, for the controllers and other callers in this process.

use std::sync::Arc;

use apimachinery::{ApplyOptions, Status, server_side_apply};
use serde_json::Value;

use super::{Server, object_key};
use crate::deletion::{DeleteOptions, PropagationPolicy};
use crate::object;
use crate::resources::Resource;
use crate::store::CollectionKey;
use crate::write::{Proposal, Subresource, WriteOptions};

/// Field manager of the built-in controllers, as in a real cluster.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

impl Server {
    /// Returns an object, or `None` if it or its resource does not exist. `namespace` is empty for cluster-scoped
    /// objects.
    #[must_use]
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let resource = self.registry().by_name(resource)?;
        self.core.store.get(&object_key(&resource, namespace, name))
    }

    /// Returns every object of a resource, ordered by namespace and name; empty if the resource does not exist.
    #[must_use]
    pub fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        let Some(resource) = self.registry().by_name(resource) else { return Vec::new() };
        self.list_objects(&resource, None)
    }

    /// Returns every object of a resource in one namespace, ordered by name.
    #[must_use]
    pub fn list_namespace(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let Some(resource) = self.registry().by_name(resource) else { return Vec::new() };
        self.list_objects(&resource, Some(namespace.to_owned()))
    }

    fn list_objects(&self, resource: &Resource, namespace: Option<String>) -> Vec<Arc<Value>> {
        let scope = CollectionKey { resource: resource.storage.clone(), namespace };
        self.core.store.list(&scope).objects.iter().map(|(_, object)| object.value()).collect()
    }

    /// Creates an object in the namespace named in its metadata.
    ///
    /// # Errors
    /// The errors of the API: 404 for an unknown resource or namespace, 409, 422.
    pub fn create(&self, resource: &str, object: Value) -> Result<Arc<Value>, Status> {
        let resource = self.resource(resource)?;
        let namespace = object::namespace(&object).to_owned();
        Ok(self.create_object(&resource, &namespace, Proposal::Update(object), &controller_options())?.object)
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
        let (namespace, name) = (object::namespace(object), object::name(object));
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
        Ok(self.modify(&resource, Subresource::Main, namespace, name, &controller_options(), &propose)?.object)
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
        crate::events::record(self, subject, kind, reason, message, component);
    }

    fn resource(&self, name: &str) -> Result<Arc<Resource>, Status> {
        self.registry().by_name(name).ok_or_else(Status::path_not_found)
    }

    fn replace(&self, resource: &str, subresource: Subresource, object: &Value) -> Result<Arc<Value>, Status> {
        let resource = self.resource(resource)?;
        let (namespace, name) = (object::namespace(object), object::name(object));
        let propose = |_: Option<&Value>| Ok(Proposal::Update(object.clone()));
        Ok(self.modify(&resource, subresource, namespace, name, &controller_options(), &propose)?.object)
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
}

fn controller_options() -> WriteOptions {
    WriteOptions { manager: CONTROLLER_MANAGER.to_owned(), ..WriteOptions::default() }
}
