//! Serves the API over HTTPS on a loopback address. Clients authenticate with the client certificate or the bearer
//! token of the kubeconfig.

mod authentication;
mod connection;
mod credentials;
pub(crate) mod credentials_file;
mod kubeconfig;
mod private_file;
mod serve_error;
mod tls;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router, middleware};
use http_server::{Connections, Overload};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::http;
use crate::server::Server;
pub use credentials::Credentials;
pub use kubeconfig::{kubeconfig, write_kubeconfig};
pub use serve_error::ServeError;

/// Time limit for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of connections; further clients wait until one is closed. A process that cannot have more than 1,024 open
/// files has the rest for the gateway, the journal and the containers.
const MAX_CONNECTIONS: usize = 800;

/// Serves the API until `stop` is cancelled.
///
/// # Errors
/// If TLS cannot be set up, or the listener is unusable or not bound to a loopback address.
pub async fn serve(
    server: Server,
    listener: TcpListener,
    credentials: &Credentials,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls::server_config(credentials)?));
    let token: Arc<str> = format!("Bearer {}", credentials.token).into();
    let router = http::router(&server).layer(Extension(http::body_memory()));
    let router = router.layer(middleware::from_fn_with_state(token, authentication::authenticate));
    let connection = |stream: TcpStream| {
        // With Nagle's algorithm, the second segment of a response would wait for the acknowledgment of the first.
        stream.set_nodelay(true).ok();
        serve_connection(stream, acceptor.clone(), router.clone(), stop.clone())
    };
    // Abort open connections: watches do not end by themselves.
    drop(Connections::accept(&listener, MAX_CONNECTIONS, Overload::Wait, &stop, connection).await);
    Ok(())
}

async fn serve_connection(mut stream: TcpStream, acceptor: TlsAcceptor, router: Router, stop: CancellationToken) {
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && !tls::is_tls(first[0]) {
            stream.write_all(tls::PLAIN_HTTP_RESPONSE).await?;
            stream.shutdown().await?;
            return Err(io::Error::other("client sent plain HTTP"));
        }
        acceptor.accept(stream).await
    });
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    let router = match stream.get_ref().1.peer_certificates() {
        Some(_) => router.layer(Extension(authentication::ClientCertificate)),
        None => router,
    };
    connection::serve(stream, router, stop).await;
}
