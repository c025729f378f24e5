//! Retries API calls while the server is busy.

use std::time::{Duration, Instant};

use kube::Error;

use crate::process::{POLL_INTERVAL, TIMEOUT_SECONDS};

/// Calls `call` until it succeeds or fails with a permanent error. `call` must be idempotent.
///
/// # Errors
/// A permanent error, or any error after [`TIMEOUT_SECONDS`].
pub async fn retry_transient_errors<T>(call: impl AsyncFn() -> kube::Result<T>) -> kube::Result<T> {
    let start = Instant::now();
    loop {
        match call().await {
            Err(error) if is_transient(&error) && start.elapsed() < Duration::from_secs(TIMEOUT_SECONDS) => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            result => return result,
        }
    }
}

/// Returns whether `error` is transient: throttling, a conflict, a timeout of a webhook or etcd, or a broken connection.
fn is_transient(error: &Error) -> bool {
    const CONFLICT: u16 = 409;
    const TOO_MANY_REQUESTS: u16 = 429;
    match error {
        // `AlreadyExists` has the same code and is permanent.
        Error::Api(status) if status.code == CONFLICT => status.reason == "Conflict",
        Error::Api(status) => status.code == TOO_MANY_REQUESTS || status.code >= 500,
        Error::HyperError(_) | Error::Service(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}
