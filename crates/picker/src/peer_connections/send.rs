//! Sends messages to a peer.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::SinkExt;
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    sync::broadcast::{Receiver, Sender, error::RecvError},
    time::{Instant, timeout},
};
use tokio_util::codec::FramedWrite;

use super::{
    peer_certificate::PeerCertificate,
    protocol::{CONNECT_TIMEOUT, framing},
    supervised_task::sleep_about,
};

/// How long a message may take: the state in it is used for a second.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a connection is used, so that an expired certificate is not trusted for long.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(3_600);

/// First and longest pause between two connections.
const MIN_BACK_OFF: Duration = Duration::from_millis(100);
const MAX_BACK_OFF: Duration = Duration::from_secs(10);

/// A peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerAddress {
    pub(super) address: SocketAddr,
    /// Address on which this replica listens: DNS returns this replica too.
    pub(super) own: SocketAddr,
}

/// Sends all messages to a peer, and connects again after failures.
pub(super) async fn send(peer: PeerAddress, certificate: Arc<PeerCertificate>, messages: Sender<Bytes>) {
    let mut back_off = MIN_BACK_OFF;
    loop {
        let start = Instant::now();
        let result = timeout(MAX_CONNECTION_AGE, send_until_error(&peer, &certificate, &messages)).await;
        let PeerAddress { address, .. } = peer;
        match result {
            Ok(Ok(ConnectionEnd::OwnAddress)) => return std::future::pending().await,
            Ok(Ok(ConnectionEnd::Closed)) => tracing::info!(%address, "a peer closed the connection"),
            Ok(Err(error)) => tracing::debug!(%address, %error, "failed to send to a peer"),
            Err(_) => tracing::debug!(%address, "renewing the connection to a peer"),
        }
        // A peer that rejects the messages closes the connection soon.
        back_off = if start.elapsed() > MAX_BACK_OFF { MIN_BACK_OFF } else { back_off };
        sleep_about(back_off).await;
        back_off = back_off.saturating_mul(2).min(MAX_BACK_OFF);
    }
}

/// How a connection ended.
enum ConnectionEnd {
    /// The address is that of this replica.
    OwnAddress,
    /// The peer closed it.
    Closed,
}

async fn send_until_error(
    peer: &PeerAddress,
    certificate: &PeerCertificate,
    messages: &Sender<Bytes>,
) -> io::Result<ConnectionEnd> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(peer.address)).await??;
    let own_ip = if peer.own.ip().is_unspecified() { stream.local_addr()?.ip() } else { peer.own.ip() };
    if peer.address == SocketAddr::new(own_ip, peer.own.port()) {
        return Ok(ConnectionEnd::OwnAddress);
    }
    stream.set_nodelay(true)?;
    let stream = certificate.connect(stream).await?;
    tracing::info!(address = %peer.address, "connected to a peer");
    let (mut reader, writer) = tokio::io::split(stream);
    let mut writer = FramedWrite::new(writer, framing());
    let mut messages = messages.subscribe();
    let mut received = [0];
    loop {
        tokio::select! {
            // Peers send nothing over this connection.
            result = reader.read(&mut received) => return result.map(|_| ConnectionEnd::Closed),
            message = next(&mut messages) => timeout(SEND_TIMEOUT, writer.send(message)).await??,
        }
    }
}

/// Returns the next message. Those that were dropped because the peer is slow are skipped.
async fn next(messages: &mut Receiver<Bytes>) -> Bytes {
    loop {
        match messages.recv().await {
            Ok(message) => return message,
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
