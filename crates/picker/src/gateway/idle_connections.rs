//! Idle connections to engines.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::engine_connection::EngineConnection;

/// Maximum idle time of a connection. vLLM closes idle connections after five seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum number of idle connections to one engine. More requests than this rarely run on an engine at the same time.
const MAX_IDLE_CONNECTIONS: usize = 256;

/// Idle connections by the address of their engine, which are closed after [`IDLE_TIMEOUT`].
#[derive(Debug, Default)]
pub(super) struct IdleConnections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The most recently used connection of an engine is the last.
    by_engine: BTreeMap<SocketAddr, Vec<IdleConnection>>,
    /// Whether the task runs that closes connections. It ends when there are none.
    is_closing_task_running: bool,
}

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
            let mut idle = self.state().by_engine.get_mut(&engine)?.pop()?;
            if idle.is_usable(Instant::now()) && idle.connection.is_idle() {
                return Some(idle.connection);
            }
        }
    }

    /// Keeps an idle connection open for the next request.
    pub(super) fn put(
        self: &Arc<Self>,
        engine: SocketAddr,
        connection: EngineConnection,
        pod_deleted: CancellationToken,
    ) {
        let mut state = self.state();
        let connections = state.by_engine.entry(engine).or_default();
        if connections.len() < MAX_IDLE_CONNECTIONS {
            connections.push(IdleConnection { connection, idle_since: Instant::now(), pod_deleted });
        }
        if !std::mem::replace(&mut state.is_closing_task_running, true) {
            let idle_connections = Arc::downgrade(self);
            tokio::spawn(async move {
                loop {
                    sleep(IDLE_TIMEOUT).await;
                    let Some(idle_connections) = idle_connections.upgrade() else { return };
                    if !idle_connections.close_unusable() {
                        return;
                    }
                }
            });
        }
    }

    /// Closes the connections that are no longer used. Returns whether some remain.
    fn close_unusable(&self) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        state.by_engine.retain(|_, connections| {
            connections.retain(|connection| connection.is_usable(now));
            !connections.is_empty()
        });
        state.is_closing_task_running = !state.by_engine.is_empty();
        state.is_closing_task_running
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
        let (address, idle_connections) = (listener.local_addr().unwrap(), Arc::<IdleConnections>::default());
        for _ in 0..=MAX_IDLE_CONNECTIONS {
            let stream = WriteTimeout::new(TcpStream::connect(address).await.unwrap(), Duration::MAX);
            let connection = EngineConnection::new(stream, HeaderValue::from_static("engine")).await.unwrap();
            idle_connections.put(address, connection, CancellationToken::new());
            listener.accept().await.unwrap();
        }
        assert_eq!(idle_connections.state().by_engine[&address].len(), MAX_IDLE_CONNECTIONS);
    }
}
