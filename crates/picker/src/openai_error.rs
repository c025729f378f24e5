//! Errors that both frontends return to clients, in the format of the OpenAI API.

use std::borrow::Cow;

use http::{Method, StatusCode};
use http_server::{BodyError, HeadMemoryExhausted};
use serde_json::{Value, json};

use crate::{
    control_fields::UnsupportedField,
    request::{MAX_BODY_BYTES, ScanError},
    routing_error::RoutingError,
};

/// Header that states why a request was not sent to an engine.
const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";

/// An error response to a client. Each frontend encodes it in its own protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenAiError {
    /// HTTP status.
    pub(crate) status: StatusCode,
    /// `error.message`.
    pub(crate) message: Cow<'static, str>,
    /// `error.param`: the field of the request that is wrong.
    pub(crate) param: Option<&'static str>,
    /// `error.code`.
    pub(crate) code: Option<&'static str>,
    /// Headers in addition to `content-type`.
    pub(crate) headers: Vec<(&'static str, &'static str)>,
}

impl OpenAiError {
    /// Returns an error without `param`, `code` and headers.
    fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, message: message.into(), param: None, code: None, headers: Vec::new() }
    }

    /// Returns the error for a path that the gateway does not serve.
    pub(crate) fn unknown_path(method: &Method, path: &str) -> Self {
        let message = format!("Unknown request URL: {method} {path}. Please check the URL for typos.");
        Self { code: Some("unknown_url"), ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    /// Returns the error for a method other than `allowed`.
    pub(crate) fn method_not_allowed(allowed: &'static str) -> Self {
        Self {
            code: Some("method_not_supported"),
            headers: vec![("allow", allowed)],
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("Only {allowed} is allowed for this URL."))
        }
    }

    /// Returns the error for a request that is not valid HTTP, of which the HTTP library has chosen the status.
    pub(crate) fn invalid_http(status: StatusCode) -> Self {
        let message = match status {
            StatusCode::URI_TOO_LONG => "The URL of the request is too long.",
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "The headers of the request are too large or too many.",
            _ => "The request line or a header of the request is not valid HTTP.",
        };
        Self::new(status, message)
    }

    /// Returns the error for a request with no or several `Host` headers, or with one that differs from `:authority`.
    pub(crate) fn invalid_host() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "The request must have exactly one `Host` header, which must equal `:authority` in HTTP/2.",
        )
    }

    /// Returns the error for a client that may not use an endpoint.
    pub(crate) fn forbidden(message: &'static str) -> Self {
        Self { code: Some("forbidden"), ..Self::new(StatusCode::FORBIDDEN, message) }
    }

    /// Returns the error for a request without a valid API key.
    pub(crate) fn invalid_api_key() -> Self {
        let message = "The API key is missing or not valid. Set the header `Authorization: Bearer KEY`.";
        Self {
            code: Some("invalid_api_key"),
            headers: vec![("www-authenticate", "Bearer")],
            ..Self::new(StatusCode::UNAUTHORIZED, message)
        }
    }

    /// Returns the error for a body of more than [`MAX_BODY_BYTES`].
    pub(crate) fn body_too_large() -> Self {
        let message = format!("The request body is larger than {} MiB.", MAX_BODY_BYTES / (1024 * 1024));
        Self { code: Some("request_too_large"), ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, message) }
    }

    /// Returns the error for an engine that did not start to respond in time.
    pub(crate) fn engine_timeout() -> Self {
        let message = "The engine did not respond in time.";
        Self { code: Some("engine_timeout"), ..Self::new(StatusCode::GATEWAY_TIMEOUT, message) }
    }

    /// Returns the error for a request that took longer than its HTTPRoute permits.
    pub(crate) fn route_timeout() -> Self {
        let message = "The request took longer than the timeout of its HTTPRoute.";
        Self { code: Some("route_timeout"), ..Self::new(StatusCode::GATEWAY_TIMEOUT, message) }
    }

    /// Returns the error for a request for which no memory is available.
    fn memory_exhausted(message: &'static str) -> Self {
        Self {
            code: Some("memory_exhausted"),
            headers: vec![("retry-after", "1")],
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }

    /// Returns the error for a request that the engines of its pool could not run in time. `reason` is one of those of the endpoint
    /// picker of gateway-api-inference-extension.
    fn too_many_requests(message: String, reason: &'static str) -> Self {
        Self {
            code: Some("rate_limit_exceeded"),
            headers: vec![("retry-after", "1"), (DROPPED_REASON, reason)],
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, message)
        }
    }

    /// Returns the error for an engine that failed when the request could no longer be sent to another one.
    pub(crate) fn engine_failed() -> Self {
        let message = "The engine failed before it responded.";
        Self { code: Some("engine_failed"), ..Self::new(StatusCode::BAD_GATEWAY, message) }
    }

    /// Returns the error for an engine that failed while it responded.
    pub(crate) fn response_incomplete() -> Self {
        Self { message: "The engine failed before the response was complete.".into(), ..Self::engine_failed() }
    }

    /// Returns the error for a request whose processing panicked.
    pub(crate) fn internal_error() -> Self {
        let message = "The request failed because of an internal error.";
        Self { code: Some("internal_error"), ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, message) }
    }

    /// Returns the error for a body without a model name.
    pub(crate) fn missing_model() -> Self {
        Self { param: Some("model"), ..Self::new(StatusCode::BAD_REQUEST, "You must provide a model parameter.") }
    }

    /// Returns the JSON body of the response.
    pub(crate) fn body(&self) -> Value {
        let error_type = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {"message": self.message, "type": error_type, "param": self.param, "code": self.code}})
    }
}

impl From<BodyError> for OpenAiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { .. } => Self::body_too_large(),
            BodyError::Timeout(_) | BodyError::Paused(_) | BodyError::Stalled => {
                let message = "Timed out while reading the request body.";
                Self { code: Some("request_timeout"), ..Self::new(StatusCode::REQUEST_TIMEOUT, message) }
            }
            BodyError::OutOfMemory(_) => {
                Self::memory_exhausted("Other requests occupy the memory for request bodies. Try again.")
            }
            BodyError::Read(_) => {
                Self::new(StatusCode::BAD_REQUEST, "The request body is incomplete, or its chunks are invalid.")
            }
        }
    }
}

impl From<HeadMemoryExhausted> for OpenAiError {
    fn from(HeadMemoryExhausted: HeadMemoryExhausted) -> Self {
        Self::memory_exhausted("Other requests occupy the memory for request headers. Try again.")
    }
}

impl From<ScanError> for OpenAiError {
    fn from(error: ScanError) -> Self {
        let param = match error {
            ScanError::NotJson(_) => None,
            ScanError::ModelNotString | ScanError::ModelTooLong => Some("model"),
        };
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, format!("{error}.")) }
    }
}

impl From<UnsupportedField> for OpenAiError {
    fn from(error: UnsupportedField) -> Self {
        Self {
            param: Some(error.name),
            code: Some("unsupported_parameter"),
            ..Self::new(StatusCode::BAD_REQUEST, error.to_string())
        }
    }
}

impl From<RoutingError> for OpenAiError {
    fn from(error: RoutingError) -> Self {
        let message = error.to_string();
        match error {
            RoutingError::ModelNotFound(_) | RoutingError::ModelInOtherNamespaces { .. } => Self {
                param: Some("model"),
                code: Some("model_not_found"),
                ..Self::new(StatusCode::NOT_FOUND, message)
            },
            RoutingError::UnresolvedBackend(_) => {
                Self { code: Some("backend_not_found"), ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, message) }
            }
            RoutingError::PoolNotFound(_) => {
                Self { code: Some("pool_not_found"), ..Self::new(StatusCode::NOT_FOUND, message) }
            }
            RoutingError::NoEndpointAvailable(_) => Self {
                code: Some("no_endpoint"),
                headers: vec![("retry-after", "1"), (DROPPED_REASON, "rejected-no-endpoints")],
                ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
            },
            RoutingError::QueueFull(_) => Self::too_many_requests(message, "rejected-saturated"),
            RoutingError::QueueTimeout(_) => Self::too_many_requests(message, "rejected-ttl-expired"),
            RoutingError::ReplacedByPriority(_) => Self::too_many_requests(message, "evicted-priority"),
            RoutingError::ReplacedByFairness(_) => Self::too_many_requests(message, "evicted-queue-pressure"),
        }
    }
}
