//! Graceful shutdown of commands that run until they receive a signal.

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;

/// Returns a token that SIGINT or SIGTERM cancels. A second signal exits the process immediately.
pub(crate) fn shutdown_token() -> Result<CancellationToken> {
    // The handlers are registered first, so that no signal is missed.
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("signals")?;
    let shutdown = CancellationToken::new();
    let token = shutdown.clone();
    tokio::spawn(async move {
        let mut next_signal = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        next_signal().await;
        token.cancel();
        next_signal().await;
        Exit::Interrupted.now();
    });
    Ok(shutdown)
}
