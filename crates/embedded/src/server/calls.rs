//! What controllers in this process do with objects: the verbs as functions.

use std::sync::Arc;

use apimachinery::apply::{self, ApplyOptions};
use apimachinery::status::Status;
use serde_json::Value;

use super::{Server, key};
use crate::deletion::{DeleteOptions, Propagation};
use crate::object;
use crate::resources::Resource;
use crate::store::Scope;
use crate::write::{Face, Options, Proposal};

/// Field manager of what the controllers here write, as in a real cluster.
const CONTROLLERS: &str = "kube-controller-manager";

impl Server {
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

    /// Records an Event about `about`; repeats are counted in one Event. `kind` is `Normal` or `Warning`.
    pub fn event(&self, about: &Value, kind: &str, reason: &str, message: &str, component: &str) {
        crate::events::record(self, about, kind, reason, message, component);
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

fn controllers() -> Options {
    Options { manager: CONTROLLERS.to_owned(), ..Options::default() }
}
