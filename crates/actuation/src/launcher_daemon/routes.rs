//! The REST API, with the paths and fields of the deployed launcher.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::{Value, json};

use super::byte_range::ByteRange;
use super::config::validate_id;
use super::error::LauncherError;
use super::state::LauncherState;
use super::table::InstanceTable;
use super::watch_stream::watch_stream;

/// Maximum size of a request body.
const MAX_REQUEST_BYTES: usize = 256 << 10;
/// Maximum number of bytes of a log in one response, that of the deployed launcher.
const MAX_LOG_BYTES: u64 = 1 << 20;

type Shared = State<Arc<LauncherState>>;
type RequestBody = Result<Bytes, BytesRejection>;

/// Returns the routes.
pub(super) fn routes(state: Arc<LauncherState>) -> Router {
    Router::new()
        .route("/", get(|| async { Json(index()) }))
        .route("/health", get(|| async { Json(json!({"status": "OK"})) }))
        .route("/v2/vllm/instances", get(list).post(create).delete(delete_all))
        .route("/v2/vllm/instances/watch", get(watch))
        .route("/v2/vllm/instances/{id}", get(read).put(create_with_id).delete(delete))
        .route("/v2/vllm/instances/{id}/log", get(log))
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .with_state(state)
}

fn index() -> Value {
    json!({
        "name": "Multi-Instance vLLM Management API",
        "version": "2.0",
        "endpoints": {
            "index": "GET /",
            "health": "GET /health",
            "create_instance": "POST /v2/vllm/instances",
            "create_named_instance": "PUT /v2/vllm/instances/{instance_id}",
            "delete_instance": "DELETE /v2/vllm/instances/{instance_id}",
            "delete_all_instances": "DELETE /v2/vllm/instances",
            "get_instance_status": "GET /v2/vllm/instances/{instance_id}",
            "get_all_instances": "GET /v2/vllm/instances",
            "get_instance_logs": "GET /v2/vllm/instances/{instance_id}/log",
            "watch_instances": "GET /v2/vllm/instances/watch",
        },
    })
}

async fn create(State(state): Shared, body: RequestBody) -> Result<Response, LauncherError> {
    let created = state.create(None, &received(body)?).await?;
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

async fn create_with_id(
    State(state): Shared,
    Path(id): Path<String>,
    body: RequestBody,
) -> Result<Response, LauncherError> {
    let created = state.create(Some(id), &received(body)?).await?;
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

async fn read(State(state): Shared, Path(id): Path<String>) -> Result<Response, LauncherError> {
    state.read(|table| table.get(&id).map(|instance| Json(instance).into_response()))
}

async fn list(State(state): Shared, RawQuery(query): RawQuery) -> Result<Response, LauncherError> {
    match parameter(query.as_deref(), "detail") {
        None | Some("true" | "True" | "1") => Ok(Json(state.read(InstanceTable::list)).into_response()),
        Some("false" | "False" | "0") => {
            let (revision, ids) = state.read(|table| (table.revision(), table.ids()));
            Ok(Json(json!({"revision": revision, "count": ids.len(), "instance_ids": ids})).into_response())
        }
        Some(other) => Err(LauncherError::InvalidRequest(format!("detail: {other:?} is neither true nor false"))),
    }
}

async fn delete(State(state): Shared, Path(id): Path<String>) -> Result<Response, LauncherError> {
    Ok(Json(state.delete(&id).await?).into_response())
}

async fn delete_all(State(state): Shared) -> Result<Response, LauncherError> {
    let stopped = state.delete_all().await?;
    let body = json!({"status": "all_stopped", "total_stopped": stopped.len(), "stopped_instances": stopped});
    Ok(Json(body).into_response())
}

async fn watch(State(state): Shared, RawQuery(query): RawQuery) -> Result<Response, LauncherError> {
    let since = match parameter(query.as_deref(), "since") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            LauncherError::InvalidRequest(format!("since: {text:?} is not a revision, such as that of a list"))
        })?),
    };
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    Ok((headers, Body::from_stream(watch_stream(state, since)?)).into_response())
}

async fn log(State(state): Shared, Path(id): Path<String>, headers: HeaderMap) -> Result<Response, LauncherError> {
    validate_id(&id)?;
    let log = state.read(|table| table.handle(&id))?.log;
    let range = match headers.get(header::RANGE) {
        None => ByteRange::From { first: 0, last: None },
        Some(value) => {
            let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            ByteRange::parse(&text).ok_or(LauncherError::InvalidRange(text))?
        }
    };
    let unreadable = |error: String| LauncherError::LogUnreadable(error);
    let read = tokio::task::spawn_blocking(move || log.read(range, MAX_LOG_BYTES)).await;
    let (piece, end) =
        read.map_err(|error| unreadable(error.to_string()))?.map_err(|error| unreadable(error.to_string()))?;
    let is_partial = headers.contains_key(header::RANGE);
    let (status, content_range, bytes) = match piece {
        Some(piece) => {
            let last = piece.first + u64::try_from(piece.bytes.len()).unwrap_or_default() - 1;
            let status = if is_partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
            (status, format!("bytes {}-{last}/{end}", piece.first), piece.bytes)
        }
        None => (StatusCode::RANGE_NOT_SATISFIABLE, format!("bytes */{end}"), Vec::new()),
    };
    let mut response = (status, bytes).into_response();
    let content_type = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(value) = HeaderValue::from_str(&content_range) {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    Ok(response)
}

/// Returns the body of a request that was received completely.
fn received(body: RequestBody) -> Result<Bytes, LauncherError> {
    body.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => LauncherError::RequestTooLarge(MAX_REQUEST_BYTES),
        _ => LauncherError::InvalidRequest(error.body_text()),
    })
}

/// Returns a parameter of a query. The values that the API knows need no decoding.
fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let mut pairs = query?.split('&').rev().filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}
