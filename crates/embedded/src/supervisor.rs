//! Supervision of the background tasks of a cluster: a task that panics or ends is restarted with exponential back-off.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use apimachinery::CaughtPanic;
use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Delay before the first restart; it doubles with each further restart.
const INITIAL_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// A task that has run for this long has recovered: its next failure counts as the first one.
const STABLE_AFTER: Duration = Duration::from_secs(5 * 60);

/// A task that fails this often without recovering is not restarted again. This takes about four minutes.
const MAX_FAILURES: u32 = 10;

/// The state of a background task of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// What the task does, such as `scheduler`.
    pub name: &'static str,
    /// How often the task was restarted.
    pub restarts: u32,
    /// What the task does now.
    pub state: TaskState,
}

/// Whether a background task runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// The task runs.
    Running,
    /// The task failed and is restarted after a delay.
    BackOff {
        /// Why the task ended.
        cause: String,
        /// Delay of the restart.
        delay: Duration,
    },
    /// The task failed repeatedly and is not restarted.
    Failed {
        /// Why the task ended the last time.
        cause: String,
    },
}

/// Runs background tasks until they are stopped.
pub(crate) struct Supervisor {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    statuses: watch::Sender<Vec<TaskStatus>>,
}

/// The restart back-off of one task.
#[derive(Debug, Default)]
struct RestartBackOff {
    /// Failures since the task has last recovered.
    failures: u32,
}

// === impl Supervisor ===

impl Supervisor {
    /// Returns a supervisor whose tasks end when `stop` is cancelled.
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { stop, tasks: JoinSet::new(), statuses: watch::Sender::new(Vec::new()) }
    }

    /// Spawns a task. `start` is called again after each failure.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: &'static str,
        start: impl Fn() -> F + Send + Sync + 'static,
    ) {
        self.statuses.send_modify(|all| all.push(TaskStatus { name, restarts: 0, state: TaskState::Running }));
        self.tasks.spawn(supervise(name, start, self.statuses.clone(), self.stop.clone()));
    }

    /// Returns a receiver of the states of all tasks, in the order in which they were spawned.
    pub(crate) fn statuses(&self) -> watch::Receiver<Vec<TaskStatus>> {
        self.statuses.subscribe()
    }

    /// Waits until all tasks have ended.
    pub(crate) async fn join(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Runs a task until `stop` is cancelled or restarts do not help.
async fn supervise<F: Future<Output = ()> + Send>(
    name: &'static str,
    start: impl Fn() -> F + Send + Sync,
    statuses: watch::Sender<Vec<TaskStatus>>,
    stop: CancellationToken,
) {
    let mut back_off = RestartBackOff::default();
    loop {
        let start_time = Instant::now();
        let outcome = AssertUnwindSafe(async { start().await }).catch_unwind().await;
        if stop.is_cancelled() && outcome.is_ok() {
            return;
        }
        let cause = match outcome {
            Ok(()) => "ended unexpectedly".to_owned(),
            Err(payload) => CaughtPanic::from_payload(payload.as_ref()).to_string(),
        };
        let delay = back_off.next_delay(start_time.elapsed());
        let Some(delay) = delay.filter(|_| !stop.is_cancelled()) else {
            tracing::error!(task = name, cause, "a task of the cluster failed and is not restarted");
            return update(&statuses, name, |status| status.state = TaskState::Failed { cause });
        };
        tracing::error!(task = name, cause, ?delay, "a task of the cluster failed and is restarted");
        update(&statuses, name, |status| status.state = TaskState::BackOff { cause, delay });
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(delay) => {}
        }
        update(&statuses, name, |status| {
            status.restarts = status.restarts.saturating_add(1);
            status.state = TaskState::Running;
        });
    }
}

fn update(statuses: &watch::Sender<Vec<TaskStatus>>, name: &str, change: impl FnOnce(&mut TaskStatus)) {
    statuses.send_modify(|all| {
        if let Some(status) = all.iter_mut().find(|status| status.name == name) {
            change(status);
        }
    });
}

// === impl RestartBackOff ===

impl RestartBackOff {
    /// Returns the delay before restarting a task that ran for `run_time`; `None` if it has failed too often.
    fn next_delay(&mut self, run_time: Duration) -> Option<Duration> {
        if run_time >= STABLE_AFTER {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let doublings = 2_u32.saturating_pow(self.failures.saturating_sub(1));
        (self.failures < MAX_FAILURES).then(|| INITIAL_DELAY.saturating_mul(doublings).min(MAX_DELAY))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn delays_double_until_the_task_recovers_or_fails() {
        let mut back_off = RestartBackOff::default();
        let mut delays = |run_time: u64, count: usize| -> Vec<Option<u64>> {
            (0..count).map(|_| back_off.next_delay(Duration::from_secs(run_time)).map(|d| d.as_secs())).collect()
        };
        assert_eq!(delays(0, 3), [Some(1), Some(2), Some(4)]);
        assert_eq!(delays(300, 1), [Some(1)], "the task has recovered");
        assert_eq!(delays(299, 8), [2, 4, 8, 16, 32, 60, 60, 60].map(Some));
        assert_eq!(delays(0, 2), [None, None], "the task cannot be kept alive");
    }

    /// Spawns a task that panics `panics` times, and one that does not.
    fn supervisor(panics: usize) -> (Supervisor, CancellationToken) {
        let stop = CancellationToken::new();
        let mut supervisor = Supervisor::new(stop.clone());
        let remaining = Arc::new(AtomicUsize::new(panics));
        for (name, is_broken) in [("broken", true), ("other", false)] {
            let (remaining, stop) = (Arc::clone(&remaining), stop.clone());
            supervisor.spawn(name, move || {
                let (remaining, stop) = (Arc::clone(&remaining), stop.clone());
                async move {
                    let take = |remaining: usize| remaining.checked_sub(1);
                    let panics =
                        is_broken && remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
                    assert!(!panics, "broken");
                    stop.cancelled().await;
                }
            });
        }
        (supervisor, stop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_restarted_with_back_off() {
        let (supervisor, stop) = supervisor(3);
        let mut statuses = supervisor.statuses();
        let mut delays = Vec::new();
        while delays.len() < 3 {
            statuses.changed().await.unwrap();
            if let TaskState::BackOff { cause, delay } = &statuses.borrow_and_update()[0].state {
                assert_eq!(cause, "panicked: broken");
                delays.push(delay.as_secs());
            }
        }
        assert_eq!(delays, [1, 2, 4]);
        statuses.changed().await.unwrap();
        let expected = TaskStatus { name: "broken", restarts: 3, state: TaskState::Running };
        assert_eq!(statuses.borrow_and_update()[0], expected);
        stop.cancel();
        supervisor.join().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_always_panics_fails_and_the_others_continue() {
        let (supervisor, stop) = supervisor(usize::MAX);
        let mut statuses = supervisor.statuses();
        let failed = TaskState::Failed { cause: "panicked: broken".to_owned() };
        let statuses = statuses.wait_for(|all| all[0].state == failed).await.unwrap().clone();
        assert_eq!(statuses[1], TaskStatus { name: "other", restarts: 0, state: TaskState::Running });
        stop.cancel();
        supervisor.join().await;
    }
}
