//! A stub for simulated containers that are not a known engine. It listens on the declared ports, so probes pass, and
//! answers other requests with 501 Not Implemented.

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use embedded::ports::{ContainerConfig, ContainerExit};
use http_server::{ConnectionLimits, Connections, Overload};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::container_exit::{EXIT_CODE_SIGTERM, exited};

/// Maximum number of connections of a port.
const MAX_CONNECTIONS: usize = 64;

/// Serves the declared ports until `shutdown` is cancelled.
pub(crate) async fn run(container: ContainerConfig, shutdown: CancellationToken) -> ContainerExit {
    let image = &container.image;
    container.log.write_line(&format!("image {image} is not a known engine: running a stub that only answers probes"));
    let mut servers = JoinSet::new();
    for port in &container.ports {
        match TcpListener::bind((container.pod_ip, *port)).await {
            Ok(listener) => {
                servers.spawn(serve(listener, router(image), shutdown.clone()));
            }
            Err(error) => container.log.write_line(&format!("port {port}: {error}")),
        }
    }
    shutdown.cancelled().await;
    exited(EXIT_CODE_SIGTERM)
}

/// Serves one port until `shutdown` is cancelled.
async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let connection = |stream| {
        let service = TowerToHyperService::new(router.clone());
        http_server::serve_connection(stream, service, ConnectionLimits::default(), shutdown.clone())
    };
    drop(Connections::accept(&listener, MAX_CONNECTIONS, Overload::CloseOldest, &shutdown, connection).await);
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn number_of_connections_is_limited() {
        let listener = TcpListener::bind((IpAddr::from([127, 0, 0, 1]), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let _server = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(serve(
            listener,
            router("nginx"),
            CancellationToken::new(),
        )));
        let mut streams = Vec::new();
        for _ in 0..=MAX_CONNECTIONS {
            streams.push(TcpStream::connect(address).await.unwrap());
        }
        let read = timeout(Duration::from_secs(300), streams[0].read(&mut [0; 1])).await;
        assert_eq!(read.expect("the oldest connection stays open").unwrap_or(0), 0);
    }
}
