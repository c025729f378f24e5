//! Answers in YAML, for those who ask for it. Watches are JSON in any case.

use axum::body::{Body, to_bytes};
use axum::response::Response;
use http::{HeaderValue, header};
use serde_json::Value;

const YAML: &str = "application/yaml";

/// Whether YAML is the first of what is asked for that can be had.
pub(super) fn is_asked_for(accept: &str) -> bool {
    let mut media = accept.split(',').map(|entry| entry.split(';').next().unwrap_or_default().trim());
    media.find(|media| matches!(*media, "application/json" | "*/*" | "text/plain" | YAML)) == Some(YAML)
}

/// The same answer in YAML, where it is one object.
pub(super) async fn of(response: Response) -> Response {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    // What is streamed has no length.
    let is_whole = http_body::Body::size_hint(response.body()).exact().is_some();
    if !is_json || !is_whole {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else { return Response::from_parts(head, Body::empty()) };
    let text = serde_json::from_slice::<Value>(&bytes).ok().and_then(|value| serde_saphyr::to_string(&value).ok());
    let Some(text) = text else { return Response::from_parts(head, Body::from(bytes)) };
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(YAML));
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(text))
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
    fn the_first_that_can_be_had_counts(#[case] accept: &str, #[case] yaml: bool) {
        assert_eq!(is_asked_for(accept), yaml);
    }

    #[tokio::test]
    async fn an_object_is_told_in_yaml() {
        let object = serde_json::json!({"kind": "ConfigMap", "data": {"yes": "no", "n": "1", "lines": "a\nb\n"}});
        let response = of(super::super::respond::object(&object)).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], YAML);
        let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let read: Value = serde_saphyr::from_slice(&text).unwrap();
        assert_eq!(read, object);
    }
}
