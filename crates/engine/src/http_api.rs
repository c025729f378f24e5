//! The routes, and vLLM's habits around them: header set, status codes, error shapes.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
    middleware::{self, Next},
    routing::{get, post},
};
use futures::{Stream, stream};
use serde::Serialize;

use crate::{
    answer::{self, Head},
    failure::Failure,
    generation::Generation,
    metrics,
    request::{Call, Request as Asked, StreamOptions},
    simulator::Simulator,
    tokens,
};

/// The vLLM release whose behaviour is imitated.
pub(crate) const VERSION: &str = "0.32.0";

const JSON: &str = "application/json";

/// The whole HTTP face of `engine`.
pub(crate) fn router(engine: Arc<Simulator>) -> Router {
    // axum answers HEAD where GET exists; vLLM does not.
    let get_only = |handler| get(handler).head(method_not_allowed);
    Router::new()
        .route("/v1/chat/completions", post(|engine, headers, body| generate(engine, headers, body, Call::Chat)))
        .route("/v1/completions", post(|engine, headers, body| generate(engine, headers, body, Call::Completion)))
        .route("/tokenize", post(tokenize))
        .route("/v1/models", get(models).head(method_not_allowed))
        .route("/metrics", get(metrics_page).head(method_not_allowed))
        .route("/version", get(version).head(method_not_allowed))
        .route("/health", get_only(healthy))
        .route("/ping", get_only(healthy).post(healthy))
        // Sleep, wake-up and adapter routes belong here.
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(axum::extract::DefaultBodyLimit::disable())
        .layer(middleware::from_fn(common_headers))
        .with_state(engine)
}

async fn generate(State(engine): State<Arc<Simulator>>, headers: HeaderMap, body: Bytes, call: Call) -> Response<Body> {
    match begin(&engine, &headers, &body, call) {
        Err(failure) => refused(&failure),
        Ok(Begun { generation, head, stream: Some(options) }) => streamed(generation, head, options),
        Ok(Begun { generation, head, stream: None }) => whole(generation, &head).await,
    }
}

struct Begun {
    generation: Generation,
    head: Head,
    /// Present if the answer streams.
    stream: Option<StreamOptions>,
}

fn begin(engine: &Arc<Simulator>, headers: &HeaderMap, body: &[u8], call: Call) -> Result<Begun, Failure> {
    let asked = read(headers, body, call)?;
    known_model(engine, asked.model.as_deref())?;
    let request_id = headers.get("x-request-id").and_then(|id| id.to_str().ok());
    let head = engine.head(call, asked.model.as_deref(), request_id);
    let stream = asked.stream.then(|| asked.stream_options.unwrap_or_default());
    let generation = Generation::new(Arc::clone(engine), asked, call, &head)?;
    Ok(Begun { generation, head, stream })
}

fn read(headers: &HeaderMap, body: &[u8], call: Call) -> Result<Asked, Failure> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or(JSON);
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    match media_type.eq_ignore_ascii_case(JSON) {
        true => Asked::read(body, call),
        false => Err(Failure::not_json()),
    }
}

/// No name, or an empty one, means the base model.
fn known_model(engine: &Simulator, model: Option<&str>) -> Result<(), Failure> {
    match model {
        Some(name) if !name.is_empty() && !engine.config.serves(name) => {
            Err(Failure::unknown_model(name, &engine.config.names()))
        }
        _ => Ok(()),
    }
}

async fn whole(mut generation: Generation, head: &Head) -> Response<Body> {
    let mut text = String::new();
    while let Some(piece) = generation.next().await {
        text.push_str(&piece.text);
        if let Some(finish) = piece.finish {
            return reply(StatusCode::OK, Some(JSON), answer::whole(head, &text, &finish, generation.usage()));
        }
    }
    reply(StatusCode::INTERNAL_SERVER_ERROR, None, Vec::new())
}

fn streamed(generation: Generation, head: Head, options: StreamOptions) -> Response<Body> {
    let body = Body::from_stream(events(generation, head, options));
    let mut response = Response::new(body);
    let content_type = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// The events of a stream, one HTTP chunk per token.
fn events(generation: Generation, head: Head, options: StreamOptions) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let begin = (generation, head, true);
    stream::unfold(Some(begin), move |state| async move {
        let (mut generation, head, first) = state?;
        let piece = generation.next().await?;
        let usage = options.continuous_usage_stats.then(|| generation.usage());
        let mut text = String::new();
        if first && head.call == Call::Chat {
            text.push_str(&answer::role_event(&head, usage));
        }
        let ended = piece.finish.is_some();
        let last = ended && !options.include_usage;
        text.push_str(&answer::token_event(&head, &piece.text, piece.finish.as_ref(), usage, last));
        if !ended {
            return Some((Ok(Bytes::from(text)), Some((generation, head, false))));
        }
        if options.include_usage {
            text.push_str(&answer::usage_event(&head, generation.usage()));
        }
        text.push_str(answer::DONE);
        Some((Ok(Bytes::from(text)), None))
    })
}

async fn models(State(engine): State<Arc<Simulator>>) -> Response<Body> {
    let config = &engine.config;
    let list = answer::models(&config.names(), &config.model, config.max_model_len, engine.started);
    reply(StatusCode::OK, Some(JSON), list)
}

async fn metrics_page(State(engine): State<Arc<Simulator>>) -> Response<Body> {
    let content_type = "text/plain; version=1.0.0; charset=utf-8";
    reply(StatusCode::OK, Some(content_type), metrics::page(&engine).into_bytes())
}

async fn version() -> Response<Body> {
    reply(StatusCode::OK, Some(JSON), format!(r#"{{"version":"{VERSION}"}}"#).into_bytes())
}

async fn healthy() -> Response<Body> {
    reply(StatusCode::OK, None, Vec::new())
}

#[derive(Serialize)]
struct Tokenized {
    count: usize,
    max_model_len: usize,
    tokens: Vec<u32>,
    token_strs: (),
}

/// Counts are those the simulation uses; the ids are hashes, not a vocabulary.
async fn tokenize(State(engine): State<Arc<Simulator>>, body: Bytes) -> Response<Body> {
    let value: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(prompt) = value["prompt"].as_str() else {
        let seen = "'<dict of 0 items>'";
        return refused(&Failure::validation("body.prompt", "missing", "Field required", seen, None));
    };
    let tokens = tokens::encode(prompt);
    let answer = Tokenized { count: tokens.len(), max_model_len: engine.config.max_model_len, tokens, token_strs: () };
    reply(StatusCode::OK, Some(JSON), serde_json::to_vec(&answer).unwrap_or_default())
}

async fn not_found() -> Response<Body> {
    reply(StatusCode::NOT_FOUND, Some(JSON), br#"{"detail":"Not Found"}"#.to_vec())
}

async fn method_not_allowed() -> Response<Body> {
    reply(StatusCode::METHOD_NOT_ALLOWED, Some(JSON), br#"{"detail":"Method Not Allowed"}"#.to_vec())
}

fn refused(failure: &Failure) -> Response<Body> {
    reply(failure.status, Some(JSON), failure.to_json())
}

fn reply(status: StatusCode, content_type: Option<&'static str>, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

/// `date`, `server`, length, type, `vary`: the recorded set in the recorded order.
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
