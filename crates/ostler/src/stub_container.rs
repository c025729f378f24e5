//! A stub for simulated containers that are not a known engine. It listens on the declared ports, so probes pass, and
//! answers other requests with 501 Not Implemented.

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use embedded::ports::{ContainerConfig, ContainerExit};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::container_exit::{EXIT_CODE_SIGTERM, exited};

/// Serves the declared ports until `shutdown` is cancelled.
pub(crate) async fn run(container: ContainerConfig, shutdown: CancellationToken) -> ContainerExit {
    let image = &container.image;
    container.log.write_line(&format!("image {image} is not a known engine: running a stub that only answers probes"));
    let mut servers = JoinSet::new();
    for port in &container.ports {
        match TcpListener::bind((container.pod_ip, *port)).await {
            Ok(listener) => {
                let server =
                    axum::serve(listener, router(image)).with_graceful_shutdown(shutdown.clone().cancelled_owned());
                servers.spawn(server.into_future());
            }
            Err(error) => container.log.write_line(&format!("port {port}: {error}")),
        }
    }
    shutdown.cancelled().await;
    exited(EXIT_CODE_SIGTERM)
}

fn router(image: &str) -> Router {
    let message = format!("image {image} is not a known engine and is simulated by a stub");
    Router::new().fallback(async move |method: Method| respond(&method, &message))
}

/// Responds with 200 to GET and HEAD, so HTTP probes pass, and with 501 to other methods.
fn respond(method: &Method, message: &str) -> Response {
    if matches!(*method, Method::GET | Method::HEAD) {
        return StatusCode::OK.into_response();
    }
    let error = json!({"error": {"message": message, "type": "not_implemented", "code": 501}});
    (StatusCode::NOT_IMPLEMENTED, axum::Json(error)).into_response()
}
