//! Handles one request: reads it, selects an endpoint, forwards it, and streams the response.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{
    engine_client::EngineClient,
    openai,
    response_body::ResponseBody,
    route::{Route, match_path},
};
use crate::{
    model_rewrite::{self, ModelRestorer},
    pool::{Datastore, InFlight},
    request::{self, MAX_BODY_BYTES, ModelField, RequestInfo},
    schedule::{self, EndpointSelection, RouteRequest, RoutingError},
};
use cluster::NamespacedName;

/// Maximum time between two chunks of a request body.
const BODY_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of endpoints to which one request is sent.
const MAX_ATTEMPTS: usize = 3;

/// Headers that belong to one connection (RFC 9110 §7.6.1).
const HOP_BY_HOP_HEADERS: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Handles the requests of all connections.
pub(super) struct Proxy {
    datastore: Arc<Datastore>,
    engine_client: EngineClient,
}

/// A request that is ready to be forwarded.
struct ProxiedRequest {
    path: String,
    pool: Option<NamespacedName>,
    headers: HeaderMap,
    body: Bytes,
    info: RequestInfo,
    model: ModelField,
}

impl Proxy {
    pub(super) fn new(datastore: Arc<Datastore>) -> Self {
        Self { datastore, engine_client: EngineClient::new() }
    }

    pub(super) async fn handle(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let path = request.uri().path().to_owned();
        let is_get = request.method() == Method::GET;
        match match_path(&path) {
            Route::Health => openai::health_response(),
            Route::Models(_) | Route::Model(..) if !is_get => openai::method_not_allowed("GET"),
            Route::Models(pool) => openai::list_models(&self.datastore.routing_table(), pool.as_ref()),
            Route::Model(pool, name) => openai::get_model(&self.datastore.routing_table(), pool.as_ref(), name),
            Route::Inference { .. } if request.method() != Method::POST => openai::method_not_allowed("POST"),
            Route::Inference { pool, path } => match read_request(request, pool, path).await {
                Ok(request) => self.forward(request).await.unwrap_or_else(|error| openai::routing_error(&error)),
                Err(response) => response,
            },
            Route::NotFound => openai::path_not_found(&path),
        }
    }

    async fn forward(&self, request: ProxiedRequest) -> Result<Response<ResponseBody>, RoutingError> {
        let (table, mut rng) = (self.datastore.routing_table(), self.datastore.rng());
        let prompt_tokens = request.info.prompt_tokens();
        let route_request = RouteRequest { model: &request.model.name, pool: request.pool.as_ref(), prompt_tokens };
        let route = schedule::resolve_route(route_request, &table, &mut rng)?;
        let is_rewritten = route.target_model != request.model.name;
        let body = match is_rewritten {
            true => model_rewrite::replace_model(&request.body, &request.model.span, &route.target_model),
            false => request.body.clone(),
        };
        let mut attempts = Vec::new();
        loop {
            let selection = route.select_endpoint(&attempts, &mut rng)?;
            attempts.push(selection.endpoint.address);
            let in_flight = selection.endpoint.load.begin(request.info.estimated_tokens());
            let can_retry = attempts.len() < MAX_ATTEMPTS && attempts.len() < route.pool.ready_endpoints.len();
            let upstream = upstream_request(&request, &body, &selection, is_rewritten);
            match self.engine_client.send(upstream).await {
                Ok(response) if can_retry && should_retry(response.status()) => {
                    let address = selection.endpoint.address;
                    tracing::debug!(%address, status = %response.status(), "endpoint rejected the request, trying another");
                }
                Ok(response) => {
                    let models = (route.target_model.as_str(), request.model.name.as_str());
                    let models = is_rewritten.then_some(models);
                    return Ok(downstream_response(response, models, &selection, in_flight));
                }
                Err(error) => {
                    tracing::debug!(address = %selection.endpoint.address, %error, "endpoint failed before it responded");
                    if !can_retry {
                        return Err(RoutingError::NoEndpointAvailable(route.pool.key.clone()));
                    }
                }
            }
        }
    }
}

/// Returns whether another endpoint may succeed: this endpoint does not serve the model, or does not accept requests.
fn should_retry(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::SERVICE_UNAVAILABLE)
}

async fn read_request(
    request: Request<Incoming>,
    pool: Option<NamespacedName>,
    path: &str,
) -> Result<ProxiedRequest, Response<ResponseBody>> {
    let (head, body) = request.into_parts();
    // Reject an excessive `Content-Length` before reading the body.
    if http_body::Body::size_hint(&body).lower() > MAX_BODY_BYTES as u64 {
        return Err(openai::body_too_large());
    }
    let body = read_body(body).await?;
    let mut info = request::parse_request(&body).map_err(openai::scan_error)?;
    let model = info.model.take().filter(|model| !model.name.is_empty()).ok_or_else(openai::missing_model)?;
    let path = match head.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    Ok(ProxiedRequest { path, pool, headers: head.headers, body, info, model })
}

/// Reads the whole body. Returns an error response if it is too large, incomplete, or stalls.
async fn read_body(body: Incoming) -> Result<Bytes, Response<ResponseBody>> {
    let mut body = Limited::new(body, MAX_BODY_BYTES);
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    loop {
        let frame = match timeout(BODY_STALL_TIMEOUT, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) if error.is::<LengthLimitError>() => return Err(openai::body_too_large()),
            Ok(Some(Err(_))) => return Err(openai::invalid_body("The request body ended early.")),
            Ok(None) => break,
            Err(_) => return Err(openai::body_timeout()),
        };
        let Ok(data) = frame.into_data() else { continue };
        match (first.is_empty(), rest.is_empty()) {
            // Most bodies are a single chunk, which is not copied.
            (true, true) => first = data,
            (_, true) => {
                rest.extend_from_slice(&first);
                rest.extend_from_slice(&data);
            }
            _ => rest.extend_from_slice(&data),
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Returns the request for the engine.
fn upstream_request(
    original: &ProxiedRequest,
    body: &Bytes,
    selection: &EndpointSelection,
    is_rewritten: bool,
) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::builder()
        .scheme("http")
        .authority(selection.endpoint.address.to_string())
        .path_and_query(original.path.as_str())
        .build()
        .unwrap_or_default();
    let mut headers = forwarded_headers(&original.headers);
    for name in [header::HOST, header::CONTENT_LENGTH, header::EXPECT] {
        headers.remove(name);
    }
    if is_rewritten {
        // The model name cannot be restored in a compressed response.
        headers.remove(header::ACCEPT_ENCODING);
    }
    *request.headers_mut() = headers;
    request
}

/// Returns `headers` without hop-by-hop headers and without internal headers of gateways and pickers.
fn forwarded_headers(headers: &HeaderMap) -> HeaderMap {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let connection_headers: Vec<String> =
        connection.flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let is_internal =
        |name: &str| ["x-gateway-", "x-llm-d-", "x-ostler-"].iter().any(|prefix| name.starts_with(prefix));
    let mut forwarded = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let text = name.as_str();
        if !HOP_BY_HOP_HEADERS.contains(&text)
            && !is_internal(text)
            && !connection_headers.iter().any(|other| other == text)
        {
            // A header may have several values.
            forwarded.append(name, value.clone());
        }
    }
    forwarded
}

/// Returns the response for the client. If the model was rewritten, `models` contains the model names of the engine and the
/// client.
fn downstream_response(
    response: Response<Incoming>,
    models: Option<(&str, &str)>,
    selection: &EndpointSelection,
    in_flight: InFlight,
) -> Response<ResponseBody> {
    let (head, incoming) = response.into_parts();
    let mut headers = forwarded_headers(&head.headers);
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_event_stream = content_type.starts_with("text/event-stream");
    let is_restorable = (is_event_stream || content_type.starts_with("application/json"))
        && !headers.contains_key(header::CONTENT_ENCODING);
    let restorer = models
        .filter(|_| is_restorable)
        .map(|(engine_model, client_model)| ModelRestorer::new(engine_model, client_model, is_event_stream));
    if restorer.is_some() {
        headers.remove(header::CONTENT_LENGTH);
    }
    add_explanation_headers(&mut headers, selection);
    let mut response = Response::new(ResponseBody::upstream(incoming, restorer, in_flight));
    *response.status_mut() = head.status;
    *response.headers_mut() = headers;
    response
}

/// Adds headers that explain the selection, for `ostler` and for debugging.
fn add_explanation_headers(headers: &mut HeaderMap, selection: &EndpointSelection) {
    let address = selection.endpoint.address.to_string();
    for (name, value) in [
        ("x-ostler-endpoint", &address),
        ("x-ostler-pod", &selection.endpoint.pod),
        ("x-ostler-decision", &selection.explanation),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_hop_by_hop_and_internal_headers() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("x-gateway-destination-endpoint", "10.0.0.1:1"),
            ("x-ostler-pod", "p"),
            ("authorization", "Bearer t"),
            ("x-request-id", "abc"),
            ("accept", "a/b"),
            ("accept", "c/d"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let forwarded = forwarded_headers(&headers);
        let names: Vec<&str> = forwarded.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["authorization", "x-request-id", "accept", "accept"]);
    }
}
