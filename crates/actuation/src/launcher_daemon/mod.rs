//! The launcher: the program in a Pod that starts several engines as processes, its *instances*, and deletes them on request. Its
//! REST API is that of llm-d's launcher.
//!
//! Layers: `error` → `config`, `history`, `byte_range` → `table` (all pure) → `instance_log`, `processes`, `gpus` → `instance` → `state` →
//! `lifecycle`, `watch_stream` → `routes` → [`LauncherDaemon`].

mod byte_range;
mod config;
mod error;
mod gpus;
mod history;
mod instance;
mod instance_log;
mod lifecycle;
mod processes;
mod routes;
mod state;
mod table;
mod watch_stream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http_server::{ConnectionLimits, Connections, Overload, serve_connection};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use gpus::GpuSource;
use instance::StartedInstance;
pub use instance::{EngineCommand, EngineRunner};
use lifecycle::run_instance;
pub use state::InstanceOptions;
use state::LauncherState;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 128;
/// How long responses in progress may take after the end.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// Options of the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherOptions {
    /// Address of the REST API.
    pub address: SocketAddr,
    /// How instances run.
    pub instances: InstanceOptions,
}

/// A launcher that listens.
pub struct LauncherDaemon {
    listener: TcpListener,
    state: Arc<LauncherState>,
    started: mpsc::Receiver<StartedInstance>,
}

// === impl LauncherDaemon ===

impl LauncherDaemon {
    /// Listens on the address.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn bind(options: LauncherOptions) -> io::Result<LauncherDaemon> {
        LauncherDaemon::bind_with(options, None).await
    }

    /// Listens on the address; `runner` runs the engines.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn bind_with(
        options: LauncherOptions,
        runner: Option<Arc<dyn EngineRunner>>,
    ) -> io::Result<LauncherDaemon> {
        let address = options.address;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
        let (sender, started) = mpsc::channel(1);
        Ok(LauncherDaemon { listener, state: Arc::new(LauncherState::new(options.instances, runner, sender)), started })
    }

    /// Returns the address of the REST API.
    ///
    /// # Errors
    /// The operating system does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `terminate` is cancelled; then deletes all instances, and returns once their processes have ended. Requests are
    /// answered until then, so that clients observe the deletions.
    ///
    /// # Errors
    /// A task panicked.
    pub async fn run(self, terminate: CancellationToken) -> io::Result<()> {
        let LauncherDaemon { listener, state, mut started } = self;
        if !state.runs_in_process() {
            processes::adopt_orphans();
        }
        let close = CancellationToken::new();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, routes::routes(Arc::clone(&state)), close.clone()));
        let mut tasks = JoinSet::new();
        let ended = async {
            terminate.cancelled().await;
            state.ends.cancel();
            let deleted = state.delete_all().await;
            deleted.map_err(|error| io::Error::other(error.to_string())).map(drop)
        };
        let mut ended = std::pin::pin!(ended);
        let result = loop {
            tokio::select! {
                result = &mut ended => break result,
                Some(instance) = started.recv() => drop(tasks.spawn(run_instance(instance, Arc::clone(&state)))),
                Some(task) = tasks.join_next() => task.map_err(io::Error::other)?,
                Some(task) = server.join_next() => task.map_err(io::Error::other)?,
            }
        };
        close.cancel();
        while let Some(task) = server.join_next().await {
            task.map_err(io::Error::other)?;
        }
        result
    }
}

async fn serve(listener: TcpListener, router: Router, close: CancellationToken) {
    let connections = Connections::accept(&listener, MAX_CONNECTIONS, Overload::CloseOldest, &close, |stream| {
        let service = TowerToHyperService::new(router.clone());
        serve_connection(stream, service, ConnectionLimits::default(), close.clone())
    });
    connections.await.drain(CLOSE_TIMEOUT).await;
}
