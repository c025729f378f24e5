//! Writes to objects that are not applied as a whole, such as Pods that other clients own in part: each concerns one version of one
//! object, and is rejected if the object was recreated or changed.
//!
//! The responses are observed by the caches, so that the next decision does not read an outdated object.

use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, ValidationDirective};
use serde_json::{Value, json};

use crate::namespaced_name::NamespacedName;
use crate::object::kind_and_name;
use crate::stores::Stores;
use crate::{Error, Kind};

/// Writes single versions of objects.
#[derive(Clone)]
pub struct GuardedWriter {
    client: Client,
    stores: Stores,
    manager: &'static str,
}

/// One version of an object: the precondition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion {
    /// Namespace and name.
    pub key: NamespacedName,
    /// UID: an object of the same name that was created later is not changed.
    pub uid: String,
    /// Resource version; absent if a change since does not matter.
    pub resource_version: Option<String>,
}

// === impl GuardedWriter ===

impl GuardedWriter {
    /// Returns a writer whose responses `stores` observe.
    #[must_use]
    pub fn new(client: Client, stores: Stores, manager: &'static str) -> GuardedWriter {
        GuardedWriter { client, stores, manager }
    }

    /// Creates `object`. The API server rejects fields that it does not know and duplicate ones, with their paths.
    ///
    /// # Errors
    /// The request failed or was rejected; a conflict if an object with this name exists.
    pub async fn create(&self, kind: Kind, object: &Value) -> Result<(), Error> {
        let failed = |source| request_error("create", kind_and_name(object), source);
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let parameters = PostParams { field_manager: Some(self.manager.to_owned()), ..PostParams::default() };
        let body = object.to_string().into_bytes();
        let resource = kube::core::Request::new(kind.api(self.client.clone(), namespace).resource_url());
        let request = resource.create(&parameters, body).map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        let request = with_strict_validation(request).map_err(failed)?;
        let created: Value = self.client.request(request).await.map_err(failed)?;
        self.stores.observe_creation(kind, created);
        Ok(())
    }

    /// Applies a JSON merge patch to one version of an object, and returns the resource version after it.
    ///
    /// # Errors
    /// The request failed or was rejected; a conflict if the object changed since or was recreated.
    pub async fn merge(&self, kind: Kind, version: &ObjectVersion, patch: &Value) -> Result<String, Error> {
        let mut patch = patch.clone();
        patch["metadata"]["uid"] = json!(version.uid);
        if let Some(resource_version) = &version.resource_version {
            patch["metadata"]["resourceVersion"] = json!(resource_version);
        }
        let parameters = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let api = kind.api(self.client.clone(), &version.key.namespace);
        let response = api.patch(&version.key.name, &parameters, &Patch::Merge(patch)).await;
        let object = response.map_err(|source| self.write_error("patch", kind, version, source))?;
        let resource_version = object.metadata.resource_version.clone().unwrap_or_default();
        self.stores.observe_write(kind, serde_json::to_value(object).unwrap_or_default());
        Ok(resource_version)
    }

    /// Deletes one version of an object. Without `grace_seconds`, its own grace period applies.
    ///
    /// # Errors
    /// The request failed or was rejected; a conflict if the object changed since or was recreated.
    pub async fn delete(&self, kind: Kind, version: &ObjectVersion, grace_seconds: Option<u32>) -> Result<(), Error> {
        let preconditions =
            Preconditions { uid: Some(version.uid.clone()), resource_version: version.resource_version.clone() };
        let parameters = DeleteParams {
            preconditions: Some(preconditions),
            grace_period_seconds: grace_seconds,
            ..DeleteParams::default()
        };
        let api = kind.api(self.client.clone(), &version.key.namespace);
        let response = api.delete(&version.key.name, &parameters).await;
        let response = response.map_err(|source| self.write_error("delete", kind, version, source))?;
        if let Some(object) = response.left() {
            self.stores.observe_write(kind, serde_json::to_value(object).unwrap_or_default());
        }
        Ok(())
    }

    /// Returns the error of a write. An object that does not exist is removed from the caches if only they contain it.
    fn write_error(&self, action: &'static str, kind: Kind, version: &ObjectVersion, source: kube::Error) -> Error {
        let error = request_error(action, format!("{} {}", kind.kind, version.key), source);
        if error.is_not_found() {
            self.stores.observe_absence(kind, &version.key);
        }
        error
    }
}

fn request_error(action: &'static str, object: String, source: kube::Error) -> Error {
    Error::Request { action, object, source: Box::new(source) }
}

/// Adds the parameter with which the API server rejects unknown and duplicate fields, which `PostParams` lacks.
fn with_strict_validation(request: http::Request<Vec<u8>>) -> Result<http::Request<Vec<u8>>, kube::Error> {
    let (mut head, body) = request.into_parts();
    let separator = if head.uri.query().is_some_and(|query| !query.is_empty()) { "&" } else { "?" };
    let uri = head.uri.to_string();
    let uri = format!("{}{separator}fieldValidation=Strict", uri.trim_end_matches(['?', '&']));
    head.uri = uri.parse().map_err(|error| kube::Error::HttpError(http::Error::from(error)))?;
    Ok(http::Request::from_parts(head, body))
}
