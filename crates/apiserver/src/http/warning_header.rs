//! `Warning` headers of responses.

use axum::response::Response;
use http::{HeaderValue, header};

/// Appends a `Warning` header for each warning.
pub(crate) fn append(mut response: Response, warnings: &[String]) -> Response {
    for warning in warnings {
        if let Some(value) = header_value(warning) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// Inserts a `Warning` header before the existing ones.
pub(crate) fn prepend(mut response: Response, warning: &str) -> Response {
    let existing: Vec<HeaderValue> = response.headers().get_all(header::WARNING).iter().cloned().collect();
    if let Some(value) = header_value(warning) {
        response.headers_mut().insert(header::WARNING, value);
        for other in existing {
            response.headers_mut().append(header::WARNING, other);
        }
    }
    response
}

fn header_value(warning: &str) -> Option<HeaderValue> {
    let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("299 - \"{quoted}\"")).ok()
}
