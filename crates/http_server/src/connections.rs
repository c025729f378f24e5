//! Connections of one listener, each in its own task.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Delay after a failed accept, for example because of too many open files, so that other connections can close.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);

/// What happens to a client that connects while the maximum number of connections is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// It waits in the queue of the listener until another connection is closed.
    Wait,
    /// It replaces the oldest connection, so that clients which hold connections cannot exclude others. For short requests.
    CloseOldest,
}

/// Open connections; dropping the value aborts them.
pub struct Connections(JoinSet<()>);

// === impl Connections ===

impl Connections {
    /// Accepts connections until `shutdown`, and runs `serve` for each. `overload` determines what happens beyond `limit`
    /// connections.
    pub async fn accept<F>(
        listener: &TcpListener,
        limit: usize,
        overload: Overload,
        shutdown: &CancellationToken,
        serve: impl Fn(TcpStream) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Self(tasks),
                Some(result) = tasks.join_next() => log_panic(result),
                accepted = listener.accept(), if tasks.len() < limit || overload == Overload::CloseOldest => match accepted {
                    Ok((stream, _)) => {
                        if overload == Overload::CloseOldest {
                            close_oldest(&mut oldest_first, limit);
                        }
                        let task = tasks.spawn(serve(stream));
                        match overload {
                            Overload::CloseOldest => oldest_first.push_back(task),
                            Overload::Wait if tasks.len() == limit => {
                                tracing::warn!(limit, "further clients wait for a connection: close unused ones");
                            }
                            Overload::Wait => {}
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

    /// Returns the number of open connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no connection is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits up to `grace_period` for the connections to close, then aborts the remaining ones.
    pub async fn drain(mut self, grace_period: Duration) {
        let join_all = async {
            while let Some(result) = self.0.join_next().await {
                log_panic(result);
            }
        };
        if timeout(grace_period, join_all).await.is_err() {
            tracing::debug!("aborted connections that did not close within the grace period");
        }
    }
}

/// Logs the panic of a connection's task, which closed the connection.
fn log_panic(result: Result<(), JoinError>) {
    if let Err(error) = result
        && error.is_panic()
    {
        tracing::error!(%error, "failed to serve a connection");
    }
}

/// Closes the oldest of `limit` open connections, so that there is one less. Connections that were closed before do not count.
fn close_oldest(oldest_first: &mut VecDeque<AbortHandle>, limit: usize) {
    oldest_first.retain(|task| !task.is_finished());
    if oldest_first.len() >= limit
        && let Some(oldest) = oldest_first.pop_front()
    {
        oldest.abort();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
        let (connections, ()) =
            tokio::join!(Connections::accept(&listener, 2, Overload::Wait, &shutdown, serve), check);
        drop(connections);
    }

    /// The connection that has ended was not joined yet, nor is the one that was aborted.
    #[tokio::test]
    async fn closed_connections_do_not_count_towards_the_limit() {
        let mut tasks = JoinSet::new();
        let mut spawn = |ends: bool| {
            tasks.spawn(async move {
                if !ends {
                    std::future::pending::<()>().await;
                }
            })
        };
        let [first, ended, third, fourth] = [spawn(false), spawn(true), spawn(false), spawn(false)];
        let mut open = VecDeque::from([first.clone(), ended]);
        tokio::task::yield_now().await;
        close_oldest(&mut open, 2);
        open.push_back(third.clone());
        tokio::task::yield_now().await;
        assert!(!first.is_finished(), "only one connection was open");
        close_oldest(&mut open, 2);
        open.push_back(fourth.clone());
        tokio::task::yield_now().await;
        assert_eq!([&first, &third, &fourth].map(AbortHandle::is_finished), [true, false, false]);
    }

    /// Accepts two connections, which receive one byte and stay open until further clients replace them.
    async fn start_replacing() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let serve = |mut stream: TcpStream| async move {
                stream.write_all(b"a").await.ok();
                std::future::pending::<()>().await;
            };
            let shutdown = CancellationToken::new();
            Connections::accept(&listener, 2, Overload::CloseOldest, &shutdown, serve).await
        });
        address
    }

    #[tokio::test]
    async fn new_client_replaces_the_oldest_connection() {
        let address = start_replacing().await;
        let mut connections = Vec::new();
        for _ in 0..10 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'a');
            connections.push(stream);
        }
        for closed in &mut connections[..8] {
            assert!(closed.read_u8().await.is_err());
        }
        for open in &mut connections[8..] {
            assert!(open.try_read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
        }
    }
}
