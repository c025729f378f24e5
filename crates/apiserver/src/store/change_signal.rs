//! Notifies any number of tasks of a change.
//!
//! Unlike `tokio::sync::watch`, which wakes its receivers in random order, tasks wake in the order in which they wait: the runs of a
//! simulation on one thread are reproducible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The side that reports changes.
#[derive(Debug, Default)]
pub(crate) struct ChangeSignal(Arc<Shared>);

/// The side that waits for changes.
#[derive(Debug, Clone)]
pub(crate) struct ChangeReceiver {
    shared: Arc<Shared>,
    /// Number of changes that this receiver has seen.
    seen: u64,
}

#[derive(Debug, Default)]
struct Shared {
    /// Number of changes so far.
    changes: AtomicU64,
    changed: Notify,
}

// === impl ChangeSignal ===

impl ChangeSignal {
    /// Returns a receiver of the changes from now on.
    pub(super) fn subscribe(&self) -> ChangeReceiver {
        ChangeReceiver { shared: Arc::clone(&self.0), seen: self.0.changes.load(Ordering::Acquire) }
    }

    /// Returns the number of receivers.
    pub(super) fn receiver_count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Wakes all receivers.
    pub(super) fn send(&self) {
        self.0.changes.fetch_add(1, Ordering::Release);
        self.0.changed.notify_waiters();
    }
}

// === impl ChangeReceiver ===

impl ChangeReceiver {
    /// Marks all changes so far as seen.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.shared.changes.load(Ordering::Acquire);
    }

    /// Returns whether there are changes that this receiver has not seen.
    pub(crate) fn has_changed(&self) -> bool {
        self.seen != self.shared.changes.load(Ordering::Acquire)
    }

    /// Waits for a change that this receiver has not seen, and marks it as seen. Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        while !self.has_changed() {
            let changed = self.shared.changed.notified();
            // A change before `notified` would not wake this receiver.
            if !self.has_changed() {
                changed.await;
            }
        }
        self.mark_seen();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt;

    use super::*;

    #[test]
    fn each_receiver_sees_a_change_once() {
        let signal = ChangeSignal::default();
        signal.send();
        let mut first = signal.subscribe();
        assert_eq!(first.changed().now_or_never(), None, "earlier changes are not reported");
        let mut second = first.clone();
        assert_eq!(signal.receiver_count(), 2);
        signal.send();
        signal.send();
        assert_eq!((first.changed().now_or_never(), first.changed().now_or_never()), (Some(()), None));
        second.mark_seen();
        assert_eq!(second.changed().now_or_never(), None);
        drop((first, second));
        assert_eq!(signal.receiver_count(), 0);
    }

    #[tokio::test]
    async fn tasks_wake_in_the_order_in_which_they_wait() {
        let (signal, order) = (ChangeSignal::default(), Arc::new(Mutex::new(Vec::new())));
        let tasks: Vec<_> = (0..50)
            .map(|index| {
                let (mut receiver, order) = (signal.subscribe(), Arc::clone(&order));
                tokio::spawn(async move {
                    receiver.changed().await;
                    order.lock().unwrap().push(index);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        signal.send();
        futures::future::join_all(tasks).await;
        assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }
}
