//! Receives the messages of a peer.

use std::{io, sync::Arc, time::Duration};

use futures::StreamExt;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};
use tokio_util::codec::FramedRead;

use super::{peer_certificate::PeerCertificate, protocol::framing};
use crate::scheduler::Scheduler;

/// How long a peer may send nothing; it sends ten messages per second.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// Minimum time between two messages, which limits the CPU time for those of one peer.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Receives the messages of one connection until it is closed or a message is invalid.
pub(super) async fn receive(stream: TcpStream, certificate: Arc<PeerCertificate>, scheduler: Arc<Scheduler>) {
    let peer = stream.peer_addr().ok();
    let stream = match certificate.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(?peer, %error, "rejected a connection of a peer"),
    };
    let mut messages = FramedRead::new(stream, framing());
    while let Ok(Some(message)) = timeout(MAX_SILENCE, messages.next()).await {
        let error = match message {
            Ok(message) => scheduler.record_peer_message(&message, Instant::now()).err().map(|error| error.to_string()),
            // A message that is too long.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                scheduler.metrics.rejected_peer_messages.inc();
                Some(error.to_string())
            }
            Err(error) => return tracing::info!(?peer, %error, "lost the connection of a peer"),
        };
        if let Some(error) = error {
            return tracing::warn!(?peer, %error, "closed the connection of a peer after an invalid message");
        }
        sleep(MIN_INTERVAL).await;
    }
}
