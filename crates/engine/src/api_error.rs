//! Error responses of vLLM: its own errors and pydantic validation errors.

use axum::http::StatusCode;
use serde::Serialize;

/// An error response: HTTP status and the `error` object of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    /// HTTP status, also `code` of the body.
    pub(crate) status: StatusCode,
    /// `type`: vLLM's class of the error.
    pub(crate) error_type: &'static str,
    /// `message`.
    pub(crate) message: String,
    /// `param`: the field of the request that is wrong, if it is one field.
    pub(crate) param: Option<String>,
}

/// Body of an error response.
#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorObject<'a>,
}

/// `error` of the body, in the order of vLLM.
#[derive(Serialize)]
struct ErrorObject<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: u16,
}

// === impl ApiError ===

impl ApiError {
    /// Returns the error for a well-formed request that vLLM rejects.
    pub(crate) fn bad_request(param: Option<&str>, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            error_type: "BadRequestError",
            message: message.into(),
            param: param.map(str::to_owned),
        }
    }

    /// Returns the error for a request that fails vLLM's pydantic validation.
    pub(crate) fn validation(
        location: &str,
        error_type: &str,
        message: &str,
        input: &str,
        context: Option<&str>,
    ) -> Self {
        let context = context.map(|error| format!(", 'ctx': {{'error': '{error}'}}")).unwrap_or_default();
        Self {
            status: StatusCode::BAD_REQUEST,
            error_type: "Bad Request",
            message: format!(
                "1 validation error:\n  {{'type': '{error_type}', 'loc': '{location}', 'msg': '{message}', 'input': {input}{context}}}"
            ),
            param: Some(location.to_owned()),
        }
    }

    /// Returns the error for a request whose content type is not JSON.
    pub(crate) fn unsupported_media_type() -> Self {
        let message = "Unsupported Media Type: Only 'application/json' is allowed".to_owned();
        Self::http(StatusCode::BAD_REQUEST, "Bad Request", message)
    }

    /// Returns the 413 error for a body of more than `limit` bytes.
    pub(crate) fn body_too_large(limit: usize) -> Self {
        let message = format!("The request body is larger than {} MiB.", limit >> 20);
        Self::http(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large", message)
    }

    /// Returns the 408 error for a body that the client stopped sending.
    pub(crate) fn body_timeout() -> Self {
        let message = "Timed out while reading the request body.".to_owned();
        Self::http(StatusCode::REQUEST_TIMEOUT, "Request Timeout", message)
    }

    /// Returns the 503 error for a request while other requests occupy the memory for `part`: `headers` or `bodies`.
    pub(crate) fn out_of_memory(part: &str) -> Self {
        let message = format!("Other requests occupy the memory for request {part}. Try again.");
        Self::http(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable", message)
    }

    /// Returns the 500 error of an engine that has failed.
    pub(crate) fn engine_failure() -> Self {
        let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.".to_owned();
        Self::http(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message)
    }

    /// Returns the 400 error for a body that is shorter than announced.
    pub(crate) fn incomplete_body() -> Self {
        Self::http(StatusCode::BAD_REQUEST, "Bad Request", "The request body ended early.".to_owned())
    }

    /// Returns an error in the form of vLLM's HTTP exceptions, whose type is the phrase of the status.
    fn http(status: StatusCode, error_type: &'static str, message: String) -> Self {
        Self { status, error_type, message, param: None }
    }

    /// Returns the 404 error for a model that is not served; `aliases` are the served names.
    pub(crate) fn model_not_found(model: &str, aliases: &[&str]) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            error_type: "NotFoundError",
            message: format!("The model `{model}` does not exist. Valid aliases: {}.", aliases.join(", ")),
            param: Some("model".to_owned()),
        }
    }

    /// Returns the response body.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let error = ErrorObject {
            message: &self.message,
            r#type: self.error_type,
            param: self.param.as_deref(),
            code: self.status.as_u16(),
        };
        serde_json::to_vec(&ErrorBody { error }).unwrap_or_default()
    }
}
