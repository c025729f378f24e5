//! The running batch: at most `max_num_seqs` sequences, a FIFO queue in front of it, and one prefill at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore};

/// Admits sequences to the batch and counts running and waiting ones.
pub(crate) struct Batch {
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    running: AtomicUsize,
    kv_tokens: AtomicUsize,
    prefill_lock: Mutex<()>,
}

/// A sequence in the batch. Dropping the value frees the slot, including when the client disconnects.
pub(crate) struct Sequence {
    batch: Arc<Batch>,
    kv_tokens: usize,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Counts a request as waiting until the guard is dropped.
struct WaitingGuard<'a>(&'a AtomicUsize);

// === impl Batch ===

impl Batch {
    /// Returns an empty batch of at most `max_num_seqs` sequences, at least 1.
    pub(crate) fn new(max_num_seqs: usize) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(max_num_seqs.clamp(1, Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            kv_tokens: AtomicUsize::new(0),
            prefill_lock: Mutex::new(()),
        })
    }

    /// Waits in FIFO order for a slot and admits a sequence that starts with `kv_tokens` tokens.
    pub(crate) async fn admit(self: &Arc<Self>, kv_tokens: usize) -> Sequence {
        let waiting_guard = WaitingGuard::new(&self.waiting);
        // The semaphore is never closed, so acquiring a permit does not fail.
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok();
        drop(waiting_guard);
        self.running.fetch_add(1, Relaxed);
        self.kv_tokens.fetch_add(kv_tokens, Relaxed);
        Sequence { batch: Arc::clone(self), kv_tokens, _permit: permit }
    }

    /// Waits until no other prefill runs and acquires the prefill lock.
    pub(crate) async fn lock_prefill(&self) -> MutexGuard<'_, ()> {
        self.prefill_lock.lock().await
    }

    /// Returns the number of running sequences.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Relaxed)
    }

    /// Returns the number of waiting sequences.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Returns the number of tokens of all running sequences.
    pub(crate) fn kv_tokens(&self) -> usize {
        self.kv_tokens.load(Relaxed)
    }
}

// === impl Sequence ===

impl Sequence {
    /// Adds one token to the KV cache.
    pub(crate) fn append_token(&mut self) {
        self.kv_tokens += 1;
        self.batch.kv_tokens.fetch_add(1, Relaxed);
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        self.batch.running.fetch_sub(1, Relaxed);
        self.batch.kv_tokens.fetch_sub(self.kv_tokens, Relaxed);
    }
}

// === impl WaitingGuard ===

impl<'a> WaitingGuard<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Relaxed);
        Self(counter)
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A semaphore has a maximum number of permits.
    #[test]
    fn size_of_the_batch_may_be_any_number() {
        assert_eq!(Batch::new(usize::MAX).running(), 0);
    }

    #[tokio::test]
    async fn sequence_waits_while_the_batch_is_full() {
        let batch = Batch::new(2);
        let (first, _second) = (batch.admit(10).await, batch.admit(5).await);
        let mut waiting_request = Box::pin(batch.admit(1));
        assert!(futures::poll!(&mut waiting_request).is_pending());
        assert_eq!((batch.running(), batch.waiting(), batch.kv_tokens()), (2, 1, 15));
        drop(first);
        let _third = waiting_request.await;
        assert_eq!((batch.running(), batch.waiting(), batch.kv_tokens()), (2, 0, 6));
    }

    #[tokio::test]
    async fn cancelled_request_is_no_longer_counted_as_waiting() {
        let batch = Batch::new(1);
        let _running = batch.admit(1).await;
        {
            let mut request = Box::pin(batch.admit(1));
            assert!(futures::poll!(&mut request).is_pending());
            assert_eq!(batch.waiting(), 1);
        }
        assert_eq!(batch.waiting(), 0);
    }
}
