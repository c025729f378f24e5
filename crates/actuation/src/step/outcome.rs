//! Result of a rule for one server.

use jiff::Timestamp;

use crate::action::{Action, Write};
use crate::call::Call;
use crate::problem::Problem;

/// What to do for one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// The next action; without one the server waits.
    pub(super) action: Option<Action>,
    /// When to decide again.
    pub(super) again: Option<Timestamp>,
    /// What the status annotation reports.
    pub(super) problems: Vec<Problem>,
}

// === impl Outcome ===

impl Outcome {
    /// Waits for a change.
    pub(super) fn wait() -> Outcome {
        Outcome::default()
    }

    /// Waits for a change, at most until `again`.
    pub(super) fn wait_until(again: Timestamp) -> Outcome {
        Outcome { again: Some(again), ..Outcome::default() }
    }

    /// Waits for a change that solves the problem.
    pub(super) fn blocked(problem: Problem) -> Outcome {
        Outcome { problems: vec![problem], ..Outcome::default() }
    }

    pub(super) fn write(write: Write) -> Outcome {
        Outcome { action: Some(Action::Write(write)), ..Outcome::default() }
    }

    pub(super) fn call(call: Call) -> Outcome {
        Outcome { action: Some(Action::Call(call)), ..Outcome::default() }
    }

    /// Reports a problem in addition.
    pub(super) fn with_problem(mut self, problem: Option<Problem>) -> Outcome {
        self.problems.extend(problem);
        self
    }
}

/// Returns the earlier of two times, if there is one.
pub(super) fn earliest(left: Option<Timestamp>, right: Option<Timestamp>) -> Option<Timestamp> {
    [left, right].into_iter().flatten().min()
}
