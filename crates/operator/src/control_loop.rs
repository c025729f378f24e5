//! The control loop: watch events enqueue work items, and reconciles process them.
//!
//! Reconciles compute sequentially; a limited number of them wait for the API server concurrently.

use std::time::Duration;

use apimachinery::CaughtPanic;
use cluster::{Change, Part, Watches, WorkQueue};
use futures::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::changes::{FailedChanges, handle_change, retry_changes};
use crate::context::Context;
use crate::in_flight::{InFlight, ReconcileError, ReconcileResult};
use crate::metrics::Operation;
use crate::reconcilers::Reconcilers;
use crate::work_item::WorkItem;

/// Interval at which the loop checks whether the initial lists are complete.
const SYNC_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of changes that are handled before reconciles and the stop signal have their turn.
const MAX_CHANGES_PER_ROUND: usize = 256;

/// Starts reconciles and handles changes and results until shutdown.
pub(crate) struct ControlLoop<'a> {
    reconcilers: &'a Reconcilers,
    context: &'a Context,
    watches: Watches,
    changes: mpsc::Receiver<Change>,
    failed_changes: FailedChanges,
    queue: WorkQueue<WorkItem>,
    in_flight: InFlight<'a>,
}

// === impl ControlLoop ===

impl<'a> ControlLoop<'a> {
    /// Returns a loop over the changes that `watches` send to `changes`.
    pub(crate) fn new(
        reconcilers: &'a Reconcilers,
        watches: Watches,
        changes: mpsc::Receiver<Change>,
    ) -> ControlLoop<'a> {
        let context = &reconcilers.context;
        ControlLoop {
            reconcilers,
            context,
            watches,
            changes,
            failed_changes: FailedChanges::default(),
            queue: WorkQueue::default(),
            in_flight: InFlight::default(),
        }
    }

    /// Runs until `stop` is cancelled, and then waits for the running reconciles.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.handle_arrived().await;
            self.context.health.report_unsynced(Part::ControlLoop, &self.watches.unsynced());
            match self.next_item() {
                Some(item) => self.start_reconcile(item).await,
                None => self.wait(&stop).await,
            }
        }
        self.wait_for_running().await;
    }

    /// Handles the changes and results that have arrived, so that a reconcile sees the latest state. A storm of changes delays
    /// neither reconciles nor the shutdown.
    async fn handle_arrived(&mut self) {
        let (now, failed) = (Instant::now(), &mut self.failed_changes);
        retry_changes(self.context, &mut self.watches, &mut self.queue, failed, now);
        for _ in 0..MAX_CHANGES_PER_ROUND {
            let Ok(change) = self.changes.try_recv() else { break };
            self.handle_change(&change);
        }
        while let Some(result) = self.in_flight.try_next().await {
            self.handle_result(result);
        }
    }

    /// Returns the next item that may start.
    fn next_item(&mut self) -> Option<WorkItem> {
        if !self.watches.have_synced() || self.in_flight.is_full() {
            return None;
        }
        self.queue.pop(Instant::now())
    }

    /// Starts a reconcile. An exclusive item starts once all other items are complete, and no other item starts before
    /// it is complete.
    async fn start_reconcile(&mut self, item: WorkItem) {
        if item.is_exclusive() {
            self.wait_for_running().await;
            let result = self.reconcilers.reconcile(item).await;
            self.handle_result(result);
        } else if let Some(result) = self.in_flight.start(self.reconcilers.reconcile(item).boxed()).await {
            self.handle_result(result);
            // A series of reconciles that send no requests must not starve the other tasks of this thread.
            tokio::task::yield_now().await;
        }
    }

    /// Waits for a change, a result, a due item or shutdown.
    async fn wait(&mut self, stop: &CancellationToken) {
        let delay = self.delay();
        tokio::select! {
            // The order is fixed, so that a run on a virtual clock is reproducible.
            biased;
            () = stop.cancelled() => {}
            () = tokio::time::sleep(delay.unwrap_or_default()), if delay.is_some() => {}
            Some(result) = self.in_flight.next() => self.handle_result(result),
            Some(change) = self.changes.recv() => self.handle_change(&change),
        }
    }

    /// Returns the time until an item may start, or a failed change is due, without a change or a result.
    fn delay(&self) -> Option<Duration> {
        if !self.watches.have_synced() {
            return Some(SYNC_POLL_INTERVAL);
        }
        // Due items start once a running reconcile completes.
        let due_item = self.queue.next_due().filter(|_| !self.in_flight.is_full());
        let due = due_item.into_iter().chain(self.failed_changes.next_due()).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    async fn wait_for_running(&mut self) {
        while let Some(result) = self.in_flight.next().await {
            self.handle_result(result);
        }
    }

    fn handle_change(&mut self, change: &Change) {
        let failed = &mut self.failed_changes;
        handle_change(self.context, change, &mut self.watches, &mut self.queue, failed);
    }

    /// Returns the instant of a time of the system clock, which may be in the past.
    fn instant_of(&self, time: Timestamp) -> Instant {
        let now = Instant::now();
        let delay = Duration::try_from(time.duration_since(self.context.now())).unwrap_or_default();
        now.checked_add(delay).unwrap_or(now)
    }

    /// Requests an event about a panic of the reconcile of a service.
    fn report_panic(&mut self, item: &WorkItem, panic: &CaughtPanic) {
        let WorkItem::Service(kind, key) = item else { return };
        let message = format!("The reconcile of {item} {panic}; the operator retries with increasing delays");
        self.context.state.internal_errors.add(*kind, key, message);
        self.queue.add(WorkItem::InternalError(*kind, key.clone()));
    }

    fn handle_result(&mut self, (item, result): ReconcileResult) {
        match result {
            Ok(requeue_at) => {
                if let Some(at) = requeue_at {
                    let due = self.instant_of(at);
                    self.queue.add_at(item.clone(), due);
                }
                self.queue.done(&item);
            }
            Err(error) => {
                if let ReconcileError::Panic(panic) = &error {
                    self.context.metrics.count_panic(Operation::Reconcile);
                    self.report_panic(&item, panic);
                }
                if error.is_expected() {
                    tracing::debug!(%item, error = %cluster::error_chain(&error), "reconcile failed, retrying");
                } else {
                    tracing::warn!(%item, error = %cluster::error_chain(&error), "reconcile failed, retrying");
                }
                self.queue.retry(item, Instant::now());
            }
        }
    }
}
