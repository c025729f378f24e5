//! Reconciles in flight.
//!
//! Each reconcile runs in queue order until its first request, and then waits for the API server concurrently with the
//! other reconciles.

use std::task::Poll;

use apimachinery::{CaughtPanic, catch_future_panic};
use cluster::Error;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;

use crate::work_item::WorkItem;

/// Maximum number of concurrent reconciles, about the concurrency that API priority and fairness grants one client.
const MAX_IN_FLIGHT: usize = 8;

/// Item with the result of its reconcile: the time to requeue it even without a change, or an error.
pub(crate) type ReconcileResult = (WorkItem, Result<Option<Timestamp>, ReconcileError>);

/// Why a reconcile did not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] Error),
    /// The reconcile panicked. It is retried like a failed one, so that one object does not stop the others.
    #[error(transparent)]
    Panic(#[from] CaughtPanic),
}

/// Reconciles that have started and not completed.
#[derive(Default)]
pub(crate) struct InFlight<'a> {
    running: FuturesUnordered<BoxFuture<'a, ReconcileResult>>,
}

// === impl ReconcileError ===

impl ReconcileError {
    /// Returns whether the error is part of normal operation: the object changed in the meantime, or its namespace is being
    /// deleted. Retrying, or the deletion of the object, resolves it.
    pub(crate) fn is_expected(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_conflict() || error.is_namespace_deleted())
    }
}

/// Returns the result of a reconcile, or its panic as an error.
pub(crate) async fn catch_panic(
    reconcile: impl Future<Output = Result<Option<Timestamp>, Error>>,
) -> Result<Option<Timestamp>, ReconcileError> {
    Ok(catch_future_panic(reconcile).await??)
}

// === impl InFlight ===

impl<'a> InFlight<'a> {
    /// Returns whether the maximum number of reconciles is running.
    pub(crate) fn is_full(&self) -> bool {
        self.running.len() >= MAX_IN_FLIGHT
    }

    /// Starts a reconcile and polls it up to its first request; returns the result if it completes without one.
    pub(crate) async fn start(&mut self, mut reconcile: BoxFuture<'a, ReconcileResult>) -> Option<ReconcileResult> {
        match futures::poll!(reconcile.as_mut()) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => {
                self.running.push(reconcile);
                None
            }
        }
    }

    /// Returns the result of a completed reconcile without waiting.
    pub(crate) async fn try_next(&mut self) -> Option<ReconcileResult> {
        match futures::poll!(self.running.next()) {
            Poll::Ready(result) => result,
            Poll::Pending => None,
        }
    }

    /// Waits for the next reconcile to complete; returns `None` if none is running.
    pub(crate) async fn next(&mut self) -> Option<ReconcileResult> {
        self.running.next().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::sync::{Arc, Mutex};
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn panic_is_an_error() {
        let error = catch_panic(async { panic!("no such role") }).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), error.is_expected()), ("panicked: no such role", false));
        assert_eq!(catch_panic(async { Ok(None) }).await.unwrap(), None);
    }

    #[tokio::test]
    async fn starts_in_order_and_completes_in_any_order() {
        let started = Arc::new(Mutex::new(Vec::new()));
        let mut in_flight = InFlight::default();
        let mut responses = Vec::new();
        for name in ["a", "b"] {
            let (response, request) = oneshot::channel::<()>();
            let started = Arc::clone(&started);
            let reconcile = async move {
                started.lock().unwrap().push(name);
                request.await.unwrap();
                (WorkItem::Class(name.to_owned()), Ok(None))
            };
            assert!(in_flight.start(reconcile.boxed()).await.is_none());
            responses.push(response);
        }
        assert_eq!(*started.lock().unwrap(), ["a", "b"]);
        assert!(in_flight.try_next().await.is_none());
        responses.pop().unwrap().send(()).unwrap();
        assert_eq!(in_flight.try_next().await.unwrap().0, WorkItem::Class("b".to_owned()));
        responses.pop().unwrap().send(()).unwrap();
        assert_eq!(in_flight.next().await.unwrap().0, WorkItem::Class("a".to_owned()));
        assert!(in_flight.next().await.is_none());
        let immediate = in_flight.start(async { (WorkItem::InvalidObjects, Ok(None)) }.boxed()).await;
        assert_eq!(immediate.unwrap().0, WorkItem::InvalidObjects);
    }
}
