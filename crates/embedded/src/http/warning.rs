//! `Warning` headers.

use axum::response::Response;
use http::{HeaderValue, header};

/// The same answer with its `Warning` headers.
pub(crate) fn append(mut response: Response, warnings: &[String]) -> Response {
    for warning in warnings {
        if let Some(value) = value(warning) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// The same answer with one more `Warning` header, before those that it has.
pub(crate) fn prepend(mut response: Response, warning: &str) -> Response {
    let others: Vec<HeaderValue> = response.headers().get_all(header::WARNING).iter().cloned().collect();
    if let Some(value) = value(warning) {
        response.headers_mut().insert(header::WARNING, value);
        for other in others {
            response.headers_mut().append(header::WARNING, other);
        }
    }
    response
}

fn value(warning: &str) -> Option<HeaderValue> {
    let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("299 - \"{quoted}\"")).ok()
}
