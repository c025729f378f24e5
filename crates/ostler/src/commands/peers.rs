//! Flags of the exchange between replicas of the gateway or of the endpoint picker.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use picker::{PeerCertificate, PeerOptions, ReplicaId};
use tokio::net::TcpListener;

use crate::listener;

/// Flags of the exchange between replicas.
#[derive(clap::Args)]
pub(crate) struct PeerArgs {
    /// Share load, fairness and prefixes with the replicas of this headless Service
    ///
    /// The value is the DNS name of the Service, such as ostler-gateway-peers.ome-system.svc, which resolves to the addresses of the
    /// replicas. Their certificate is valid for this name. Without it, each replica knows only its own requests and the metrics of the
    /// engines.
    #[arg(long, value_name = "NAME", requires = "peer_cert_path")]
    peer_service: Option<String>,
    /// Listen for other replicas on this address; they listen on the same port
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:9467")]
    peer_listen: SocketAddr,
    /// Authenticate replicas with tls.crt, tls.key and ca.crt of this directory
    ///
    /// The files are reloaded when they change. While they do not exist, replicas share nothing.
    #[arg(long, value_name = "DIR", requires = "peer_service")]
    peer_cert_path: Option<PathBuf>,
}

// === impl PeerArgs ===

impl PeerArgs {
    /// Binds the listener for other replicas, if they are configured.
    ///
    /// # Errors
    /// The address is in use, or the name of the Service is not a DNS name.
    pub(crate) async fn bind(&self) -> Result<Option<(TcpListener, PeerOptions)>> {
        let (Some(service), Some(directory)) = (&self.peer_service, &self.peer_cert_path) else { return Ok(None) };
        let certificate = PeerCertificate::from_directory(directory, service)
            .map_err(|error| anyhow!("invalid value '{service}' for '--peer-service <NAME>': {error}"))?;
        let listener = listener::bind(self.peer_listen, "--peer-listen").await?;
        let replica = ReplicaId { name: replica_name(listener.local_addr()?), incarnation: start_time() };
        let options = PeerOptions { service: service.clone(), certificate: Arc::new(certificate), replica };
        Ok(Some((listener, options)))
    }
}

/// Returns the name of this replica: that of its Pod, or else the address on which it listens.
fn replica_name(address: SocketAddr) -> String {
    let host = env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    host.map_or_else(|| address.to_string(), |host| format!("{host}:{}", address.port()))
}

/// Returns the time in nanoseconds since 1970, which is higher after a restart.
fn start_time() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
