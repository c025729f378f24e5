//! The three error shapes of vLLM: its own, the validation error, and the web framework's `detail`.

use axum::http::StatusCode;
use serde::Serialize;

/// An answer that is an error: status and the `error` object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: u16,
}

impl Failure {
    /// A request vLLM refuses after reading it.
    pub(crate) fn bad_request(param: Option<&str>, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "BadRequestError",
            message: message.into(),
            param: param.map(str::to_owned),
        }
    }

    /// A request vLLM cannot read (its pydantic validation).
    pub(crate) fn validation(location: &str, kind: &str, message: &str, input: &str, context: Option<&str>) -> Self {
        let context = context.map(|error| format!(", 'ctx': {{'error': '{error}'}}")).unwrap_or_default();
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "Bad Request",
            message: format!(
                "1 validation error:\n  {{'type': '{kind}', 'loc': '{location}', 'msg': '{message}', 'input': {input}{context}}}"
            ),
            param: Some(location.to_owned()),
        }
    }

    pub(crate) fn not_json() -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "Bad Request",
            message: "Unsupported Media Type: Only 'application/json' is allowed".to_owned(),
            param: None,
        }
    }

    /// 404 for a model that is not served; `aliases` are the base names.
    pub(crate) fn unknown_model(model: &str, aliases: &[&str]) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "NotFoundError",
            message: format!("The model `{model}` does not exist. Valid aliases: {}.", aliases.join(", ")),
            param: Some("model".to_owned()),
        }
    }

    /// The body.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let error = Inner {
            message: &self.message,
            r#type: self.kind,
            param: self.param.as_deref(),
            code: self.status.as_u16(),
        };
        serde_json::to_vec(&Envelope { error }).unwrap_or_default()
    }
}
