//! Idle connections to engines.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::engine_connection::EngineConnection;

/// Maximum idle time of a connection. vLLM closes idle connections after five seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum number of idle connections to one engine. More requests than this rarely run on an engine at the same time.
const MAX_IDLE_CONNECTIONS: usize = 256;

/// Idle connections.
#[derive(Debug, Default)]
pub(super) struct IdleConnections(Mutex<ConnectionsByEngine>);

/// The most recently used connection of an engine is the last.
type ConnectionsByEngine = BTreeMap<SocketAddr, Vec<IdleConnection>>;

/// A connection without a request.
#[derive(Debug)]
struct IdleConnection {
    connection: EngineConnection,
    idle_since: Instant,
    /// Cancelled when the Pod of the engine is deleted; another Pod may reuse its address.
    pod_deleted: CancellationToken,
}

// === impl IdleConnections ===

impl IdleConnections {
    /// Returns an open connection to `engine`, if there is one.
    pub(super) fn take(&self, engine: SocketAddr) -> Option<EngineConnection> {
        loop {
            let mut idle = self.lock().get_mut(&engine)?.pop()?;
            if idle.is_usable(Instant::now()) && idle.connection.is_idle() {
                return Some(idle.connection);
            }
        }
    }

    /// Keeps an idle connection open for the next request.
    pub(super) fn put(&self, engine: SocketAddr, connection: EngineConnection, pod_deleted: CancellationToken) {
        let mut connections = self.lock();
        let connections = connections.entry(engine).or_default();
        if connections.len() < MAX_IDLE_CONNECTIONS {
            connections.push(IdleConnection { connection, idle_since: Instant::now(), pod_deleted });
        }
    }

    /// Closes connections after [`IDLE_TIMEOUT`], forever.
    pub(super) async fn close_unusable(&self) {
        loop {
            sleep(IDLE_TIMEOUT).await;
            let now = Instant::now();
            self.lock().retain(|_, connections| {
                connections.retain(|connection| connection.is_usable(now));
                !connections.is_empty()
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionsByEngine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl IdleConnection ===

impl IdleConnection {
    fn is_usable(&self, now: Instant) -> bool {
        now.duration_since(self.idle_since) < IDLE_TIMEOUT && !self.pod_deleted.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http_server::WriteTimeout;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn number_of_idle_connections_is_limited() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, idle_connections) = (listener.local_addr().unwrap(), IdleConnections::default());
        for _ in 0..=MAX_IDLE_CONNECTIONS {
            let stream = WriteTimeout::new(TcpStream::connect(address).await.unwrap(), Duration::MAX);
            let connection = EngineConnection::new(stream, HeaderValue::from_static("engine")).await.unwrap();
            idle_connections.put(address, connection, CancellationToken::new());
            listener.accept().await.unwrap();
        }
        assert_eq!(idle_connections.lock()[&address].len(), MAX_IDLE_CONNECTIONS);
    }
}
