//! The connections of one listener: a task each, until they end or are ended.

use std::{future::Future, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// After a connection could not be accepted: out of file descriptors, say. Gives others time to close.
const PAUSE: Duration = Duration::from_millis(10);

/// Those that are open; dropped, they end at once.
pub(crate) struct Connections(JoinSet<()>);

// === impl Connections ===

impl Connections {
    /// Accepts until `stop`, and runs `connection` for each.
    pub(crate) async fn accept<F>(
        listener: &TcpListener,
        stop: &CancellationToken,
        connection: impl Fn(TcpStream) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Self(open),
                Some(_) = open.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        open.spawn(connection(stream));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    /// Lets them end by themselves, for so long.
    pub(crate) async fn drain(mut self, longest: Duration) {
        let ended = async { while self.0.join_next().await.is_some() {} };
        if timeout(longest, ended).await.is_err() {
            tracing::debug!("connections were cut at the end");
        }
    }
}
