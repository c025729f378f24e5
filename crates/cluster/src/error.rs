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
    /// Another client created the object, so it was not modified.
    #[error("{object} was created by another client and is not modified; delete it to let ostler create it")]
    NotOwned {
        /// `Kind namespace/name` of the object.
        object: String,
    },
}

impl Error {
    /// Returns whether the object changed in the meantime (409): reading it again and retrying resolves the conflict.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.status_code() == Some(409)
    }

    /// Returns whether the object does not exist (404).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status_code() == Some(404)
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
            Error::NotOwned { .. } => None,
        }
    }
}
