//! Runs CPU-heavy work outside of the async workers, which also serve the gateway in `ostler up`.

use std::cell::RefCell;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use apimachinery::Status;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::async_worker;

/// Maximum number of slots: the threads contend for the store, and each may hold copies of large objects.
const MAX_SLOTS: usize = 4;

/// How long work may hold a slot while other work waits for one.
const TURN: Duration = Duration::from_millis(10);

/// Slots for CPU-heavy work. There are fewer than CPUs, so that one is left to the async workers.
#[derive(Debug, Clone)]
pub(crate) struct CpuSlots(Arc<Semaphore>);

/// A slot that the current thread holds.
struct Turn {
    slots: CpuSlots,
    /// `None` only while the thread waits for its next turn.
    slot: Option<OwnedSemaphorePermit>,
    end: Instant,
}

/// Ends the turn of the current thread on drop.
struct HeldSlot;

thread_local! {
    static CURRENT_TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Waits for another turn if the work of this thread has used up its own and other work waits. Long work calls this
/// between its steps, without holding a lock.
pub(crate) fn yield_slot() {
    CURRENT_TURN.with_borrow_mut(|turn| {
        if let Some(turn) = turn.as_mut().filter(|turn| Instant::now() >= turn.end) {
            turn.renew();
        }
    });
}

// === impl CpuSlots ===

impl Default for CpuSlots {
    fn default() -> Self {
        let cpus = thread::available_parallelism().map_or(1, NonZero::get);
        Self::new(cpus.saturating_sub(1).clamp(1, MAX_SLOTS))
    }
}

impl CpuSlots {
    fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Runs `work` on a thread of the blocking pool once a slot is free. On a single-threaded runtime, it runs in place:
    /// tests and simulations with a virtual clock stay deterministic.
    ///
    /// # Errors
    /// 500 if the work panics.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
        if !async_worker::has_other_threads() {
            return Ok(work());
        }
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, "failed to handle a request");
            Status::internal_error("the request could not be handled")
        };
        let slot = Arc::clone(&self.0).acquire_owned().await.map_err(|error| failed(&error))?;
        let slots = self.clone();
        // The slot moves to the thread: it stays occupied if the client disconnects meanwhile.
        let task = tokio::task::spawn_blocking(move || {
            let _held = HeldSlot::begin(Turn::new(slots, slot));
            work()
        });
        task.await.map_err(|error| failed(&error))
    }

    /// Runs `work` on this thread once a slot is free, for callers that are not async. If the thread is an async worker,
    /// another thread continues its other tasks. Work that already has a slot, or a single-threaded runtime, needs none.
    pub(crate) fn run_in_place<T>(&self, work: impl FnOnce() -> T) -> T {
        let has_slot = CURRENT_TURN.with_borrow(Option::is_some);
        if has_slot || !async_worker::has_other_threads() {
            return work();
        }
        async_worker::leave(|| {
            // The semaphore is never closed.
            let slot = Handle::current().block_on(Arc::clone(&self.0).acquire_owned()).ok();
            let _held = slot.map(|slot| HeldSlot::begin(Turn::new(self.clone(), slot)));
            work()
        })
    }
}

// === impl Turn ===

impl Turn {
    fn new(slots: CpuSlots, slot: OwnedSemaphorePermit) -> Self {
        Self { slots, slot: Some(slot), end: end_of_turn() }
    }

    /// Releases the slot and waits for the next one. Other work that waits comes first.
    fn renew(&mut self) {
        self.slot = None;
        let slot = Handle::current().block_on(Arc::clone(&self.slots.0).acquire_owned());
        // The semaphore is never closed.
        self.slot = slot.ok();
        self.end = end_of_turn();
    }
}

fn end_of_turn() -> Instant {
    let now = Instant::now();
    now.checked_add(TURN).unwrap_or(now)
}

// === impl HeldSlot ===

impl HeldSlot {
    fn begin(turn: Turn) -> Self {
        CURRENT_TURN.set(Some(turn));
        Self
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        CURRENT_TURN.set(None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn runs_in_place_on_a_single_threaded_runtime() {
        let slots = CpuSlots::new(0);
        assert_eq!(slots.run(|| thread::current().id()).await.unwrap(), thread::current().id());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn leaves_the_async_worker() {
        let slots = CpuSlots::new(1);
        let worker = tokio::spawn(async { thread::current().id() }).await.unwrap();
        let (sender, receiver) = mpsc::channel();
        // The work waits for a task of the only worker.
        let work = tokio::spawn({
            let slots = slots.clone();
            async move { slots.run(move || (thread::current().id(), receiver.recv())).await }
        });
        tokio::spawn(async move { sender.send(()) }).await.unwrap().unwrap();
        let (thread, received) = work.await.unwrap().unwrap();
        assert!(thread != worker && received.is_ok());
        assert_eq!(slots.0.available_permits(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn panic_is_an_internal_error() {
        let slots = CpuSlots::new(1);
        let result: Result<(), Status> = slots.run(|| panic!("test")).await;
        assert_eq!(result.unwrap_err().code, 500);
        assert_eq!(slots.0.available_permits(), 1);
    }

    /// The first work ends only after the second one, which needs the same slot.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn long_work_yields_its_slot() {
        let slots = CpuSlots::new(1);
        let (started, is_started) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        let long = slots.run(move || {
            started.send(()).unwrap();
            while is_done.try_recv().is_err() {
                yield_slot();
            }
        });
        let short = slots.run(move || {
            is_started.recv().unwrap();
            done.send(()).unwrap();
        });
        let (long, short) = tokio::join!(long, short);
        assert!(long.is_ok() && short.is_ok());
        assert_eq!(slots.0.available_permits(), 1);
    }

    /// The work waits for another task of the only worker, and for a slot only once.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_in_place_leaves_the_async_worker() {
        let slots = CpuSlots::new(1);
        let (sender, receiver) = mpsc::channel();
        let work = tokio::spawn({
            let slots = slots.clone();
            async move {
                tokio::spawn(async move { sender.send(()) });
                slots.run_in_place(|| {
                    assert_eq!(slots.0.available_permits(), 0);
                    slots.run_in_place(|| receiver.recv())
                })
            }
        });
        assert!(work.await.unwrap().is_ok());
        assert_eq!(slots.0.available_permits(), 1);
    }

    #[tokio::test]
    async fn work_in_place_of_a_single_threaded_runtime_needs_no_slot() {
        assert_eq!(CpuSlots::new(0).run_in_place(|| 1), 1);
    }

    #[test]
    fn work_without_a_slot_does_not_yield() {
        yield_slot();
    }
}
