//! Connections of one listener, each in its own task.

use std::{future::Future, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// Delay after a failed accept, such as for lack of file descriptors, so that other connections can close.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);

/// Open connections; dropping aborts them.
pub(crate) struct Connections(JoinSet<()>);

// === impl Connections ===

impl Connections {
    /// Accepts connections until `shutdown`, and runs `connection` for each.
    pub(crate) async fn accept<F>(
        listener: &TcpListener,
        shutdown: &CancellationToken,
        connection: impl Fn(TcpStream) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Self(open),
                Some(_) = open.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        open.spawn(connection(stream));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection");
                        sleep(ACCEPT_RETRY_DELAY).await;
                    }
                }
            }
        }
    }

    /// Waits up to `grace_period` for the connections to end, then aborts the rest.
    pub(crate) async fn drain(mut self, grace_period: Duration) {
        let all_ended = async { while self.0.join_next().await.is_some() {} };
        if timeout(grace_period, all_ended).await.is_err() {
            tracing::debug!("aborted connections that did not end within the grace period");
        }
    }
}
