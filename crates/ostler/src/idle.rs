//! A simulated container that is no engine known here: it listens where it declares, so that its probes pass and its
//! Services lead somewhere, and tells whoever asks for more that nothing is behind it.

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use embedded::ports::{Container, Exit};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::runner::TERMINATED;

/// Answers until it is stopped.
pub(crate) async fn run(container: Container, stop: CancellationToken) -> Exit {
    let image = &container.image;
    container.log.write_line(&format!("image {image} is not an engine known here: simulated, answers probes only"));
    let mut servers = JoinSet::new();
    for port in &container.ports {
        match TcpListener::bind((container.address, *port)).await {
            Ok(listener) => {
                let served =
                    axum::serve(listener, answers(image)).with_graceful_shutdown(stop.clone().cancelled_owned());
                servers.spawn(served.into_future());
            }
            Err(error) => container.log.write_line(&format!("port {port}: {error}")),
        }
    }
    stop.cancelled().await;
    Exit { code: TERMINATED, message: String::new() }
}

fn answers(image: &str) -> Router {
    let message = format!("image {image} is simulated and not an engine known here: nothing answers");
    Router::new().fallback(async move |method: Method| answer(&method, &message))
}

/// What only looks is told that all is well; anything else would wait for a result that nobody makes.
fn answer(method: &Method, message: &str) -> Response {
    if matches!(*method, Method::GET | Method::HEAD) {
        return StatusCode::OK.into_response();
    }
    let error = json!({"error": {"message": message, "type": "not_implemented", "code": 501}});
    (StatusCode::NOT_IMPLEMENTED, axum::Json(error)).into_response()
}
