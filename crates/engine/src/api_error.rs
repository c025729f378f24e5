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
        Self {
            status: StatusCode::BAD_REQUEST,
            error_type: "Bad Request",
            message: "Unsupported Media Type: Only 'application/json' is allowed".to_owned(),
            param: None,
        }
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
