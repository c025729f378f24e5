//! YAML responses for clients that accept YAML. Watches are always JSON.

use axum::body::{Body, to_bytes};
use axum::response::Response;
use http::{HeaderValue, header};
use serde_json::Value;

use super::cost;
use crate::cpu_threads::CpuThreads;

const YAML: &str = "application/yaml";

/// Reports whether YAML is the first supported entry of `Accept`.
pub(super) fn is_preferred(accept: &str) -> bool {
    let mut media_types = accept.split(',').map(|entry| entry.split(';').next().unwrap_or_default().trim());
    media_types.find(|media_type| matches!(*media_type, "application/json" | "*/*" | "text/plain" | YAML)) == Some(YAML)
}

/// Converts a JSON response to YAML, unless it is a stream.
pub(super) async fn to_yaml(threads: &CpuThreads, response: Response) -> Response {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    // Streams have no known length.
    let has_known_length = http_body::Body::size_hint(response.body()).exact().is_some();
    if !is_json || !has_known_length {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else { return Response::from_parts(parts, Body::empty()) };
    let json = bytes.clone();
    let convert = move || {
        let value: Value = serde_json::from_slice(&json).ok()?;
        serde_saphyr::to_string(&value).ok()
    };
    let text = if bytes.len() < cost::LARGE_OBJECT { Ok(convert()) } else { threads.run(convert).await };
    let Ok(Some(text)) = text else { return Response::from_parts(parts, Body::from(bytes)) };
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(YAML));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(text))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::only("application/yaml", true)]
    #[case::before("application/yaml;q=0.9,application/json", true)]
    #[case::after("application/json,application/yaml", false)]
    #[case::none("", false)]
    fn prefers_first_supported_type(#[case] accept: &str, #[case] yaml: bool) {
        assert_eq!(is_preferred(accept), yaml);
    }

    #[tokio::test]
    async fn converts_object_to_yaml() {
        let object = serde_json::json!({"kind": "ConfigMap", "data": {"yes": "no", "n": "1", "lines": "a\nb\n"}});
        let threads = CpuThreads::default();
        let response = to_yaml(&threads, super::super::response::json_object(&object)).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], YAML);
        let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let parsed: Value = serde_saphyr::from_slice(&text).unwrap();
        assert_eq!(parsed, object);
    }
}
