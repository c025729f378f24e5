//! Result of a rule for one server.

use jiff::Timestamp;

use crate::action::{Action, Write};
use crate::call::Call;
use crate::problem::Problem;

/// What to do for one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Ruling {
    /// The next action; without one the server waits.
    pub(super) action: Option<Action>,
    /// When to decide again.
    pub(super) again: Option<Timestamp>,
    /// What the status annotation reports.
    pub(super) problems: Vec<Problem>,
}

// === impl Ruling ===

impl Ruling {
    /// Waits for a change.
    pub(super) fn wait() -> Ruling {
        Ruling::default()
    }

    /// Waits for a change, at most until `again`.
    pub(super) fn wait_until(again: Timestamp) -> Ruling {
        Ruling { again: Some(again), ..Ruling::default() }
    }

    /// Waits for a change that solves the problem.
    pub(super) fn blocked(problem: Problem) -> Ruling {
        Ruling { problems: vec![problem], ..Ruling::default() }
    }

    pub(super) fn write(write: Write) -> Ruling {
        Ruling { action: Some(Action::Write(write)), ..Ruling::default() }
    }

    pub(super) fn call(call: Call) -> Ruling {
        Ruling { action: Some(Action::Call(call)), ..Ruling::default() }
    }

    /// Reports a problem in addition.
    pub(super) fn with_problem(mut self, problem: Option<Problem>) -> Ruling {
        self.problems.extend(problem);
        self
    }
}

/// Returns the earlier of two times, if there is one.
pub(super) fn earliest(left: Option<Timestamp>, right: Option<Timestamp>) -> Option<Timestamp> {
    [left, right].into_iter().flatten().min()
}
