//! What can go wrong between us and an API server.

/// A request that failed, with what it was for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or could not be reached.
    #[error("{action} {what}: {source}")]
    Request {
        /// The verb: `apply`, `delete`, `status of`, `event for`.
        action: &'static str,
        /// `Kind namespace/name`.
        what: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Error {
    /// Somebody changed the object first: reading again and repeating will do.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The object is gone.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// The API server's words, if it understood the request and will not have it (400, 403, 422).
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        let Error::Request { source, .. } = self;
        match source.as_ref() {
            kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => Some(&status.message),
            _ => None,
        }
    }

    fn code(&self) -> Option<u16> {
        let Error::Request { source, .. } = self;
        match source.as_ref() {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }
}
