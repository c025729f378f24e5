//! Prompts that another engine computes, as a sidecar for disaggregated serving does in front of a decoder.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Request, StatusCode, header},
};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{http_response::JSON, request::Endpoint};

/// Header with the address of the engine that computes the prompt. The gateway sets it and removes those of clients.
const PREFILLER_HEADER: &str = "x-prefiller-host-port";

/// How long the prefiller may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Fields that are not part of the request to the prefiller.
const DECODER_FIELDS: [&str; 4] = ["max_completion_tokens", "min_tokens", "stream", "stream_options"];

/// Why another engine has not computed a prompt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrefillError {
    #[error("invalid body: {0}")]
    Body(#[from] serde_json::Error),
    #[error(transparent)]
    Connect(#[from] io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("it responded with status {0}")]
    Status(StatusCode),
    #[error("it did not respond in {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Returns the engine that computes the prompt of a request, if another one does.
pub(crate) fn prefiller(headers: &HeaderMap) -> Option<SocketAddr> {
    headers.get(PREFILLER_HEADER)?.to_str().ok()?.parse().ok()
}

/// Lets `prefiller` compute the prompt of `body`.
///
/// # Errors
/// The prefiller does not respond with success.
pub(crate) async fn compute_prompt(prefiller: SocketAddr, endpoint: Endpoint, body: &[u8]) -> Result<(), PrefillError> {
    let request = prefill_request(prefiller, endpoint, body)?;
    timeout(TIMEOUT, send(prefiller, request)).await.map_err(|_| PrefillError::Timeout)?
}

/// Returns a request with the same prompt for one token.
fn prefill_request(prefiller: SocketAddr, endpoint: Endpoint, body: &[u8]) -> Result<Request<Body>, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(body)?;
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !DECODER_FIELDS.contains(&name.as_str()));
        fields.insert("max_tokens".to_owned(), 1.into());
    }
    let mut request = Request::post(endpoint.path()).body(Body::from(serde_json::to_vec(&value)?)).unwrap_or_default();
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    if let Ok(host) = HeaderValue::try_from(prefiller.to_string()) {
        request.headers_mut().insert(header::HOST, host);
    }
    Ok(request)
}

async fn send(prefiller: SocketAddr, request: Request<Body>) -> Result<(), PrefillError> {
    let (mut sender, connection) = handshake(TokioIo::new(TcpStream::connect(prefiller).await?)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    // The head follows the only token.
    let status = sender.send_request(request).await?.status();
    if status.is_success() { Ok(()) } else { Err(PrefillError::Status(status)) }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn prefiller_computes_one_token() {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 900,
            "min_tokens": 5, "stream": true, "stream_options": {"include_usage": true}, "temperature": 0});
        let address: SocketAddr = ([127, 0, 0, 1], 8000).into();
        let request = prefill_request(address, Endpoint::Chat, body.to_string().as_bytes()).unwrap();
        assert_eq!(request.uri().path(), "/v1/chat/completions");
        assert_eq!(request.headers()["host"], "127.0.0.1:8000");
        let sent: Value = serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
        let expect = json!({"model": "m", "messages": body["messages"], "max_tokens": 1, "temperature": 0});
        assert_eq!(sent, expect);
    }

    #[test]
    fn header_contains_an_address() {
        let headers = |value: &'static str| -> HeaderMap {
            [(PREFILLER_HEADER.parse().unwrap(), HeaderValue::from_static(value))].into_iter().collect()
        };
        assert_eq!(prefiller(&headers("127.0.0.1:8000")), Some(([127, 0, 0, 1], 8000).into()));
        assert_eq!((prefiller(&headers("x")), prefiller(&HeaderMap::new())), (None, None));
    }
}
