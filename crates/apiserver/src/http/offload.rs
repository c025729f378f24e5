//! Runs CPU-heavy work outside of the async workers, which also serve the gateway in `ostler up`.

use std::sync::Arc;

use apimachinery::Status;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Runs `work` on a thread of the blocking pool once one of `slots` is free. On a single-threaded runtime, it runs in
/// place: tests and simulations with a virtual clock stay deterministic.
///
/// # Errors
/// 500 if the work panics.
pub(super) async fn run<T: Send + 'static>(
    slots: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    let is_multi_threaded =
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if !is_multi_threaded {
        return Ok(work());
    }
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "failed to handle a request");
        Status::internal_error("the request could not be handled")
    };
    let slot = Arc::clone(slots).acquire_owned().await.map_err(|error| failed(&error))?;
    // The slot moves to the thread: it stays occupied if the client disconnects meanwhile.
    let task = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        work()
    });
    task.await.map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn runs_in_place_on_a_single_threaded_runtime() {
        let slots = Arc::new(Semaphore::new(0));
        assert_eq!(run(&slots, || thread::current().id()).await.unwrap(), thread::current().id());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn leaves_the_async_worker() {
        let slots = Arc::new(Semaphore::new(1));
        let worker = tokio::spawn(async { thread::current().id() }).await.unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        // The work waits for a task of the only worker.
        let work = tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { run(&slots, move || (thread::current().id(), receiver.recv())).await }
        });
        tokio::spawn(async move { sender.send(()) }).await.unwrap().unwrap();
        let (thread, received) = work.await.unwrap().unwrap();
        assert!(thread != worker && received.is_ok());
        assert_eq!(slots.available_permits(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn panic_is_an_internal_error() {
        let slots = Arc::new(Semaphore::new(1));
        let result: Result<(), Status> = run(&slots, || panic!("test")).await;
        assert_eq!(result.unwrap_err().code, 500);
        assert_eq!(slots.available_permits(), 1);
    }
}
