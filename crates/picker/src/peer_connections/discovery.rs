//! Finds peers: the addresses of a headless Service in DNS.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use supervisor::Supervisor;
use tokio::{net::lookup_host, sync::broadcast::Sender, time::timeout};
use tokio_util::{sync::CancellationToken, sync::DropGuard};

use super::{
    peer_certificate::PeerCertificate,
    send::{PeerAddress, send},
    supervised_task::{self, sleep_about},
};
use crate::peers::MAX_PEERS;

/// Interval between look-ups: the usual time to live of the records of a headless Service.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long a look-up may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Finds peers and sends messages to them.
pub(super) struct Discovery {
    /// Address on which this replica listens.
    pub(super) own: SocketAddr,
    pub(super) certificate: Arc<PeerCertificate>,
    pub(super) messages: Sender<Bytes>,
}

/// Returns the addresses of a Service in DNS.
///
/// # Errors
/// The look-up fails or takes too long.
pub(super) async fn look_up(service: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(timeout(TIMEOUT, lookup_host((service, port))).await??.collect())
}

// === impl Discovery ===

impl Discovery {
    /// Looks up peers at intervals, and runs a task of `supervisor` for each. After a failed look-up, the peers remain.
    pub(super) async fn run<F>(self: Arc<Self>, look_up: impl Fn() -> F, supervisor: Supervisor)
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>>,
    {
        let mut peers: HashMap<SocketAddr, DropGuard> = HashMap::new();
        let mut has_failed = false;
        loop {
            match look_up().await {
                Ok(addresses) => {
                    has_failed = false;
                    let addresses: BTreeSet<SocketAddr> = addresses.into_iter().take(MAX_PEERS).collect();
                    peers.retain(|address, _| addresses.contains(address));
                    for address in addresses {
                        peers.entry(address).or_insert_with(|| self.start(address, &supervisor));
                    }
                }
                Err(error) if !has_failed => {
                    has_failed = true;
                    tracing::warn!(%error, "failed to find peers in DNS, retrying");
                }
                Err(_) => {}
            }
            sleep_about(INTERVAL).await;
        }
    }

    /// Sends messages to a peer until the returned guard is dropped.
    fn start(&self, address: SocketAddr, supervisor: &Supervisor) -> DropGuard {
        let (stop, peer) = (CancellationToken::new(), PeerAddress { address, own: self.own });
        let (certificate, messages) = (Arc::clone(&self.certificate), self.messages.clone());
        let name = format!("connection to peer {address}");
        supervised_task::spawn(supervisor, name, stop.clone(), move || {
            send(peer, Arc::clone(&certificate), messages.clone())
        });
        stop.drop_guard()
    }
}
