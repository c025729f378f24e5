//! Restarts tasks that fail.

use std::borrow::Cow;
use std::fmt::Display;

use apimachinery::catch_future_panic;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::back_off::{RestartBackOff, RestartLimit};
use crate::task_status::{TaskFailure, TaskId, TaskState, TaskStatus, TaskStatuses};

/// Supervises background tasks. Clones share the states of the tasks.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    statuses: watch::Sender<TaskStatuses>,
}

/// The entry of a task in [`TaskStatuses`], which is removed when the task is stopped.
struct Registration {
    id: TaskId,
    statuses: watch::Sender<TaskStatuses>,
}

/// What a task returns.
pub trait TaskOutput {
    /// Returns the error of the task.
    fn into_error(self) -> Option<String>;
}

impl TaskOutput for () {
    fn into_error(self) -> Option<String> {
        None
    }
}

impl<E: Display> TaskOutput for Result<(), E> {
    fn into_error(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// Runs a task until `stop` is cancelled or restarts do not help. `start` is called again after each failure: a panic, an
    /// error, or an end before `stop`.
    pub fn supervise<F>(
        &self,
        name: impl Into<Cow<'static, str>>,
        stop: CancellationToken,
        start: impl FnMut() -> F + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        F: Future<Output: TaskOutput> + Send + 'static,
    {
        run(self.register(name.into()), RestartBackOff::new(RestartLimit::MaxFailures), stop, start)
    }

    /// Like [`Supervisor::supervise`], for a task on which a part of the work depends: it is restarted until `stop`, however often
    /// it fails, and does not appear in [`Supervisor::failed`].
    pub fn supervise_indefinitely<F>(
        &self,
        name: impl Into<Cow<'static, str>>,
        stop: CancellationToken,
        start: impl FnMut() -> F + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        F: Future<Output: TaskOutput> + Send + 'static,
    {
        run(self.register(name.into()), RestartBackOff::new(RestartLimit::Unlimited), stop, start)
    }

    /// Returns a receiver of the states of all tasks. It is notified when a task fails or is restarted.
    #[must_use]
    pub fn statuses(&self) -> watch::Receiver<TaskStatuses> {
        self.statuses.subscribe()
    }

    /// Returns why tasks do not run, one line per task.
    #[must_use]
    pub fn outages(&self) -> Vec<String> {
        self.statuses.borrow().values().filter_map(TaskStatus::outage).collect()
    }

    /// Waits until a task is not restarted any more. The other tasks continue. Cancel-safe.
    pub async fn failed(&self) -> TaskFailure {
        let mut statuses = self.statuses();
        loop {
            if let Some(failure) = statuses.borrow_and_update().values().find_map(TaskStatus::failure) {
                return failure;
            }
            if statuses.changed().await.is_err() {
                // Unreachable: `self` owns the sender.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Runs `work` to completion, or until a task is not restarted any more.
    ///
    /// # Errors
    /// The failure of the task.
    pub async fn run_unless_failed(&self, work: impl Future<Output = ()>) -> Result<(), TaskFailure> {
        tokio::select! {
            biased;
            failure = self.failed() => Err(failure),
            () = work => match self.statuses.borrow().values().find_map(TaskStatus::failure) {
                Some(failure) => Err(failure),
                None => Ok(()),
            },
        }
    }

    fn register(&self, name: Cow<'static, str>) -> Registration {
        let mut id = TaskId(0);
        self.statuses.send_modify(|all| {
            id = TaskId(all.last_key_value().map_or(0, |(last, _)| last.0.saturating_add(1)));
            all.insert(id, TaskStatus { name, restarts: 0, state: TaskState::Running });
        });
        Registration { id, statuses: self.statuses.clone() }
    }
}

async fn run<F>(
    registration: Registration,
    mut back_off: RestartBackOff,
    stop: CancellationToken,
    mut start: impl FnMut() -> F,
) where
    F: Future<Output: TaskOutput>,
{
    loop {
        let start_time = Instant::now();
        let outcome = catch_future_panic(async { start().await }).await;
        let cause = match outcome.map(TaskOutput::into_error) {
            Ok(None) if stop.is_cancelled() => return,
            Ok(None) => "ended unexpectedly".to_owned(),
            Ok(Some(error)) => format!("failed: {error}"),
            Err(panic) => panic.to_string(),
        };
        let task = registration.name();
        let delay = back_off.next_delay(start_time.elapsed());
        let Some(delay) = delay.filter(|_| !stop.is_cancelled()) else {
            tracing::error!(%task, cause, "a background task failed and is not restarted");
            return registration.update(|status| status.state = TaskState::Failed { cause });
        };
        tracing::error!(%task, cause, ?delay, "a background task failed and is restarted");
        registration.update(|status| status.state = TaskState::BackOff { cause, delay });
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(delay) => {}
        }
        registration.update(|status| {
            status.restarts = status.restarts.saturating_add(1);
            status.state = TaskState::Running;
        });
    }
}

// === impl Registration ===

impl Registration {
    fn name(&self) -> Cow<'static, str> {
        self.statuses.borrow().get(&self.id).map(|status| status.name.clone()).unwrap_or_default()
    }

    fn update(&self, change: impl FnOnce(&mut TaskStatus)) {
        self.statuses.send_modify(|all| {
            if let Some(status) = all.get_mut(&self.id) {
                change(status);
            }
        });
    }
}

impl Drop for Registration {
    /// Removes the task unless it failed.
    fn drop(&mut self) {
        self.statuses.send_if_modified(|all| {
            let is_stopped = all.get(&self.id).is_some_and(|status| status.failure().is_none());
            is_stopped && all.remove(&self.id).is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    /// Spawns a task whose first `failures` runs panic.
    fn spawn_failing(supervisor: &Supervisor, stop: &CancellationToken, failures: u32) -> tokio::task::JoinHandle<()> {
        let (runs, token) = (Arc::new(AtomicU32::new(0)), stop.clone());
        tokio::spawn(supervisor.supervise("watch of pods", stop.clone(), move || {
            let (run, token) = (runs.fetch_add(1, Relaxed), token.clone());
            async move {
                assert!(run >= failures, "broken");
                token.cancelled().await;
            }
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_restarted_with_back_off() {
        let (supervisor, stop) = (Supervisor::default(), CancellationToken::new());
        let mut statuses = supervisor.statuses();
        let task = spawn_failing(&supervisor, &stop, 3);
        let status = |all: &TaskStatuses| all.values().next().unwrap().clone();
        let mut delays = Vec::new();
        while delays.len() < 3 {
            statuses.changed().await.unwrap();
            if let TaskState::BackOff { cause, delay } = status(&statuses.borrow_and_update()).state {
                assert_eq!(cause, "panicked: broken");
                delays.push(delay.as_secs());
            }
        }
        assert_eq!(delays, [1, 2, 4]);
        statuses.changed().await.unwrap();
        let expected = TaskStatus { name: "watch of pods".into(), restarts: 3, state: TaskState::Running };
        assert_eq!(status(&statuses.borrow_and_update()), expected);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn outage_is_reported_until_the_task_is_restarted() {
        let (supervisor, stop) = (Supervisor::default(), CancellationToken::new());
        let task = spawn_failing(&supervisor, &stop, 2);
        let mut outages = Vec::new();
        for _ in 0..4 {
            sleep(Duration::from_millis(900)).await;
            outages.push(supervisor.outages().join("; "));
        }
        let after = |delay| format!("the watch of pods panicked: broken; it restarts after {delay} s");
        assert_eq!(outages, [after(1), after(2), after(2), String::new()]);
        assert_eq!(supervisor.statuses().borrow().values().map(|status| status.restarts).collect::<Vec<_>>(), [2]);
        stop.cancel();
        task.await.unwrap();
        assert!(supervisor.statuses().borrow().is_empty(), "a stopped task is removed");
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_restarts_do_not_help_is_a_failure() {
        let (supervisor, stop) = (Supervisor::default(), CancellationToken::new());
        let _other = tokio::spawn(supervisor.supervise("other", stop.clone(), pending::<()>));
        let task = spawn_failing(&supervisor, &stop, u32::MAX);
        let failure = supervisor.run_unless_failed(async { task.await.unwrap() }).await.unwrap_err();
        assert_eq!(failure.to_string(), "the watch of pods failed repeatedly: it panicked: broken");
        assert_eq!(supervisor.outages(), ["the watch of pods panicked: broken; it is not restarted again"]);
        let statuses = supervisor.statuses().borrow().values().cloned().collect::<Vec<_>>();
        assert_eq!(statuses[0], TaskStatus { name: "other".into(), restarts: 0, state: TaskState::Running });
    }

    #[tokio::test(start_paused = true)]
    async fn errors_and_early_ends_are_failures() {
        let (supervisor, stop) = (Supervisor::default(), CancellationToken::new());
        tokio::spawn(supervisor.supervise("a", stop.clone(), || async { Err("no listener") }));
        tokio::spawn(supervisor.supervise("b", stop.clone(), || async {}));
        tokio::task::yield_now().await;
        assert_eq!(
            supervisor.outages(),
            ["the a failed: no listener; it restarts after 1 s", "the b ended unexpectedly; it restarts after 1 s"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn aborted_task_is_removed() {
        let supervisor = Supervisor::default();
        let task = tokio::spawn(supervisor.supervise("a", CancellationToken::new(), pending::<()>));
        tokio::task::yield_now().await;
        assert_eq!(supervisor.statuses().borrow().len(), 1);
        task.abort();
        task.await.unwrap_err();
        assert!(supervisor.statuses().borrow().is_empty());
    }
}
