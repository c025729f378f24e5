//! Supervision of background tasks: a task that panics or ends is restarted with exponential back-off.
//!
//! Input: a function that starts the task, called again after each failure. Output: [`Supervisor::statuses`] of all tasks, for
//! readiness probes and people, and [`Supervisor::failed`] once restarts do not help, so that the process can exit. The crate
//! knows nothing about what the tasks do.
//!
//! Layers: `back_off`, `task_status` → `supervisor`.

#![warn(missing_docs)]

mod back_off;
mod supervisor;
mod task_status;

pub use supervisor::{Supervisor, TaskOutput};
pub use task_status::{TaskFailure, TaskId, TaskState, TaskStatus, TaskStatuses};
