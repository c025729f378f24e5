//! Who is let in: whoever shows the certificate or knows the token, and no web page.

use std::sync::Arc;

use apimachinery::status::Status;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header;

/// Names that the certificate is for and the `Host` header may have.
const HOSTS: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "kubernetes.default.svc"];

/// The client showed a certificate of the authority.
#[derive(Debug, Clone, Copy)]
pub(super) struct Certified;

/// Lets in who has the certificate or knows the token, and no web page: a browser sends `Origin`, and a rebound name is in `Host`.
pub(super) async fn guard(State(token): State<Arc<str>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let known = headers.get(header::AUTHORIZATION).is_some_and(|sent| same(sent.as_bytes(), token.as_bytes()));
    let certified = request.extensions().get::<Certified>().is_some();
    if !known && !certified {
        return crate::http::refuse(&Status::unauthorized());
    }
    let host = request.uri().host().map(str::to_owned).or_else(|| {
        let host = headers.get(header::HOST)?.to_str().ok()?;
        let port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        Some(port.map_or(host, |(name, _)| name).to_owned())
    });
    let ours = host.is_some_and(|host| HOSTS.contains(&host.as_str()));
    if !ours || headers.contains_key(header::ORIGIN) {
        let mut status = Status::unauthorized();
        (status.code, status.reason) = (403, "Forbidden");
        status.message = "requests from web pages or for other hosts are not served".to_owned();
        return crate::http::refuse(&status);
    }
    next.run(request).await
}

/// Takes the same time wherever the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
