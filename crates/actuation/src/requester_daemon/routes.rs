//! The HTTP interfaces of the requester: probes, service provider interface (SPI), metrics and state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::accelerators::{Accelerator, memory_usage};

use super::log_copy::{LogCopy, LogError};

/// Maximum size of a piece of an engine's log.
const MAX_LOG_BYTES: usize = 1 << 20;

/// Accelerators, or why they are not known; `None` while they are being determined.
pub(super) type Discovery = Option<Result<Vec<Accelerator>, String>>;

/// State of the requester.
#[derive(Debug)]
pub(super) struct RequesterState {
    /// Whether the engine is ready, as the controller reports it.
    pub(super) is_ready: AtomicBool,
    /// Whether the accelerators were reported to a controller, so that an engine may use them.
    pub(super) is_held: AtomicBool,
    /// Cancelled when the controller permits the requester to end.
    pub(super) released: CancellationToken,
    pub(super) accelerators: watch::Receiver<Discovery>,
    log: Mutex<LogCopy>,
}

/// Parameters of `/v1/set-log`.
#[derive(Deserialize)]
struct LogParameters {
    #[serde(default, rename = "startPos")]
    start_position: String,
}

// === impl RequesterState ===

impl RequesterState {
    pub(super) fn new(accelerators: watch::Receiver<Discovery>) -> RequesterState {
        RequesterState {
            is_ready: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            released: CancellationToken::new(),
            accelerators,
            log: Mutex::default(),
        }
    }

    /// Returns the UUIDs of the accelerators once they are determined.
    async fn uuids(&self) -> Result<Vec<String>, String> {
        let mut accelerators = self.accelerators.clone();
        let result = accelerators.wait_for(Option::is_some).await.map_err(|error| error.to_string())?.clone();
        let accelerators = result.unwrap_or_else(|| Ok(Vec::new()))?;
        Ok(accelerators.into_iter().map(|accelerator| accelerator.uuid).collect())
    }
}

/// Returns the routes of the readiness probe.
pub(super) fn probes(state: Arc<RequesterState>) -> Router {
    Router::new().route("/ready", get(ready)).with_state(state)
}

/// Returns the routes of the SPI.
pub(super) fn spi(state: Arc<RequesterState>) -> Router {
    Router::new()
        .route("/v1/dual-pods/accelerators", get(accelerators))
        .route("/v1/dual-pods/accelerator-memory-usage", get(accelerator_memory))
        .route("/v1/dual-pods/release", post(release))
        .route("/v1/become-ready", post(|state| set_ready(state, true)))
        .route("/v1/become-unready", post(|state| set_ready(state, false)))
        .route("/v1/set-log", post(set_log).layer(DefaultBodyLimit::max(MAX_LOG_BYTES)))
        .with_state(state)
}

/// Returns the routes of the metrics.
pub(super) fn metrics(state: Arc<RequesterState>) -> Router {
    Router::new().route("/metrics", get(metrics_page)).with_state(state)
}

/// Returns the routes for debugging.
pub(super) fn debug(state: Arc<RequesterState>) -> Router {
    Router::new().route("/debug/state", get(state_page)).with_state(state)
}

async fn ready(State(state): State<Arc<RequesterState>>) -> Response {
    match state.is_ready.load(Ordering::Relaxed) {
        true => "OK".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the inference server is not ready").into_response(),
    }
}

async fn accelerators(State(state): State<Arc<RequesterState>>) -> Response {
    match state.uuids().await {
        Ok(uuids) => {
            // From now on, an engine may use them.
            state.is_held.store(true, Ordering::Relaxed);
            Json(uuids).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn accelerator_memory(State(state): State<Arc<RequesterState>>) -> Response {
    let usage = async { memory_usage(&state.uuids().await?).await };
    match usage.await {
        Ok(usage) => Json(usage).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn release(State(state): State<Arc<RequesterState>>) -> &'static str {
    tracing::info!("the engine is asleep or gone: the requester may end");
    state.released.cancel();
    "OK"
}

async fn set_ready(State(state): State<Arc<RequesterState>>, is_ready: bool) -> &'static str {
    tracing::info!(is_ready, "the controller reported the readiness of the inference server");
    state.is_ready.store(is_ready, Ordering::Relaxed);
    "OK"
}

async fn set_log(
    State(state): State<Arc<RequesterState>>,
    Query(parameters): Query<LogParameters>,
    piece: Bytes,
) -> Response {
    // A write to standard output blocks while the container runtime does not read it.
    let append = move || {
        let mut log = state.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.append(&parameters.start_position, &piece, &mut std::io::stdout().lock())
    };
    let result = tokio::task::spawn_blocking(append).await;
    match result.unwrap_or_else(|error| Err(LogError::Write(error.to_string()))) {
        Ok(()) => "OK".into_response(),
        Err(error @ LogError::Write(_)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

async fn metrics_page(State(state): State<Arc<RequesterState>>) -> String {
    let count = state.accelerators.borrow().as_ref().and_then(|found| found.as_ref().ok().map(Vec::len));
    let is_ready = u8::from(state.is_ready.load(Ordering::Relaxed));
    format!(
        "# HELP ostler_requester_ready Whether the inference server is ready.\n# TYPE ostler_requester_ready gauge\n\
         ostler_requester_ready {is_ready}\n\
         # HELP ostler_requester_accelerators Number of assigned accelerators.\n# TYPE ostler_requester_accelerators gauge\n\
         ostler_requester_accelerators {}\n",
        count.unwrap_or_default()
    )
}

async fn state_page(State(state): State<Arc<RequesterState>>) -> Response {
    let accelerators = match state.accelerators.borrow().as_ref() {
        None => json!(null),
        Some(Ok(found)) => json!(found.iter().map(|accelerator| &accelerator.uuid).collect::<Vec<_>>()),
        Some(Err(error)) => json!({ "error": error }),
    };
    Json(json!({
        "accelerators": accelerators,
        "ready": state.is_ready.load(Ordering::Relaxed),
        "held": state.is_held.load(Ordering::Relaxed),
        "released": state.released.is_cancelled(),
    }))
    .into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    // spec: DP-33
    #[tokio::test]
    async fn probe_follows_the_relayed_readiness() {
        let (_sender, accelerators) = watch::channel(None);
        let state = Arc::new(RequesterState::new(accelerators));
        let relays = [(None, 503), (Some("/v1/become-ready"), 200), (Some("/v1/become-unready"), 503)];
        for (relay, expected) in relays {
            if let Some(path) = relay {
                let request = Request::post(path).body(Body::empty()).unwrap();
                assert_eq!(spi(Arc::clone(&state)).oneshot(request).await.unwrap().status(), StatusCode::OK);
            }
            let probe = Request::get("/ready").body(Body::empty()).unwrap();
            assert_eq!(probes(Arc::clone(&state)).oneshot(probe).await.unwrap().status(), expected, "{relay:?}");
        }
    }

    #[tokio::test]
    async fn pieces_of_a_log_are_limited() {
        let (_sender, accelerators) = watch::channel(None);
        let routes = spi(Arc::new(RequesterState::new(accelerators)));
        let request = Request::post("/v1/set-log?startPos=0").body(Body::from(vec![b'x'; MAX_LOG_BYTES + 1])).unwrap();
        assert_eq!(routes.oneshot(request).await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}
