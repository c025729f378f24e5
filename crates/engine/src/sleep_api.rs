//! The routes of sleep mode, which vLLM serves in development mode only (`VLLM_SERVER_DEV_MODE=1`).

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{RawQuery, State},
    http::{Response, StatusCode},
    routing::{MethodRouter, get, post},
};
use serde::Serialize;

use crate::{
    api_error::ApiError,
    http_response::{JSON, build_response, error_response},
    metrics::SleepOperation,
    simulator::Simulator,
    sleep::{InFlightPolicy, MemoryPart, SleepLevel},
};

/// Body of a response of `/sleep`.
#[derive(Serialize)]
struct SleepResponse {
    status: &'static str,
    level: u8,
}

/// Body of a response of `/wake_up`.
#[derive(Serialize)]
struct WakeResponse {
    status: &'static str,
    tags: Option<Vec<String>>,
}

/// Body of a response of `/is_sleeping`.
#[derive(Serialize)]
struct IsSleepingResponse {
    is_sleeping: bool,
}

/// Returns the routes of sleep mode. `get_route` adapts GET routes to vLLM.
pub(crate) fn routes(
    get_route: impl Fn(MethodRouter<Arc<Simulator>>) -> MethodRouter<Arc<Simulator>>,
) -> Router<Arc<Simulator>> {
    Router::new()
        .route("/sleep", post(sleep))
        .route("/wake_up", post(wake_up))
        .route("/is_sleeping", get_route(get(is_sleeping)))
}

async fn sleep(State(engine): State<Arc<Simulator>>, RawQuery(query): RawQuery) -> Response<Body> {
    let query = query.unwrap_or_default();
    let level = match query_values(&query, "level").last() {
        None => Some(SleepLevel::OffloadWeights),
        Some(number) => number.parse().ok().and_then(SleepLevel::from_number),
    };
    let policy = match query_values(&query, "mode").last() {
        None | Some("abort") => Some(InFlightPolicy::Abort),
        Some("wait") => Some(InFlightPolicy::Wait),
        Some("keep") => Some(InFlightPolicy::Keep),
        Some(_) => None,
    };
    let Some(level) = level else { return invalid("level", "level must be 0, 1 or 2.") };
    let Some(policy) = policy else { return invalid("mode", "mode must be abort, wait or keep.") };
    let transition = {
        let engine = Arc::clone(&engine);
        async move { engine.fall_asleep(level, policy).await }
    };
    complete(&engine, SleepOperation::Sleep, transition).await;
    if engine.has_failed() {
        return error_response(&ApiError::engine_failure());
    }
    json_response(&SleepResponse { status: "sleeping", level: level.number() })
}

async fn wake_up(State(engine): State<Arc<Simulator>>, RawQuery(query): RawQuery) -> Response<Body> {
    let query = query.unwrap_or_default();
    let tags: Vec<String> = query_values(&query, "tags").map(str::to_owned).collect();
    let tags = Some(tags).filter(|tags| !tags.is_empty());
    let parts: Option<Vec<MemoryPart>> =
        tags.as_ref().map(|tags| tags.iter().filter_map(|tag| MemoryPart::from_tag(tag)).collect());
    let transition = {
        let engine = Arc::clone(&engine);
        async move { engine.wake_up(parts.as_deref()).await }
    };
    complete(&engine, SleepOperation::Wake, transition).await;
    if engine.has_failed() {
        return error_response(&ApiError::engine_failure());
    }
    let status = if engine.sleep_mode.level().is_some() { "sleeping" } else { "awake" };
    json_response(&WakeResponse { status, tags })
}

async fn is_sleeping(State(engine): State<Arc<Simulator>>) -> Response<Body> {
    json_response(&IsSleepingResponse { is_sleeping: engine.sleep_mode.level().is_some() })
}

/// Runs `transition` to its end, even if the client disconnects, and records its duration.
async fn complete(
    engine: &Arc<Simulator>,
    operation: SleepOperation,
    transition: impl Future<Output = ()> + Send + 'static,
) {
    // The semaphore is never closed, so acquiring a permit does not fail.
    let permit = Arc::clone(&engine.transitions).acquire_owned().await;
    let engine = Arc::clone(engine);
    let task = tokio::spawn(async move {
        let _permit = permit;
        let recording = engine.metrics.start_sleep_operation(operation);
        transition.await;
        drop(recording);
    });
    if let Err(error) = task.await {
        tracing::error!(%error, "sleep mode failed");
    }
}

/// Returns the values of a parameter in the query of a URL. The values of sleep mode need no percent-decoding.
fn query_values<'a>(query: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    query
        .split('&')
        .filter_map(move |pair| pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value))
}

fn invalid(param: &str, message: &str) -> Response<Body> {
    error_response(&ApiError::bad_request(Some(param), message))
}

fn json_response(body: &impl Serialize) -> Response<Body> {
    build_response(StatusCode::OK, Some(JSON), serde_json::to_vec(body).unwrap_or_default())
}
