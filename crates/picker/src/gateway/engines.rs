//! Connections to engines: kept while they are young, replaced when one turns out to be closed.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Extensions, Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_util::{
    client::legacy::{
        Client, Error,
        connect::{Connected, Connection, HttpConnector},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::{net::TcpStream, time::Instant};
use tower::util::MapResponse;

/// vLLM closes idle connections after five seconds; ours must be gone before.
const IDLE: Duration = Duration::from_secs(4);

/// Time to reach an endpoint.
const CONNECT: Duration = Duration::from_secs(2);

/// An engine that closes an idle connection does so within this time of our writing to it. Later failures are those of
/// an engine at work.
const CROSSED: Duration = Duration::from_secs(1);

type Connector = MapResponse<HttpConnector, fn(TokioIo<TcpStream>) -> Line>;

/// Sends requests to engines.
pub(super) struct Engines {
    kept: Client<Connector, Full<Bytes>>,
    /// Keeps no connection, so that what it sends meets none that is closed already.
    fresh: Client<Connector, Full<Bytes>>,
}

/// Whether a connection has carried an answer; shared by the connection, its answers and its errors.
#[derive(Debug, Clone, Default)]
struct Used(Arc<AtomicBool>);

/// A connection that knows whether it was used.
#[derive(Debug)]
struct Line {
    io: TokioIo<TcpStream>,
    used: Used,
}

impl Engines {
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        let connector: Connector = MapResponse::new(connector, |io| Line { io, used: Used::default() });
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
        let kept = builder.build(connector.clone());
        Self { kept, fresh: builder.pool_max_idle_per_host(0).build(connector) }
    }

    /// The head of the answer. A request that met a kept connection just as the engine closed it goes out again, to the
    /// same engine: it was never read there.
    ///
    /// # Errors
    /// When the engine cannot be reached, or ends before its answer begins.
    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        let (again, begun) = (request.clone(), Instant::now());
        match self.kept.request(request).await {
            Err(error) if was_used(&error) && begun.elapsed() < CROSSED => {
                tracing::debug!(%error, "a kept connection was closed; connecting anew");
                self.fresh.request(again).await
            }
            Err(error) => Err(error),
            Ok(answer) => {
                if let Some(Used(used)) = answer.extensions().get() {
                    used.store(true, Relaxed);
                }
                Ok(answer)
            }
        }
    }
}

fn was_used(error: &Error) -> bool {
    let mut extras = Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extras);
    }
    extras.get().is_some_and(|Used(used)| used.load(Relaxed))
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        self.io.connected().extra(self.used.clone())
    }
}

impl Read for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Line {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }
}
