//! The native gateway: HTTP/1.1 and 2 in, HTTP/1.1 to the engines, no sidecar.

mod engines;
mod idle;
pub(crate) mod openai;
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
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{connections::Connections, pool::Pools};
use idle::Idle;
use proxy::Proxy;

/// Idle client connections, and heads that do not end, are closed after this.
const IDLE: Duration = Duration::from_secs(60);

/// Longest head of a request, in bytes; longer ones are refused with 431.
const LONGEST_HEAD: usize = 64 * 1024;

/// Requests that one HTTP/2 client may have running at a time.
const STREAMS: u32 = 256;

/// How long running answers may go on after `stop`.
const DRAIN: Duration = Duration::from_secs(2);

/// Serves on `listener` until `stop`, then lets running answers end for two seconds.
///
/// # Errors
/// None at present; accepting goes on after a failed connection.
pub async fn serve(listener: TcpListener, pools: Arc<Pools>, stop: CancellationToken) -> io::Result<()> {
    let proxy = Arc::new(Proxy::new(pools));
    let open =
        Connections::accept(&listener, &stop, |stream| connection(stream, Arc::clone(&proxy), stop.clone())).await;
    drop(listener);
    open.drain(DRAIN).await;
    Ok(())
}

async fn connection(stream: TcpStream, proxy: Arc<Proxy>, stop: CancellationToken) {
    // Head and first token leave when they are there, not when the client has acknowledged the packet before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let idle = Idle::new();
    let requests = Arc::clone(&idle);
    let service = service_fn(move |request| {
        let (proxy, busy) = (Arc::clone(&proxy), requests.begin());
        async move { Ok::<_, std::convert::Infallible>(proxy.answer(request).await.map(|body| body.while_busy(busy))) }
    });
    let mut server = Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(LONGEST_HEAD);
    server.http2().max_header_list_size(LONGEST_HEAD as u32).max_concurrent_streams(STREAMS);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = idle.passed(IDLE) => {
            connection.as_mut().graceful_shutdown();
            // A client that does not even take the goodbye is left alone.
            timeout(DRAIN, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
