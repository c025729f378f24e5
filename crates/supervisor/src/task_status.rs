//! States of background tasks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of a task; tasks that were started later have greater numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(pub(crate) u64);

/// The states of all tasks, in the order in which they were started. A task that was stopped is removed.
pub type TaskStatuses = BTreeMap<TaskId, TaskStatus>;

/// The state of a background task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// What the task does, such as `scheduler`.
    pub name: Cow<'static, str>,
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

/// A background task failed repeatedly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {task} failed repeatedly: it {cause}")]
pub struct TaskFailure {
    /// What the task does, such as `scheduler`.
    pub task: Cow<'static, str>,
    /// Why the task ended the last time.
    pub cause: String,
}

// === impl TaskStatus ===

impl TaskStatus {
    /// Returns why the task does not run, in one line; `None` if it runs.
    #[must_use]
    pub fn outage(&self) -> Option<String> {
        let name = &self.name;
        match &self.state {
            TaskState::Running => None,
            TaskState::BackOff { cause, delay } => {
                Some(format!("the {name} {cause}; it restarts after {} s", delay.as_secs()))
            }
            TaskState::Failed { cause } => Some(format!("the {name} {cause}; it is not restarted again")),
        }
    }

    /// Returns the failure of a task that is not restarted.
    pub(crate) fn failure(&self) -> Option<TaskFailure> {
        match &self.state {
            TaskState::Failed { cause } => Some(TaskFailure { task: self.name.clone(), cause: cause.clone() }),
            TaskState::Running | TaskState::BackOff { .. } => None,
        }
    }
}
