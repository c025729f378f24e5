//! The native gateway: HTTP/1.1 and 2 in, HTTP/1.1 to the engines, no sidecar.

mod engines;
mod openai;
mod path;
mod proxy;
mod relay;

use std::{io, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::pool::Pools;
use proxy::Proxy;

/// Idle client connections, and heads that do not end, are closed after this.
const IDLE: Duration = Duration::from_secs(60);

/// How long running answers may go on after `stop`.
const DRAIN: Duration = Duration::from_secs(2);

/// Serves on `listener` until `stop`, then lets running answers end for two seconds.
///
/// # Errors
/// None at present; accepting goes on after a failed connection.
pub async fn serve(listener: TcpListener, pools: Arc<Pools>, stop: CancellationToken) -> io::Result<()> {
    let proxy = Arc::new(Proxy::new(pools));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&proxy), stop.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of file descriptors: give others time to close.
                    sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
    drop(listener);
    let _ = timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
    Ok(())
}

async fn connection(stream: TcpStream, proxy: Arc<Proxy>, stop: CancellationToken) {
    // Head and first token leave when they are there, not when the client has acknowledged the packet before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let service = service_fn(move |request| {
        let proxy = Arc::clone(&proxy);
        async move { Ok::<_, std::convert::Infallible>(proxy.answer(request).await) }
    });
    let mut server = Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
