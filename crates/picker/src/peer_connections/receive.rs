//! Receives the messages of a peer.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::BytesMut;
use futures::{FutureExt, Stream, StreamExt};
use tokio::{
    net::TcpStream,
    task::coop::unconstrained,
    time::{Instant, sleep, timeout},
};
use tokio_util::codec::FramedRead;

use super::{peer_certificate::PeerCertificate, protocol::framing};
use crate::scheduler::Scheduler;

/// How long a peer may send nothing; it sends ten messages per second.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two batches of messages, which limits the CPU time for those of one peer.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Size in bytes at which a batch of messages ends.
const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// Maximum number of messages in a batch.
const MAX_BATCH_MESSAGES: usize = 1_024;

/// Messages that were readable at the same time.
#[derive(Debug)]
struct Batch {
    messages: Vec<BytesMut>,
    /// The error after them.
    error: Option<io::Error>,
}

/// Receives the messages of one connection until it is closed or a message is invalid.
pub(super) async fn receive(stream: TcpStream, certificate: Arc<PeerCertificate>, scheduler: Arc<Scheduler>) {
    let peer = stream.peer_addr().ok();
    match certificate.accept(stream).await {
        Ok(stream) => record_messages(FramedRead::new(stream, framing()), peer, &scheduler).await,
        Err(error) => tracing::debug!(?peer, %error, "rejected a connection of a peer"),
    }
}

/// Records messages until their stream ends or one is invalid. Messages that waited while this process was stopped are recorded
/// together: only the loads of the newest are still true.
async fn record_messages(
    mut messages: impl Stream<Item = io::Result<BytesMut>> + Unpin,
    peer: Option<SocketAddr>,
    scheduler: &Scheduler,
) {
    while let Ok(Some(Batch { messages, error })) = timeout(RECEIVE_TIMEOUT, next_batch(&mut messages)).await {
        if let Err(error) = scheduler.record_peer_messages(&messages, Instant::now()) {
            return close_after_invalid_message(peer, &error);
        }
        match error {
            // A message that is too long.
            Some(error) if error.kind() == io::ErrorKind::InvalidData => {
                scheduler.metrics.rejected_peer_messages.inc();
                return close_after_invalid_message(peer, &error);
            }
            Some(error) => return tracing::info!(?peer, %error, "lost the connection of a peer"),
            None => sleep(MIN_INTERVAL).await,
        }
    }
}

fn close_after_invalid_message(peer: Option<SocketAddr>, error: &dyn std::error::Error) {
    tracing::warn!(?peer, %error, "closed the connection of a peer after an invalid message");
}

/// Waits for a message, and returns it with those that are readable after it, `None` after the last one.
async fn next_batch(messages: &mut (impl Stream<Item = io::Result<BytesMut>> + Unpin)) -> Option<Batch> {
    let mut next = Some(messages.next().await?);
    let mut batch = Batch { messages: Vec::new(), error: None };
    let mut bytes = 0;
    while let Some(result) = next {
        match result {
            Ok(message) => {
                bytes += message.len();
                batch.messages.push(message);
            }
            Err(error) => {
                batch.error = Some(error);
                break;
            }
        }
        let is_full = bytes >= MAX_BATCH_BYTES || batch.messages.len() >= MAX_BATCH_MESSAGES;
        // `unconstrained`: the budget of a task would make readable messages pending. The batch has limits of its own.
        next = if is_full { None } else { unconstrained(messages.next()).now_or_never().flatten() };
    }
    Some(batch)
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;
    use crate::{
        peers::{EndpointKey, EndpointLoad, EndpointUpdate, MAX_MESSAGE_BYTES, ReplicaId, ReplicaState, encode},
        policy::SchedulingPolicy,
    };

    /// Returns a message of a peer with this number of requests in flight at an endpoint.
    fn message(sequence: u64, endpoint: &EndpointKey, requests: usize) -> BytesMut {
        let load = EndpointLoad { requests, ..EndpointLoad::default() };
        let state = ReplicaState {
            replica: ReplicaId { name: "peer".to_owned(), incarnation: 1 },
            sequence,
            endpoints: vec![EndpointUpdate { endpoint: endpoint.clone(), load, prefixes: Vec::new() }],
            flows: Vec::new(),
        };
        BytesMut::from(&*encode(state))
    }

    /// The messages of eight seconds wait at the start.
    #[tokio::test(start_paused = true)]
    async fn buffered_messages_are_recorded_together() {
        let scheduler = Scheduler::new(SchedulingPolicy::default(), 1);
        scheduler.enable_peers(ReplicaId { name: "own".to_owned(), incarnation: 1 });
        let key = EndpointKey { address: ([10, 0, 0, 1], 8000).into(), pod_uid: "uid".to_owned() };
        let endpoint = scheduler.endpoint_state(key.address, &key.pod_uid);
        let (count, newest) = (400, 3);
        let load = |sequence| if sequence == count { newest } else { 100 };
        let buffered = (1..=count).map(|sequence| Ok(message(sequence, &key, load(sequence))));
        let messages = stream::iter(buffered).chain(stream::pending());
        timeout(MIN_INTERVAL / 2, record_messages(messages, None, &scheduler)).await.unwrap_err();
        scheduler.peer_message(Instant::now());
        assert_eq!(endpoint.requests(), newest);
    }

    #[tokio::test(start_paused = true)]
    async fn batch_is_limited_and_ends_with_an_error() {
        let sizes = [MAX_BATCH_BYTES - 1, MAX_MESSAGE_BYTES, 1].map(|size| Ok(BytesMut::zeroed(size)));
        let small = (0..=MAX_BATCH_MESSAGES).map(|_| Ok(BytesMut::new()));
        let error = [Err(io::ErrorKind::ConnectionReset.into()), Ok(BytesMut::new())];
        let mut messages = stream::iter(sizes).chain(stream::iter(small)).chain(stream::iter(error));
        let mut batches = Vec::new();
        while let Some(batch) = next_batch(&mut messages).await {
            batches.push((batch.messages.len(), batch.error.is_some()));
        }
        assert_eq!(batches, [(2, false), (MAX_BATCH_MESSAGES, false), (2, true), (1, false)]);
    }
}
