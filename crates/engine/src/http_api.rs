//! HTTP routes with vLLM's headers, status codes and error bodies.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{FromRequest, State},
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
    middleware::{self, Next},
    routing::{MethodRouter, get, post},
};
use futures::{Stream, stream};
use serde::Serialize;

use crate::{
    api_error::ApiError,
    generation::Generation,
    http_response::{JSON, build_response, error_response},
    metrics_page, remote_prefill,
    request::{Endpoint, GenerationRequest, StreamOptions},
    request_body::RequestBody,
    response::{ResponseMetadata, VLLM_VERSION, completion, event_stream, model_list},
    simulator::Simulator,
    sleep_api, tokenizer,
};

/// A validated request that is ready for generation.
struct AcceptedRequest {
    generation: Generation,
    metadata: ResponseMetadata,
    /// Present if the response is streamed.
    stream: Option<StreamOptions>,
}

/// Body of a response of `/tokenize`.
#[derive(Serialize)]
struct TokenizeResponse {
    count: usize,
    max_model_len: usize,
    tokens: Vec<u32>,
    token_strs: (),
}

impl FromRequest<Arc<Simulator>> for RequestBody {
    type Rejection = Response<Body>;

    async fn from_request(request: Request<Body>, engine: &Arc<Simulator>) -> Result<Self, Self::Rejection> {
        engine.request_memory.read(request).await.map_err(|error| error_response(&error))
    }
}

/// Returns the router with all routes of `engine`.
pub(crate) fn router(engine: Arc<Simulator>) -> Router {
    // By default, axum accepts HEAD on GET routes; vLLM responds 405.
    let get_route = |route: MethodRouter<Arc<Simulator>>| route.head(method_not_allowed);
    let get_only = |handler| get_route(get(handler));
    let development_routes = if engine.config.dev_mode { sleep_api::routes(get_route) } else { Router::new() };
    Router::new()
        .route(Endpoint::Chat.path(), post(|engine, headers, body| generate(engine, headers, body, Endpoint::Chat)))
        .route(
            Endpoint::Completion.path(),
            post(|engine, headers, body| generate(engine, headers, body, Endpoint::Completion)),
        )
        .route("/tokenize", post(tokenize))
        .route("/v1/models", get_route(get(models)))
        .route("/metrics", get_route(get(prometheus_metrics)))
        .route("/version", get_route(get(version)))
        .route("/health", get_only(health))
        .route("/ping", get_only(health).post(health))
        // SGLang's check that the engine generates tokens.
        .route("/health_generate", get_only(health))
        .merge(development_routes)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn(common_headers))
        .with_state(engine)
}

async fn generate(
    State(engine): State<Arc<Simulator>>,
    headers: HeaderMap,
    body: RequestBody,
    endpoint: Endpoint,
) -> Response<Body> {
    let accepted = accept(&engine, &headers, body.bytes(), endpoint);
    if let (Ok(accepted), Some(prefiller)) = (&accepted, remote_prefill::prefiller(&headers)) {
        match remote_prefill::compute_prompt(prefiller, endpoint, body.bytes()).await {
            Ok(()) => accepted.generation.receive_prompt(),
            Err(error) => tracing::warn!(%prefiller, %error, "the prefiller failed; the decoder computes the prompt"),
        }
    }
    // A queued request needs only its tokens.
    drop((headers, body));
    match accepted {
        Err(error) => error_response(&error),
        Ok(AcceptedRequest { generation, metadata, stream: Some(options) }) => {
            streaming_response(generation, metadata, options)
        }
        Ok(AcceptedRequest { generation, metadata, stream: None }) => completion_response(generation, &metadata).await,
    }
}

fn accept(
    engine: &Arc<Simulator>,
    headers: &HeaderMap,
    body: &[u8],
    endpoint: Endpoint,
) -> Result<AcceptedRequest, ApiError> {
    let request = parse_request(headers, body, endpoint)?;
    check_model(engine, request.model.as_deref())?;
    let request_id = headers.get("x-request-id").and_then(|id| id.to_str().ok());
    let metadata = engine.response_metadata(endpoint, request.model.as_deref(), request_id);
    let stream = request.stream.then(|| request.stream_options.unwrap_or_default());
    let generation = Generation::new(Arc::clone(engine), request, endpoint, &metadata)?;
    Ok(AcceptedRequest { generation, metadata, stream })
}

fn parse_request(headers: &HeaderMap, body: &[u8], endpoint: Endpoint) -> Result<GenerationRequest, ApiError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or(JSON);
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    match media_type.eq_ignore_ascii_case(JSON) {
        true => GenerationRequest::parse(body, endpoint),
        false => Err(ApiError::unsupported_media_type()),
    }
}

/// Checks that `model` is served. A missing or empty name means the default model.
///
/// # Errors
/// 404 for a model that is not served.
fn check_model(engine: &Simulator, model: Option<&str>) -> Result<(), ApiError> {
    match model {
        Some(name) if !name.is_empty() && !engine.config.serves_model(name) => {
            Err(ApiError::model_not_found(name, &engine.config.model_names()))
        }
        _ => Ok(()),
    }
}

async fn completion_response(mut generation: Generation, metadata: &ResponseMetadata) -> Response<Body> {
    let mut text = String::new();
    while let Some(output) = generation.next_output().await {
        text.push_str(&output.text);
        if let Some(finish) = output.finish {
            return build_response(
                StatusCode::OK,
                Some(JSON),
                completion::completion_body(metadata, &text, &finish, generation.usage()),
            );
        }
    }
    build_response(StatusCode::INTERNAL_SERVER_ERROR, None, Vec::new())
}

fn streaming_response(generation: Generation, metadata: ResponseMetadata, options: StreamOptions) -> Response<Body> {
    let body = Body::from_stream(events(generation, metadata, options));
    let mut response = Response::new(body);
    let content_type = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Returns the server-sent events of a stream, one HTTP chunk per token.
fn events(
    generation: Generation,
    metadata: ResponseMetadata,
    options: StreamOptions,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let initial_state = (generation, metadata, true);
    stream::unfold(Some(initial_state), move |state| async move {
        let (mut generation, metadata, is_first) = state?;
        let output = generation.next_output().await?;
        let usage = options.continuous_usage_stats.then(|| generation.usage());
        let mut text = String::new();
        if is_first && metadata.endpoint == Endpoint::Chat {
            text.push_str(&event_stream::role_chunk(&metadata, usage));
        }
        let is_finished = output.finish.is_some();
        let is_last = is_finished && !options.include_usage;
        text.push_str(&event_stream::token_chunk(&metadata, &output.text, output.finish.as_ref(), usage, is_last));
        if !is_finished {
            return Some((Ok(Bytes::from(text)), Some((generation, metadata, false))));
        }
        if options.include_usage {
            text.push_str(&event_stream::usage_chunk(&metadata, generation.usage()));
        }
        text.push_str(event_stream::DONE);
        Some((Ok(Bytes::from(text)), None))
    })
}

async fn models(State(engine): State<Arc<Simulator>>) -> Response<Body> {
    let config = &engine.config;
    let body = model_list::models(config, engine.started_at);
    build_response(StatusCode::OK, Some(JSON), body)
}

async fn prometheus_metrics(State(engine): State<Arc<Simulator>>) -> Response<Body> {
    let content_type = "text/plain; version=1.0.0; charset=utf-8";
    build_response(StatusCode::OK, Some(content_type), metrics_page::render(&engine).into_bytes())
}

async fn version() -> Response<Body> {
    build_response(StatusCode::OK, Some(JSON), format!(r#"{{"version":"{VLLM_VERSION}"}}"#).into_bytes())
}

async fn health(State(engine): State<Arc<Simulator>>) -> Response<Body> {
    let status = if engine.has_failed() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    build_response(status, None, Vec::new())
}

/// Tokenizes a prompt with the simulated tokenizer; token IDs are hashes.
async fn tokenize(State(engine): State<Arc<Simulator>>, body: RequestBody) -> Response<Body> {
    let value: serde_json::Value = serde_json::from_slice(body.bytes()).unwrap_or_default();
    let Some(prompt) = value["prompt"].as_str() else {
        let input = "'<dict of 0 items>'";
        return error_response(&ApiError::validation("body.prompt", "missing", "Field required", input, None));
    };
    let tokens = tokenizer::encode(prompt);
    let response =
        TokenizeResponse { count: tokens.len(), max_model_len: engine.config.max_model_len, tokens, token_strs: () };
    build_response(StatusCode::OK, Some(JSON), serde_json::to_vec(&response).unwrap_or_default())
}

async fn not_found() -> Response<Body> {
    build_response(StatusCode::NOT_FOUND, Some(JSON), br#"{"detail":"Not Found"}"#.to_vec())
}

async fn method_not_allowed() -> Response<Body> {
    build_response(StatusCode::METHOD_NOT_ALLOWED, Some(JSON), br#"{"detail":"Method Not Allowed"}"#.to_vec())
}

/// Sets the headers of vLLM's server in the recorded order.
async fn common_headers(request: Request<Body>, next: Next) -> Response<Body> {
    use axum::body::HttpBody;
    let mut response = next.run(request).await;
    let mut headers = HeaderMap::with_capacity(5);
    let date = jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    if let Ok(date) = HeaderValue::try_from(date) {
        headers.insert(header::DATE, date);
    }
    headers.insert(header::SERVER, HeaderValue::from_static("uvicorn"));
    if let Some(length) = response.body().size_hint().exact() {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    if let Some(content_type) = response.headers_mut().remove(header::CONTENT_TYPE) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    if let Some(allow) = response.headers_mut().remove(header::ALLOW) {
        headers.insert(header::ALLOW, allow);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    *response.headers_mut() = headers;
    response
}
