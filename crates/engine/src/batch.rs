//! The running batch: `max_num_seqs` seats, a first-come queue before them, one prefill at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore};

/// Who runs and who waits.
pub(crate) struct Batch {
    seats: Arc<Semaphore>,
    waiting: AtomicUsize,
    running: AtomicUsize,
    kv_tokens: AtomicUsize,
    prefill: Mutex<()>,
}

/// A place in the batch; dropping it (also by a client that went away) frees it.
pub(crate) struct Seat {
    batch: Arc<Batch>,
    kv_tokens: usize,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Counts a request as waiting until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Batch {
    pub(crate) fn new(max_num_seqs: usize) -> Arc<Self> {
        Arc::new(Self {
            seats: Arc::new(Semaphore::new(max_num_seqs.max(1))),
            waiting: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            kv_tokens: AtomicUsize::new(0),
            prefill: Mutex::new(()),
        })
    }

    /// Waits in order of arrival for a seat of a sequence that starts with `kv_tokens` tokens.
    pub(crate) async fn seat(self: &Arc<Self>, kv_tokens: usize) -> Seat {
        let waiting = Waiting::new(&self.waiting);
        // The semaphore is never closed; without a permit the seat would only be uncounted.
        let permit = Arc::clone(&self.seats).acquire_owned().await.ok();
        drop(waiting);
        self.running.fetch_add(1, Relaxed);
        self.kv_tokens.fetch_add(kv_tokens, Relaxed);
        Seat { batch: Arc::clone(self), kv_tokens, _permit: permit }
    }

    /// The right to compute a prompt; prompts are computed one after the other.
    pub(crate) async fn prefill(&self) -> MutexGuard<'_, ()> {
        self.prefill.lock().await
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Relaxed)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Tokens of all running sequences.
    pub(crate) fn kv_tokens(&self) -> usize {
        self.kv_tokens.load(Relaxed)
    }
}

impl Seat {
    /// One more token in the KV cache.
    pub(crate) fn grow(&mut self) {
        self.kv_tokens += 1;
        self.batch.kv_tokens.fetch_add(1, Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.batch.running.fetch_sub(1, Relaxed);
        self.batch.kv_tokens.fetch_sub(self.kv_tokens, Relaxed);
    }
}

impl<'a> Waiting<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Relaxed);
        Self(counter)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_third_of_two_waits_until_one_leaves() {
        let batch = Batch::new(2);
        let (first, _second) = (batch.seat(10).await, batch.seat(5).await);
        let mut third = Box::pin(batch.seat(1));
        assert!(futures::poll!(&mut third).is_pending());
        assert_eq!((batch.running(), batch.waiting(), batch.kv_tokens()), (2, 1, 15));
        drop(first);
        let _third = third.await;
        assert_eq!((batch.running(), batch.waiting(), batch.kv_tokens()), (2, 0, 6));
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_is_no_longer_counted() {
        let batch = Batch::new(1);
        let _seat = batch.seat(1).await;
        {
            let mut waiter = Box::pin(batch.seat(1));
            assert!(futures::poll!(&mut waiter).is_pending());
            assert_eq!(batch.waiting(), 1);
        }
        assert_eq!(batch.waiting(), 0);
    }
}
