//! Copies of requests, which are held only as long as a failed attempt would be repeated.

use std::{pin::pin, time::Duration};

use tokio::time::timeout;

/// Returns the output of `attempt`, and `copy` if the attempt ended within `limit`. Otherwise `copy` is dropped after `limit`,
/// and the attempt continues.
pub(super) async fn hold_copy<T, F: Future>(copy: T, limit: Duration, attempt: F) -> (F::Output, Option<T>) {
    let mut attempt = pin!(attempt);
    if let Ok(output) = timeout(limit, attempt.as_mut()).await {
        return (output, Some(copy));
    }
    drop(copy);
    (attempt.await, None)
}
