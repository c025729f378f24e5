//! Body of a response from an engine, which drives its connection.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::{engine_connection::EngineConnection, idle_connections::IdleConnections};

/// A body. After its end, the connection carries other requests; if it is dropped before, the connection is closed.
#[derive(Debug)]
pub(super) struct EngineResponseBody {
    incoming: Incoming,
    /// `None` after the end of the body.
    connection: Option<BorrowedConnection>,
    /// Why the body ends early, until the frames before are sent.
    error: Option<hyper::Error>,
}

/// A connection in use.
#[derive(Debug)]
pub(super) struct BorrowedConnection {
    pub(super) connection: EngineConnection,
    /// Where it belongs while it is idle.
    pub(super) idle_connections: Arc<IdleConnections>,
    pub(super) address: SocketAddr,
    /// Cancelled when the Pod of the engine is deleted.
    pub(super) pod_deleted: CancellationToken,
}

// === impl EngineResponseBody ===

impl EngineResponseBody {
    /// Returns the body of a response on `connection`.
    pub(super) fn new(incoming: Incoming, connection: BorrowedConnection) -> Self {
        let mut body = Self { incoming, connection: Some(connection), error: None };
        if body.incoming.is_end_stream() {
            body.release_connection();
        }
        body
    }

    fn release_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.release();
        }
    }
}

impl Body for EngineResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let mut frame = Pin::new(&mut self.incoming).poll_frame(context);
        if let (Poll::Pending, Some(BorrowedConnection { connection, .. })) = (&frame, &mut self.connection) {
            // If this closes the connection, the body ends or receives the error.
            let _ = connection.poll_driver(context);
            frame = Pin::new(&mut self.incoming).poll_frame(context);
        }
        match ready!(frame) {
            Some(Err(error)) => {
                (self.connection, self.error) = (None, Some(error));
                // The server drops what it has not sent when a body fails. It sends while the body is pending.
                context.waker().wake_by_ref();
                Poll::Pending
            }
            frame => {
                if frame.is_none() || self.incoming.is_end_stream() {
                    self.release_connection();
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

// === impl BorrowedConnection ===

impl BorrowedConnection {
    /// Returns the connection to the idle ones, or closes it if it cannot carry another request: the engine closed it, or
    /// responded before it had read the request.
    fn release(self) {
        let Self { mut connection, idle_connections, address, pod_deleted } = self;
        if connection.is_idle() {
            connection.is_reused = true;
            idle_connections.put(address, connection, pod_deleted);
        }
    }
}
