//! Asking again what a busy server did not get done.

use std::time::{Duration, Instant};

use kube::Error;

use crate::process::{PAUSE, SECONDS};

/// What `ask` comes to in the end: an answer that says nothing but "not now" is no answer. Whatever is asked here may be
/// asked twice.
///
/// # Errors
/// What the server refuses; after [`SECONDS`] also that it has no time.
pub async fn patiently<T>(ask: impl AsyncFn() -> kube::Result<T>) -> kube::Result<T> {
    let began = Instant::now();
    loop {
        match ask().await {
            Err(error) if passes(&error) && began.elapsed() < Duration::from_secs(SECONDS) => {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Too much at once, a webhook or etcd that did not answer in time, somebody who was faster, a connection that broke.
fn passes(error: &Error) -> bool {
    const CONFLICT: u16 = 409;
    const TOO_MANY: u16 = 429;
    match error {
        // `AlreadyExists` has the same code, and stays.
        Error::Api(status) if status.code == CONFLICT => status.reason == "Conflict",
        Error::Api(status) => status.code == TOO_MANY || status.code >= 500,
        Error::HyperError(_) | Error::Service(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}
