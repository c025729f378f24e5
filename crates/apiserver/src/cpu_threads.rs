//! Runs CPU-heavy work outside of the async workers, which also serve the gateway in `ostler up`.

use std::cell::RefCell;
use std::num::NonZero;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use apimachinery::{Status, catch_panic};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::async_worker;

/// Maximum number of threads: they contend for the store, and each may hold copies of large objects.
const MAX_THREADS: usize = 4;

/// How long work may run while other work waits for its thread.
const TURN: Duration = Duration::from_millis(10);

/// Maximum number of unfinished work that a thread has begun.
const MAX_NESTED_WORK: usize = 4;

/// Stack of a thread in bytes: the default of the standard library for each unfinished work.
const STACK_SIZE: usize = MAX_NESTED_WORK * 2 * 1024 * 1024;

/// Threads for CPU-heavy work. There are fewer than CPUs, so that one is left to the async workers.
///
/// The threads start with the first work and end with the last clone. As long as work waits, a thread does not sleep, so
/// that the operating system keeps it on its CPU and away from the async workers.
#[derive(Debug, Clone)]
pub(crate) struct CpuThreads {
    count: usize,
    queue: Arc<OnceLock<mpsc::Sender<Work>>>,
}

/// Work that waits for a thread.
type Work = Box<dyn FnOnce() + Send>;

/// Work that waits for a thread, as its threads see it.
type WaitingWork = Arc<Mutex<mpsc::Receiver<Work>>>;

/// State of the current thread.
struct CurrentThread {
    waiting: WaitingWork,
    /// End of the turn of each unfinished work, the innermost last.
    turns: Vec<Instant>,
}

thread_local! {
    /// `None` in threads that are not for CPU-heavy work.
    static CURRENT: RefCell<Option<CurrentThread>> = const { RefCell::new(None) };
}

/// Runs other work that waits for this thread, if the current one has used up its turn. Long work calls this between its
/// steps, without holding a lock.
pub(crate) fn yield_thread() {
    let waiting = CURRENT.with_borrow(|current| current.as_ref().and_then(CurrentThread::next_work));
    if let Some(work) = waiting {
        run_turn(work);
        CURRENT.with_borrow_mut(|current| current.iter_mut().for_each(CurrentThread::renew_turn));
    }
}

/// Offers the CPU of a thread for CPU-heavy work to other threads. Long work calls this every few hundred microseconds:
/// the time slice of the operating system is several milliseconds, and an async worker may wait for this CPU.
pub(crate) fn offer_cpu() {
    if CURRENT.with_borrow(Option::is_some) {
        thread::yield_now();
    }
}

/// Runs work on a thread of [`CpuThreads`].
fn run_turn(work: Work) {
    let update_turns = |update: fn(&mut Vec<Instant>)| {
        CURRENT.with_borrow_mut(|current| current.iter_mut().for_each(|thread| update(&mut thread.turns)));
    };
    update_turns(|turns| turns.push(end_of_turn()));
    work();
    update_turns(|turns| turns.truncate(turns.len().saturating_sub(1)));
}

fn end_of_turn() -> Instant {
    let now = Instant::now();
    now.checked_add(TURN).unwrap_or(now)
}

// === impl CpuThreads ===

impl Default for CpuThreads {
    fn default() -> Self {
        let cpus = thread::available_parallelism().map_or(1, NonZero::get);
        Self::new(cpus.saturating_sub(1).clamp(1, MAX_THREADS))
    }
}

impl CpuThreads {
    fn new(count: usize) -> Self {
        Self { count, queue: Arc::default() }
    }

    /// Runs `work` on one of the threads. On a single-threaded runtime, it runs in place: tests and simulations with a
    /// virtual clock stay deterministic. Work of a request that is cancelled before it begins does not run.
    ///
    /// # Errors
    /// 500 if the work panics, or if the threads cannot be started.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
        if !async_worker::has_other_threads() {
            return Ok(work());
        }
        let runtime = Handle::current();
        let (sender, result) = oneshot::channel();
        let work = move || {
            let _runtime = runtime.enter();
            if !sender.is_closed() {
                sender.send(catch_panic(work)).ok();
            }
        };
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, "failed to handle a request");
            Status::internal_error("the request could not be handled")
        };
        self.queue().send(Box::new(work)).map_err(|error| failed(&error))?;
        result.await.map_err(|error| failed(&error))?.map_err(|panic| failed(&panic))
    }

    /// Returns the queue of the threads, which it starts first if necessary.
    fn queue(&self) -> &mpsc::Sender<Work> {
        self.queue.get_or_init(|| {
            let (queue, waiting) = mpsc::channel();
            let waiting = Arc::new(Mutex::new(waiting));
            for _ in 0..self.count {
                let waiting = Arc::clone(&waiting);
                let thread = thread::Builder::new().name("cpu-work".to_owned()).stack_size(STACK_SIZE);
                if let Err(error) = thread.spawn(|| run_thread(waiting)) {
                    tracing::error!(%error, "failed to start a thread for CPU-heavy requests");
                }
            }
            queue
        })
    }
}

/// Runs all work of a queue until it is closed.
fn run_thread(waiting: WaitingWork) {
    CURRENT.set(Some(CurrentThread { waiting: Arc::clone(&waiting), turns: Vec::new() }));
    // The lock is released before the work begins.
    while let Ok(work) = { waiting.lock().unwrap_or_else(PoisonError::into_inner).recv() } {
        run_turn(work);
    }
}

// === impl CurrentThread ===

impl CurrentThread {
    /// Returns work that waits, if the current one has used up its turn.
    fn next_work(&self) -> Option<Work> {
        let is_used_up = self.turns.last().is_some_and(|end| Instant::now() >= *end);
        if !is_used_up || self.turns.len() >= MAX_NESTED_WORK {
            return None;
        }
        // A thread that waits for work holds the lock: then there is none.
        self.waiting.try_lock().ok()?.try_recv().ok()
    }

    fn renew_turn(&mut self) {
        if let Some(turn) = self.turns.last_mut() {
            *turn = end_of_turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn runs_in_place_on_a_single_threaded_runtime() {
        let threads = CpuThreads::new(0);
        assert_eq!(threads.run(|| thread::current().id()).await.unwrap(), thread::current().id());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn leaves_the_async_worker() {
        let threads = CpuThreads::new(1);
        let worker = tokio::spawn(async { thread::current().id() }).await.unwrap();
        let (sender, receiver) = mpsc::channel();
        // The work waits for a task of the only worker.
        let work = tokio::spawn(async move { threads.run(move || (thread::current().id(), receiver.recv())).await });
        tokio::spawn(async move { sender.send(()) }).await.unwrap().unwrap();
        let (thread, received) = work.await.unwrap().unwrap();
        assert!(thread != worker && received.is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn panic_is_an_internal_error_and_the_thread_continues() {
        let threads = CpuThreads::new(1);
        let result: Result<(), Status> = threads.run(|| panic!("test")).await;
        assert_eq!(result.unwrap_err().code, 500);
        assert_eq!(threads.run(|| 1).await.unwrap(), 1);
    }

    /// The first work ends only after the second one, which needs the same thread.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn long_work_yields_its_thread() {
        let threads = CpuThreads::new(1);
        let (done, is_done) = mpsc::channel();
        let long = threads.run(move || {
            while is_done.try_recv().is_err() {
                yield_thread();
            }
        });
        let short = threads.run(move || done.send(()).is_ok());
        let (long, short) = tokio::join!(long, short);
        assert!(long.is_ok() && short.unwrap());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_of_a_cancelled_request_does_not_begin() {
        let threads = CpuThreads::new(1);
        let (sender, receiver) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let threads = threads.clone();
            async move { threads.run(move || receiver.recv()).await }
        });
        let cancelled = tokio::spawn({
            let threads = threads.clone();
            async move { threads.run(|| std::process::abort()).await }
        });
        tokio::task::yield_now().await;
        cancelled.abort();
        drop(cancelled.await);
        drop(sender);
        assert!(first.await.unwrap().unwrap().is_err());
        assert_eq!(threads.run(|| 1).await.unwrap(), 1);
    }

    #[test]
    fn other_threads_have_no_work_that_waits() {
        yield_thread();
    }
}
