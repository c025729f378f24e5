//! Connections between the replicas of a gateway or endpoint picker, over which they exchange their states.
//!
//! Each replica connects to all others, which are the addresses of a headless Service in DNS, and sends its state ten times per
//! second, and up to 50 times while it sends requests to engines; it receives theirs over the connections that they open. DNS needs no
//! permission in the Kubernetes API and works while the API server does not. Both sides prove with certificates of one authority that
//! they belong to the Service (mutual TLS). A message is a length of four bytes and a Protobuf message; both sides negotiate the version
//! of this protocol (ALPN).
//!
//! Nothing of this affects a request: all operations have time limits, a slow peer misses messages, and lost connections are opened
//! again.

mod discovery;
mod peer_certificate;
mod protocol;
mod receive;
mod send;
mod supervised_task;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_server::{Connections, Overload};
use tokio::{
    net::TcpListener,
    sync::broadcast,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use crate::{
    peers::{PEER_UPDATE_INTERVAL, ReplicaId},
    scheduler::Scheduler,
};
use discovery::{Discovery, look_up};

pub use peer_certificate::{PeerCertificate, PeerCertificateError};

/// Maximum number of connections from peers.
const MAX_CONNECTIONS: usize = 128;

/// Number of messages that wait for a slow peer; the oldest are dropped.
const QUEUED_MESSAGES: usize = 8;

/// How replicas find and authenticate each other.
#[derive(Debug)]
pub struct PeerOptions {
    /// DNS name of the headless Service of the replicas, for which their certificate is valid.
    pub service: String,
    /// Certificate of the replicas.
    pub certificate: Arc<PeerCertificate>,
    /// This replica.
    pub replica: ReplicaId,
}

/// Exchanges the state of `scheduler` with other replicas until `shutdown`. Peers connect to `listener` and listen on the same port.
/// While the files of the certificate do not exist, no state is exchanged.
///
/// # Errors
/// None: a failure costs the knowledge of other replicas only.
pub async fn exchange_with_peers(
    listener: TcpListener,
    scheduler: Arc<Scheduler>,
    options: PeerOptions,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let PeerOptions { service, certificate, replica } = options;
    if shutdown.run_until_cancelled(certificate.wait_until_loaded(&service)).await.is_none() {
        return Ok(());
    }
    match listener.local_addr() {
        Ok(address) => {
            tracing::info!(%address, %service, replica = replica.name, "exchanging state with peers");
            let look_up = move || look_up(service.clone(), address.port());
            exchange(listener, address, scheduler, certificate, replica, look_up, shutdown).await;
        }
        Err(error) => {
            tracing::error!(%error, "failed to exchange state with peers");
            shutdown.cancelled().await;
        }
    }
    Ok(())
}

/// Exchanges states with the replicas at the addresses that `look_up` returns.
async fn exchange<F>(
    listener: TcpListener,
    address: SocketAddr,
    scheduler: Arc<Scheduler>,
    certificate: Arc<PeerCertificate>,
    replica: ReplicaId,
    look_up: impl Fn() -> F + Clone + Send + Sync + 'static,
    shutdown: CancellationToken,
) where
    F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
{
    scheduler.enable_peers(replica);
    let (messages, _) = broadcast::channel(QUEUED_MESSAGES);
    // The tasks of this exchange end with it.
    let stop = shutdown.child_token();
    let _stop = stop.clone().drop_guard();
    let supervisor = scheduler.supervisor.clone();
    supervised_task::spawn(&supervisor, "messages to peers", stop.clone(), {
        let (scheduler, messages) = (Arc::clone(&scheduler), messages.clone());
        move || publish(Arc::clone(&scheduler), messages.clone())
    });
    supervised_task::spawn(&supervisor, "certificate of peers", stop.clone(), {
        let certificate = Arc::clone(&certificate);
        move || Arc::clone(&certificate).reload_on_change()
    });
    let discovery = Arc::new(Discovery { own: address, certificate: Arc::clone(&certificate), messages });
    let task_supervisor = supervisor.clone();
    supervised_task::spawn(&supervisor, "discovery of peers", stop, move || {
        Arc::clone(&discovery).run(look_up.clone(), task_supervisor.clone())
    });
    let serve = |stream| receive::receive(stream, Arc::clone(&certificate), Arc::clone(&scheduler));
    // A client without a certificate must not close the connections of peers; its own ends after the time for a handshake.
    let connections = Connections::accept(&listener, MAX_CONNECTIONS, Overload::Wait, &shutdown, serve).await;
    connections.drain(Duration::ZERO).await;
}

/// Sends the state to all connected peers when it is due.
async fn publish(scheduler: Arc<Scheduler>, messages: broadcast::Sender<Bytes>) {
    let mut ticks = interval(PEER_UPDATE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(message) = scheduler.peer_message(Instant::now()) {
            // Without a connected peer there is no receiver.
            messages.send(Bytes::from(message)).ok();
        }
    }
}
