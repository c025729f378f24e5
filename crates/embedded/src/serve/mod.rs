//! The API for kubectl: TLS on loopback, a client certificate and a token, kept in a kubeconfig that only its owner can
//! read. Either of them is enough.

mod credentials;
mod guard;
pub mod kept;
mod kubeconfig;
mod private;
mod tls;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router, middleware};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::server::Server;
pub use credentials::Credentials;
pub use kubeconfig::{kubeconfig, write_kubeconfig};

/// How long a client may take to say who it is, and then to send the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// What may go wrong before the first request.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    #[error("the listener could not be used")]
    Listen(#[from] io::Error),
    #[error("{0} is not a loopback address")]
    NotLoopback(SocketAddr),
    #[error("client certificates could not be set up")]
    Clients(#[from] rustls::server::VerifierBuilderError),
}

/// Serves until `stop`.
///
/// # Errors
/// When TLS cannot be set up, and when the listener is unusable or not bound to a loopback address.
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
    let acceptor = TlsAcceptor::from(Arc::new(tls::config(credentials)?));
    let token: Arc<str> = format!("Bearer {}", credentials.token).into();
    let router = server.router().layer(middleware::from_fn_with_state(token, guard::guard));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // An answer in two parts must not wait for the client's word on the first.
                stream.set_nodelay(true).ok();
                let (acceptor, router, stop) = (acceptor.clone(), router.clone(), stop.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = connection(stream, acceptor, router) => {}
                    }
                });
            }
            // Out of descriptors, say: wait for some connection to end.
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(mut stream: TcpStream, acceptor: TlsAcceptor, router: Router) {
    let greeting = tokio::time::timeout(PATIENCE, async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && !tls::is_tls(first[0]) {
            stream.write_all(tls::PLAIN).await?;
            stream.shutdown().await?;
            return Err(io::Error::other("no TLS"));
        }
        acceptor.accept(stream).await
    });
    let stream = match greeting.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "no TLS"),
        Err(_) => return tracing::debug!("a connection said nothing"),
    };
    let router = match stream.get_ref().1.peer_certificates() {
        Some(_) => router.layer(Extension(guard::Certified)),
        None => router,
    };
    let service = TowerToHyperService::new(router);
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended badly");
    }
}
