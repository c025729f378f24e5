//! What the controller observed over HTTP in the current term: it is lost when the controller restarts or another one leads, and
//! then queried again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::call::{ObservedInstance, Request};
use crate::delete_purpose::DeletePurpose;
use crate::problem::Problem;

/// Observations of one engine. They concern one run of its container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineFacts {
    /// Whether the engine is awake; `None` if it was not observed, or may have changed since.
    pub activity: Option<Activity>,
    /// Result of the check after it woke up; `None` if it was not checked since.
    pub verification: Option<Verification>,
    /// Progress of putting it to sleep.
    pub drain: Option<Drain>,
    /// When the first of the wake requests was sent that have not succeeded.
    pub waking_since: Option<Timestamp>,
    /// Failed attempts to put it to sleep since it was last asleep.
    pub sleep_failures: u32,
    /// Failed attempts to wake or verify it since it was last awake and verified.
    pub wake_failures: u32,
    /// Failed attempts to observe whether it is awake since the last success.
    pub query_failures: u32,
    /// The last call that failed, until a later answer shows that the failure has ended.
    pub last_failure: Option<CallFailure>,
    /// The call that has not ended.
    pub outstanding: Option<Request>,
    /// Time before which no call is started after a failure.
    pub retry_at: Option<Timestamp>,
    /// What is known of an instance as such.
    pub instance: InstanceFacts,
}

/// Observations of an instance of a launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceFacts {
    /// Its processes; `None` before the launcher has responded.
    pub process: Option<Process>,
    /// Revision of its last change by this controller: older responses do not contain it.
    pub revision: u64,
    /// Whether it is healthy.
    pub is_healthy: bool,
    /// When that was last observed.
    pub health_checked_at: Option<Timestamp>,
    /// Whether it was created for the requester to which it is bound.
    pub is_new: bool,
    /// Failed attempts to create it.
    pub create_failures: u32,
    /// Failed attempts to delete it.
    pub delete_failures: u32,
    /// Why the controller deletes it.
    pub deletion: Option<DeletePurpose>,
}

/// The processes of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The launcher has no such instance, which was not created yet or was deleted by the controller.
    Absent,
    /// They run.
    Running,
    /// They ended, or another client deleted the instance.
    Ended,
}

/// Observations of one launcher. They concern one run of its container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LauncherFacts {
    /// Revision of the last response; `None` before the first one.
    pub revision: Option<u64>,
    /// Instances in the last response.
    pub instances: BTreeMap<String, ObservedInstance>,
    /// Consecutive failed calls.
    pub failures: u32,
    /// The call that has not ended.
    pub outstanding: Option<Request>,
    /// Time before which no call is started after a failure.
    pub retry_at: Option<Timestamp>,
}

/// Whether an engine is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It serves requests and uses the memory of its accelerators.
    Awake,
    /// It is in sleep mode.
    Asleep,
    /// It has no routes of sleep mode, so that it is awake.
    SleepUnsupported,
}

/// Result of the check of an engine that woke up or was first ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Completion of the engine, if the controller requests one.
    pub completion: Option<String>,
}

/// Progress of putting an engine to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// When draining began, after the pool labels were removed.
    pub since: Timestamp,
    /// Whether no request runs or waits.
    pub is_idle: bool,
    /// Whether a sleep request was answered and is not confirmed yet.
    pub is_sleep_sent: bool,
    /// Whether the engine did not finish its requests in time, so that they are aborted.
    pub is_overdue: bool,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// What was attempted, such as `wake`.
    pub action: &'static str,
    /// Cause.
    pub message: String,
}

// === impl InstanceFacts ===

impl InstanceFacts {
    /// Records a response of the launcher; `observed` is `None` if it does not contain the instance. `was_ready` is whether the engine
    /// was ever ready.
    pub(crate) fn observe(&mut self, revision: u64, observed: Option<&ObservedInstance>, was_ready: bool) {
        if revision < self.revision {
            return;
        }
        self.process = Some(match (observed, self.process) {
            (Some(instance), _) if instance.is_running => Process::Running,
            (Some(_), _) => Process::Ended,
            (None, Some(Process::Absent)) => Process::Absent,
            (None, _) if self.deletion.is_some() => Process::Absent,
            (None, None) if !was_ready => Process::Absent,
            (None, _) => Process::Ended,
        });
    }
}

/// Observations of one requester. They concern one run of its container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequesterFacts {
    /// Accelerators that it reported.
    pub accelerators: Option<BTreeSet<String>>,
    /// Memory usage in MiB of its accelerators, measured while no engine on them was awake; removed when an engine changes.
    pub memory: Option<MemoryUsage>,
    /// Readiness that was last sent to it and answered; `None` if none was, or the answer was lost.
    pub relayed: Option<bool>,
    /// Whether it need not hold its accelerators any longer.
    pub is_released: bool,
    /// Problem of the last call that failed, until that call succeeds.
    pub problem: Option<Problem>,
    /// Consecutive failed calls.
    pub failures: u32,
    /// The call that has not ended.
    pub outstanding: Option<Request>,
    /// Time before which no call is started after a failure.
    pub retry_at: Option<Timestamp>,
}

/// Memory usage of accelerators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryUsage {
    /// It was measured.
    Known {
        /// Used MiB by UUID.
        used_mib: BTreeMap<String, u64>,
        /// When.
        at: Timestamp,
    },
    /// The requester cannot read it, for example without `nvidia-smi`.
    Unavailable,
}
