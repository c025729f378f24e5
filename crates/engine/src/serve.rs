//! Sockets: accept, disable Nagle, answer, end.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Response, StatusCode},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{Config, http_api, simulator::Simulator};

/// Loads for [`Config::load_time`], then listens at [`Config::address`] and serves until `stop`: vLLM's own order,
/// connections are refused while loading.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn run(config: Config, stop: CancellationToken) -> io::Result<()> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = sleep(config.load_time) => {}
    }
    let listener = TcpListener::bind((config.address, config.port)).await?;
    serve(listener, Config { load_time: Duration::ZERO, ..config }, stop).await
}

/// The routes of an engine that has loaded, without a socket.
pub fn router(config: Config) -> Router {
    http_api::router(Simulator::new(config))
}

/// Serves on `listener` until `stop`; open connections end at once, as under vLLM's default shutdown.
/// While loading, every path answers 503 with an empty body.
///
/// # Errors
/// None at present; accepting goes on after a failed connection.
pub async fn serve(listener: TcpListener, config: Config, stop: CancellationToken) -> io::Result<()> {
    let face = Face {
        ready_at: Instant::now() + config.load_time,
        keep_alive: config.keep_alive,
        loading: Router::new().fallback(loading),
        router: router(config),
    };
    let face = Arc::new(face);
    // Dropping the set at the end aborts what is still open.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let face = Arc::clone(&face);
                    connections.spawn(face.connection(stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of file descriptors: give others time to close.
                    sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
}

struct Face {
    ready_at: Instant,
    keep_alive: Duration,
    loading: Router,
    router: Router,
}

impl Face {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // A token must leave when it is made, not when the peer has acknowledged the one before.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let keep_alive = self.keep_alive;
        let service = tower::service_fn(move |request: axum::http::Request<hyper::body::Incoming>| {
            let router = if Instant::now() < self.ready_at { self.loading.clone() } else { self.router.clone() };
            tower::ServiceExt::oneshot(router, request)
        });
        let mut server = Builder::new(TokioExecutor::new());
        // hyper counts idle time on a kept connection as time for reading the next head.
        server.http1().timer(TokioTimer::new()).header_read_timeout(keep_alive);
        let service = TowerToHyperService::new(service);
        if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "connection ended");
        }
    }
}

async fn loading() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}
