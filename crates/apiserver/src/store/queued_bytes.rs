//! The size of what is queued for the journal, for writers that wait for it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Size in bytes of the events that are queued for the journal or being written.
#[derive(Debug, Default)]
pub(super) struct QueuedBytes {
    queue: Mutex<Queue>,
    decreased: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: usize,
    /// Number of threads that wait.
    waiting: usize,
}

// === impl QueuedBytes ===

impl QueuedBytes {
    /// Adds an event of `bytes` bytes.
    pub(super) fn add(&self, bytes: usize) {
        let mut queue = self.queue();
        queue.bytes = queue.bytes.saturating_add(bytes);
    }

    /// Removes events of `bytes` bytes.
    pub(super) fn subtract(&self, bytes: usize) {
        let mut queue = self.queue();
        queue.bytes = queue.bytes.saturating_sub(bytes);
        if queue.waiting > 0 {
            self.decreased.notify_all();
        }
    }

    /// Removes all events.
    pub(super) fn reset(&self) {
        self.subtract(usize::MAX);
    }

    /// Returns the size.
    pub(super) fn get(&self) -> usize {
        self.queue().bytes
    }

    /// Blocks this thread until the size is at most `limit`.
    pub(super) fn wait_until_at_most(&self, limit: usize) {
        let mut queue = self.queue();
        queue.waiting += 1;
        let is_larger = |queue: &mut Queue| queue.bytes > limit;
        let mut queue = self.decreased.wait_while(queue, is_larger).unwrap_or_else(PoisonError::into_inner);
        queue.waiting -= 1;
    }

    /// Returns the number of threads that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queue().waiting
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn waits_until_enough_is_removed() {
        let queued = QueuedBytes::default();
        queued.add(10);
        queued.wait_until_at_most(10);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                queued.wait_until_at_most(3);
                queued.get()
            });
            while queued.waiting() == 0 {
                thread::yield_now();
            }
            queued.subtract(6);
            queued.subtract(2);
            assert_eq!(waiter.join().unwrap(), 2);
            let waiter = scope.spawn(|| queued.wait_until_at_most(1));
            queued.reset();
            waiter.join().unwrap();
        });
        assert_eq!((queued.get(), queued.waiting()), (0, 0));
    }
}
