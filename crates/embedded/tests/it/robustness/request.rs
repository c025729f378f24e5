//! Requests of the tests and the check of their responses.

use axum::body::Body;
use embedded::Server;
use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt;

pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(super) const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";

/// A request that may not be valid HTTP.
#[derive(Debug, Clone)]
pub(super) struct Request {
    method: &'static str,
    uri: String,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Request {
    pub(super) fn new(
        method: &'static str,
        uri: impl Into<String>,
        content_type: &'static str,
        body: impl Into<Vec<u8>>,
    ) -> Self {
        Self { method, uri: uri.into(), content_type, body: body.into() }
    }

    pub(super) fn json(method: &'static str, uri: impl Into<String>, body: &Value) -> Self {
        Self::new(method, uri, "application/json", body.to_string())
    }

    /// Sends the request and checks the response. Returns `false` if the request is not valid HTTP.
    pub(super) fn send(&self, server: &Server) -> Result<bool, TestCaseError> {
        let Some((code, body)) = self.response(server) else { return Ok(false) };
        check_response(code, &body)?;
        Ok(true)
    }

    /// Returns status code and body of the response, or `None` if the request is not valid HTTP.
    pub(super) fn response(&self, server: &Server) -> Option<(u16, Vec<u8>)> {
        let request = http::Request::builder().method(self.method).uri(&self.uri);
        let request = request.header("Content-Type", self.content_type).body(Body::from(self.body.clone())).ok()?;
        futures::executor::block_on(async {
            let response = embedded::router(server).oneshot(request).await.unwrap();
            let code = response.status().as_u16();
            Some((code, response.into_body().collect().await.unwrap().to_bytes().to_vec()))
        })
    }
}

/// Checks that a response is not an internal error and that errors are Statuses. kube-apiserver rejects some values of
/// the wrong type with code 500 and no reason.
fn check_response(code: u16, body: &[u8]) -> Result<(), TestCaseError> {
    let text = String::from_utf8_lossy(body).into_owned();
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
    prop_assert!(code < 500 || body["reason"].is_null() || body["reason"] == "NotImplemented", "{code} {text}");
    if code >= 400 && body.is_object() {
        prop_assert_eq!(body["code"].as_u64(), Some(u64::from(code)));
        prop_assert!(!body["message"].as_str().unwrap_or_default().is_empty(), "{}", text);
    }
    Ok(())
}
