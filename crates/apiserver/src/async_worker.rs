//! Long work of functions that are not async.

use tokio::runtime::{Handle, RuntimeFlavor};

#[cfg(test)]
thread_local! {
    /// Number of times that this thread has called [`leave`].
    pub(crate) static LEAVE_COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Runs `work`, which blocks this thread or computes for long. If the thread is an async worker, another thread continues
/// its other tasks. On a single-threaded runtime, they wait: tests and simulations with a virtual clock stay deterministic.
pub(crate) fn leave<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(test)]
    LEAVE_COUNT.with(|count| count.set(count.get() + 1));
    if has_other_threads() { tokio::task::block_in_place(work) } else { work() }
}

/// Returns whether this thread belongs to a runtime with several threads.
pub(crate) fn has_other_threads() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn runs_in_place_outside_of_a_runtime() {
        assert_eq!(leave(|| thread::current().id()), thread::current().id());
    }

    #[tokio::test]
    async fn runs_in_place_on_a_single_threaded_runtime() {
        assert_eq!(leave(|| thread::current().id()), thread::current().id());
    }

    /// The work waits for another task of the only worker.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_of_the_worker_continue() {
        let (sender, receiver) = mpsc::channel();
        let waiting = tokio::spawn(async move {
            tokio::spawn(async move { sender.send(()) });
            leave(|| receiver.recv())
        });
        assert!(waiting.await.unwrap().is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn runs_on_a_thread_of_the_blocking_pool() {
        assert_eq!(tokio::task::spawn_blocking(|| leave(|| 1)).await.unwrap(), 1);
    }
}
