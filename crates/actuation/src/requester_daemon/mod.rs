//! The requester: the program in the Pod that users create. It reports the accelerators of its container, and whether its engine,
//! which runs in another Pod, is ready.
//!
//! Layers: `log_copy` → `routes` → [`RequesterDaemon`].

mod log_copy;
mod routes;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use http_server::{ConnectionLimits, Connections, Overload, serve_connection};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::accelerators::{find_accelerators, without_indexes};
use routes::{Discovery, RequesterState};

/// Maximum number of connections of one interface.
const MAX_CONNECTIONS: usize = 64;
/// Part of the grace period that remains to end the process.
const RESERVED_GRACE: Duration = Duration::from_secs(1);
/// How long responses in progress may take after the end.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// Options of the requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequesterOptions {
    /// Address to listen on.
    pub address: IpAddr,
    /// Port of the readiness probe.
    pub probes_port: u16,
    /// Port of the SPI.
    pub spi_port: u16,
    /// Port of the metrics.
    pub metrics_port: Option<u16>,
    /// Port of `/debug/state`.
    pub debug_port: Option<u16>,
    /// UUIDs to report instead of the accelerators of the container.
    pub mock_accelerators: Option<Vec<String>>,
    /// Whether to stay up after a termination signal until a controller releases the requester, so that the kubelet does not
    /// assign its accelerators to another Pod while the engine uses them.
    pub hold: bool,
    /// Grace period of the Pod.
    pub grace_period: Duration,
}

/// A requester that listens.
#[derive(Debug)]
pub struct RequesterDaemon {
    options: RequesterOptions,
    state: Arc<RequesterState>,
    discovery: watch::Sender<Discovery>,
    interfaces: Vec<(TcpListener, Router)>,
}

// === impl RequesterDaemon ===

impl RequesterDaemon {
    /// Listens on the ports.
    ///
    /// # Errors
    /// A port cannot be bound.
    pub async fn bind(options: RequesterOptions) -> io::Result<RequesterDaemon> {
        let (discovery, accelerators) = watch::channel(None);
        let state = Arc::new(RequesterState::new(accelerators));
        let mut routers = vec![
            (options.probes_port, routes::probes(Arc::clone(&state))),
            (options.spi_port, routes::spi(Arc::clone(&state))),
        ];
        routers.extend(options.metrics_port.map(|port| (port, routes::metrics(Arc::clone(&state)))));
        routers.extend(options.debug_port.map(|port| (port, routes::debug(Arc::clone(&state)))));
        let mut interfaces = Vec::new();
        for (port, router) in routers {
            let address = SocketAddr::new(options.address, port);
            let listener = TcpListener::bind(address)
                .await
                .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
            interfaces.push((listener, router));
        }
        Ok(RequesterDaemon { options, state, discovery, interfaces })
    }

    /// Returns the addresses of probes, SPI, metrics and debugging, of those that are served.
    ///
    /// # Errors
    /// The operating system does not report an address.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.interfaces.iter().map(|(listener, _)| listener.local_addr()).collect()
    }

    /// Serves until `terminate` is cancelled and, if it holds its accelerators, until it is released or a second before the end of
    /// the grace period.
    ///
    /// # Errors
    /// A task panicked.
    pub async fn run(self, terminate: CancellationToken) -> io::Result<()> {
        let RequesterDaemon { options, state, discovery, interfaces } = self;
        let close = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for (listener, router) in interfaces {
            tasks.spawn(serve(listener, router, close.clone()));
        }
        tasks.spawn(discover(options.mock_accelerators.clone(), discovery));
        let ended = async {
            terminate.cancelled().await;
            if options.hold && state.is_held.load(Ordering::Relaxed) {
                wait_for_release(&state, options.grace_period).await;
            }
        };
        let mut ended = std::pin::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => break,
                Some(task) = tasks.join_next() => task.map_err(io::Error::other)?,
            }
        }
        close.cancel();
        while let Some(task) = tasks.join_next().await {
            task.map_err(io::Error::other)?;
        }
        Ok(())
    }
}

async fn wait_for_release(state: &RequesterState, grace_period: Duration) {
    tracing::info!("waiting until the controller releases the requester");
    let limit = grace_period.saturating_sub(RESERVED_GRACE);
    if tokio::time::timeout(limit, state.released.cancelled()).await.is_err() {
        tracing::warn!("the grace period ends, but the controller has not released the requester");
    }
}

async fn discover(mock: Option<Vec<String>>, discovery: watch::Sender<Discovery>) {
    let found = match mock {
        Some(uuids) => Ok(without_indexes(uuids)),
        None => find_accelerators().await,
    };
    match &found {
        Ok(accelerators) => {
            let uuids: Vec<&str> = accelerators.iter().map(|accelerator| accelerator.uuid.as_str()).collect();
            tracing::info!(accelerators = uuids.join(","), "found accelerators");
        }
        Err(error) => tracing::error!(error, "found no accelerators"),
    }
    discovery.send_replace(Some(found));
}

async fn serve(listener: TcpListener, router: Router, close: CancellationToken) {
    let connections = Connections::accept(&listener, MAX_CONNECTIONS, Overload::CloseOldest, &close, |stream| {
        let service = TowerToHyperService::new(router.clone());
        serve_connection(stream, service, ConnectionLimits::default(), close.clone())
    });
    connections.await.drain(CLOSE_TIMEOUT).await;
}
