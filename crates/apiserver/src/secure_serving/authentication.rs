//! Authentication by client certificate or bearer token, and protection against requests from web pages.

use std::sync::Arc;

use apimachinery::Status;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header;
use subtle::ConstantTimeEq as _;

/// Host names accepted in the `Host` header; the server certificate covers them.
const ALLOWED_HOSTS: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "kubernetes.default.svc"];

/// Request extension that marks clients with a certificate signed by the certificate authority.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientCertificate;

/// Rejects requests without a client certificate or token, and requests from web pages, which have an `Origin` header
/// or, after DNS rebinding, another name in `Host`.
pub(super) async fn authenticate(State(token): State<Arc<str>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let has_token =
        headers.get(header::AUTHORIZATION).is_some_and(|value| value.as_bytes().ct_eq(token.as_bytes()).into());
    let has_certificate = request.extensions().get::<ClientCertificate>().is_some();
    if !has_token && !has_certificate {
        return crate::http::status_response(&Status::unauthorized());
    }
    let host = request.uri().host().map(str::to_owned).or_else(|| {
        let host = headers.get(header::HOST)?.to_str().ok()?;
        let port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        Some(port.map_or(host, |(name, _)| name).to_owned())
    });
    let is_allowed_host = host.is_some_and(|host| ALLOWED_HOSTS.contains(&host.as_str()));
    if !is_allowed_host || headers.contains_key(header::ORIGIN) {
        let mut status = Status::unauthorized();
        (status.code, status.reason) = (403, "Forbidden");
        status.message = "requests from web pages and requests for other hosts are forbidden".to_owned();
        return crate::http::status_response(&status);
    }
    next.run(request).await
}
