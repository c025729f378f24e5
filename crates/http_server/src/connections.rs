//! Connections of one listener, each in its own task.

use std::future::Future;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Delay after a failed accept, for example because of too many open files, so that other connections can close.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);

/// Open connections; dropping the value aborts them.
pub struct Connections(JoinSet<()>);

// === impl Connections ===

impl Connections {
    /// Accepts connections until `shutdown`, and runs `serve` for each. While `limit` connections are open, further clients
    /// wait in the queue of the listener.
    pub async fn accept<F>(
        listener: &TcpListener,
        limit: usize,
        shutdown: &CancellationToken,
        serve: impl Fn(TcpStream) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Self(tasks),
                Some(_) = tasks.join_next() => {}
                accepted = listener.accept(), if tasks.len() < limit => match accepted {
                    Ok((stream, _)) => {
                        tasks.spawn(serve(stream));
                        if tasks.len() == limit {
                            tracing::warn!(limit, "further clients wait for a connection: close unused ones");
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection");
                        sleep(ACCEPT_RETRY_DELAY).await;
                    }
                }
            }
        }
    }

    /// Waits up to `grace_period` for the connections to close, then aborts the remaining ones.
    pub async fn drain(mut self, grace_period: Duration) {
        let join_all = async { while self.0.join_next().await.is_some() {} };
        if timeout(grace_period, join_all).await.is_err() {
            tracing::debug!("aborted connections that did not close within the grace period");
        }
    }
}
