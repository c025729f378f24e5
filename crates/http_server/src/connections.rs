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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn further_clients_wait_for_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let (accepted, mut clients) = mpsc::unbounded_channel();
        let serve = |mut stream: TcpStream| {
            accepted.send(stream.peer_addr().unwrap()).unwrap();
            async move { drop(stream.read(&mut [0]).await) }
        };
        let connect = async || TcpStream::connect(address).await.unwrap();
        let check = async {
            let (first, second, third) = (connect().await, connect().await, connect().await);
            for client in [&first, &second] {
                assert_eq!(clients.recv().await, client.local_addr().ok());
            }
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            assert!(clients.try_recv().is_err(), "the limit is reached");
            drop(first);
            assert_eq!(clients.recv().await, third.local_addr().ok());
            shutdown.cancel();
        };
        let (connections, ()) = tokio::join!(Connections::accept(&listener, 2, &shutdown, serve), check);
        drop(connections);
    }
}
