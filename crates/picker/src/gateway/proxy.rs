//! Handles one request: reads it, selects an endpoint, forwards it, and streams the response.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_server::BodyMemory;
use hyper::body::Incoming;

use super::{
    engine_client::{EngineClient, EngineError},
    engine_request_body::EngineRequestBody,
    forwarded_headers::forwarded_headers,
    models,
    proxied_request::{ProxiedRequest, read_request},
    response,
    response_body::ResponseBody,
    route::{Route, match_path},
};
use crate::{
    datastore::Datastore,
    endpoint::InFlight,
    model_rewrite::{self, ModelRestorer},
    openai_error::OpenAiError,
    request::BODY_MEMORY,
    schedule::{self, EndpointSelection, RouteRequest, RoutingError},
};

/// Maximum number of endpoints to which one request is sent.
const MAX_ATTEMPTS: usize = 3;

/// Handles the requests of all connections.
pub(super) struct Proxy {
    datastore: Arc<Datastore>,
    engine_client: EngineClient,
    body_memory: BodyMemory,
}

impl Proxy {
    /// Returns a proxy to the endpoints in `datastore`.
    pub(super) fn new(datastore: Arc<Datastore>) -> Self {
        Self { datastore, engine_client: EngineClient::new(), body_memory: BodyMemory::new(BODY_MEMORY) }
    }

    /// Returns the response to one request.
    pub(super) async fn handle(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        self.respond(request).await.unwrap_or_else(|error| response::error(&error))
    }

    async fn respond(&self, request: Request<Incoming>) -> Result<Response<ResponseBody>, OpenAiError> {
        let path = request.uri().path().to_owned();
        let is_get = request.method() == Method::GET;
        match match_path(&path) {
            // Without the tasks that update the routing table, the gateway serves requests with the last one; a restart would
            // lose it. The process ends if the tasks do not recover.
            Route::Liveness => Ok(response::health(&[])),
            Route::Health => Ok(response::health(&self.datastore.outages())),
            Route::Readiness => Ok(response::health(&self.datastore.readiness_failures())),
            Route::Models(_) | Route::Model(..) if !is_get => Err(OpenAiError::method_not_allowed("GET")),
            Route::Models(pool) => {
                let models = models::list_models(&self.datastore.routing_table(), pool.as_ref())?;
                Ok(response::json(StatusCode::OK, &models))
            }
            Route::Model(pool, name) => {
                let model = models::get_model(&self.datastore.routing_table(), pool.as_ref(), name)?;
                Ok(response::json(StatusCode::OK, &model))
            }
            Route::Inference { .. } if request.method() != Method::POST => Err(OpenAiError::method_not_allowed("POST")),
            Route::Inference { pool, path } => {
                self.forward(read_request(request, pool, path, &self.body_memory).await?).await
            }
            Route::NotFound => Err(OpenAiError::unknown_path(&path)),
        }
    }

    async fn forward(&self, request: ProxiedRequest) -> Result<Response<ResponseBody>, OpenAiError> {
        let mut rng = self.datastore.rng();
        let prompt_tokens = request.info.prompt_tokens();
        let route_request = RouteRequest { model: &request.model.name, pool: request.pool.as_ref(), prompt_tokens };
        let route = schedule::resolve_route(route_request, &self.datastore.routing_table(), &mut rng)?;
        let is_rewritten = route.target_model != request.model.name;
        let body = match is_rewritten {
            true => model_rewrite::replace_model(&request.body, &request.model.span, &route.target_model).into(),
            false => EngineRequestBody::from(request.body.clone()),
        };
        let mut attempts = Vec::new();
        loop {
            let selection = route.select_endpoint(&self.datastore.routing_table(), &attempts, &mut rng)?;
            attempts.push(selection.endpoint.address);
            let in_flight = selection.endpoint.load.begin(request.info.estimated_tokens());
            let upstream = upstream_request(&request, &body, &selection, is_rewritten);
            match self.engine_client.send(upstream).await {
                Ok(response)
                    if should_retry(response.status())
                        && attempts.len() < MAX_ATTEMPTS
                        && route.has_other_endpoint(&self.datastore.routing_table(), &attempts) =>
                {
                    let address = selection.endpoint.address;
                    tracing::debug!(%address, status = %response.status(), "endpoint rejected the request, trying another");
                }
                Ok(response) => {
                    let models = (route.target_model.as_str(), request.model.name.as_str());
                    let models = is_rewritten.then_some(models);
                    return Ok(downstream_response(response, models, &selection, in_flight));
                }
                // Another endpoint would repeat the work, and the client has waited too long already.
                Err(error @ EngineError::Timeout) => {
                    tracing::warn!(address = %selection.endpoint.address, %error, "endpoint timed out");
                    return Err(OpenAiError::engine_timeout());
                }
                Err(error) => {
                    tracing::debug!(address = %selection.endpoint.address, %error, "endpoint failed before it responded");
                    if attempts.len() >= MAX_ATTEMPTS {
                        return Err(RoutingError::NoEndpointAvailable(route.pool).into());
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

/// Returns the request for the engine.
fn upstream_request(
    original: &ProxiedRequest,
    body: &EngineRequestBody,
    selection: &EndpointSelection,
    is_rewritten: bool,
) -> Request<EngineRequestBody> {
    let mut request = Request::new(body.clone());
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
