//! Why the launcher rejects a request. Each error has a status and a code of its own, so that a controller can distinguish a request
//! that can never succeed from one that needs another instance to be deleted first.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;

/// An error of the REST API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LauncherError {
    #[error("instance {0:?} does not exist")]
    InstanceNotFound(String),
    #[error("instance {0:?} already exists; delete it first or choose another id")]
    InstanceExists(String),
    #[error("the request body has more than {0} bytes")]
    RequestTooLarge(usize),
    /// The request can never succeed. The message has field, cause and remedy.
    #[error("{0}")]
    InvalidRequest(String),
    #[error("gpu_uuids: this node has no GPU {uuid}; it has {known}")]
    UnknownGpu { uuid: String, known: String },
    #[error("failed to list the GPUs of this node: {0}")]
    GpusUnavailable(String),
    #[error("the limit of {0} instances is reached; delete one, or raise --max-instances")]
    TooManyInstances(usize),
    #[error("port {port} is used by instance {instance:?}; delete it, or use another --port")]
    PortInUse { port: u16, instance: String },
    /// The program does not exist, or is not executable.
    #[error(
        "failed to run {program:?}: {cause}; correct `command` of the request, or --engine-command of the launcher"
    )]
    InvalidCommand { program: String, cause: String },
    #[error("failed to start the instance: {0}")]
    StartFailed(String),
    #[error("the launcher is shutting down")]
    ShuttingDown,
    #[error("the processes of instance {0:?} have not ended yet; the launcher continues to kill them")]
    StillRunning(String),
    #[error("revision {requested} is not available; list the instances, and watch from {oldest} to {newest}")]
    RevisionUnavailable { requested: u64, oldest: u64, newest: u64 },
    #[error("Range: {0:?} is not supported; use bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH")]
    InvalidRange(String),
    #[error("failed to read the log: {0}")]
    LogUnreadable(String),
}

// === impl LauncherError ===

impl LauncherError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            LauncherError::InvalidRange(_) => StatusCode::BAD_REQUEST,
            LauncherError::InstanceNotFound(_) => StatusCode::NOT_FOUND,
            LauncherError::InstanceExists(_) => StatusCode::CONFLICT,
            LauncherError::RevisionUnavailable { .. } => StatusCode::GONE,
            LauncherError::RequestTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            LauncherError::InvalidRequest(_)
            | LauncherError::UnknownGpu { .. }
            | LauncherError::InvalidCommand { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            LauncherError::StartFailed(_) | LauncherError::LogUnreadable(_) => StatusCode::INTERNAL_SERVER_ERROR,
            LauncherError::GpusUnavailable(_) | LauncherError::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            LauncherError::StillRunning(_) => StatusCode::GATEWAY_TIMEOUT,
            LauncherError::TooManyInstances(_) | LauncherError::PortInUse { .. } => StatusCode::INSUFFICIENT_STORAGE,
        }
    }

    /// Returns the code in the body of the response.
    pub(super) fn code(&self) -> &'static str {
        match self {
            LauncherError::InstanceNotFound(_) => "InstanceNotFound",
            LauncherError::InstanceExists(_) => "InstanceExists",
            LauncherError::RequestTooLarge(_) => "RequestTooLarge",
            LauncherError::InvalidRequest(_) => "InvalidRequest",
            LauncherError::UnknownGpu { .. } => "UnknownGpu",
            LauncherError::GpusUnavailable(_) => "GpusUnavailable",
            LauncherError::TooManyInstances(_) => "TooManyInstances",
            LauncherError::PortInUse { .. } => "PortInUse",
            LauncherError::InvalidCommand { .. } => "InvalidCommand",
            LauncherError::StartFailed(_) => "StartFailed",
            LauncherError::ShuttingDown => "ShuttingDown",
            LauncherError::StillRunning(_) => "StillRunning",
            LauncherError::RevisionUnavailable { .. } => "RevisionUnavailable",
            LauncherError::InvalidRange(_) => "InvalidRange",
            LauncherError::LogUnreadable(_) => "LogUnreadable",
        }
    }
}

impl IntoResponse for LauncherError {
    /// `detail` is the field of the deployed launcher.
    fn into_response(self) -> Response {
        let body = json!({ "detail": self.to_string(), "code": self.code() });
        (self.status(), Json(body)).into_response()
    }
}
