//! Errors of requests to the API server.

use crate::error_chain::client_error_text;

/// A request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server rejected the request or was unreachable.
    #[error("failed to {action} {object}: {}", client_error_text(.source))]
    Request {
        /// Verb phrase of the request: `apply`, `delete`, `update the status of`, `create an event for`.
        action: &'static str,
        /// `Kind namespace/name` of the object.
        object: String,
        /// Error of the Kubernetes client.
        #[source]
        source: Box<kube::Error>,
    },
    /// The object was deleted although the cache still contains it, so that nothing was created for it.
    #[error("{object} was deleted")]
    Deleted {
        /// `Kind namespace/name` of the object.
        object: String,
    },
    /// Another client created the object, so it was not modified.
    #[error("{object} was created by another client and is not modified; delete it to let ostler create it")]
    NotOwned {
        /// `Kind namespace/name` of the object.
        object: String,
    },
    /// The installed CustomResourceDefinition is older than this program. The other fields were written.
    #[error(
        "failed to write {} of {object}: the installed CustomResourceDefinition does not declare it; run \
         `ostler crds | kubectl apply --server-side -f -`",
        .fields.join(", ")
    )]
    UndeclaredFields {
        /// `Kind namespace/name` of the object.
        object: String,
        /// Paths of the fields, such as `status.components.engine.nodes`.
        fields: Vec<String>,
    },
}

impl Error {
    /// Returns whether the object changed in the meantime (409) or was deleted: reading it again and retrying resolves the
    /// conflict.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Deleted { .. }) || self.status_code() == Some(409)
    }

    /// Returns whether an object of this name exists already. Other conflicts (409) of a creation, such as that of concurrent
    /// updates of a quota, end by themselves.
    #[must_use]
    pub fn is_already_existing(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "AlreadyExists")
    }

    /// Returns whether the object does not exist (404).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status_code() == Some(404)
    }

    /// Returns whether the namespace of the object is being deleted or does not exist, so that no object can be created in
    /// it.
    #[must_use]
    pub fn is_namespace_deleted(&self) -> bool {
        let Some((status, details)) = self.status().and_then(|status| Some((status, status.details.as_ref()?))) else {
            return false;
        };
        let is_terminating = details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating");
        is_terminating || (status.code == 404 && details.kind == "namespaces")
    }

    /// Returns whether the same request may succeed later: the API server was unreachable, overloaded or failed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.status_code().is_none_or(|code| code == 429 || code >= 500)
    }

    /// Returns the API server's message if it rejected the content of the request (400, 403, 422).
    #[must_use]
    pub fn rejection(&self) -> Option<&str> {
        let status = self.status().filter(|status| matches!(status.code, 400 | 403 | 422))?;
        Some(&status.message)
    }

    /// Returns whether the API server may have rejected a field that the definition of the kind does not declare. For
    /// server-side apply, kube-apiserver reports it as an internal error.
    pub(crate) fn may_reject_fields(&self) -> bool {
        matches!(self.status_code(), Some(400 | 422 | 500))
    }

    fn status_code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// Returns the response of the API server, if the request reached it.
    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Error::Request { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            Error::Deleted { .. } | Error::NotOwned { .. } | Error::UndeclaredFields { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// Responses as kube-apiserver 1.37 sends them.
    #[rstest]
    #[case::terminating(403, json!({"name": "chat", "kind": "services", "causes": [
        {"reason": "NamespaceTerminating", "message": "namespace x is being terminated", "field": "metadata.namespace"}
    ]}), true)]
    #[case::deleted(404, json!({"name": "x", "kind": "namespaces"}), true)]
    #[case::object_not_found(404, json!({"name": "chat", "kind": "services"}), false)]
    #[case::quota(403, json!({"name": "chat", "kind": "services"}), false)]
    fn detects_deleted_namespaces(#[case] code: u16, #[case] details: Value, #[case] expected: bool) {
        let status: Status = serde_json::from_value(json!({"code": code, "details": details})).unwrap();
        let source = Box::new(kube::Error::Api(Box::new(status)));
        let error = Error::Request { action: "apply", object: "Service x/chat".to_owned(), source };
        assert_eq!(error.is_namespace_deleted(), expected);
    }
}
