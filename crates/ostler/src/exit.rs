//! Exit codes of the process.

use std::process::{ExitCode, Termination};

/// How the process ends; the value is its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command succeeded, or the reader of its output closed the pipe.
    Success = 0,
    /// Invalid arguments or input, an error of the command, an error finding of `ostler lint`, or a failed rollout. Usage
    /// errors have this code as well: clap's own code 2 means "infeasible" in `ostler plan`.
    Failure = 1,
    /// `ostler plan`: at least one service is infeasible.
    Infeasible = 2,
    /// A second SIGINT or SIGTERM interrupted the shutdown. Shells report 128 + 2 for a process that SIGINT terminated.
    Interrupted = 130,
}

// === impl Exit ===

impl Exit {
    /// Exits the process immediately.
    pub(crate) fn now(self) -> ! {
        std::process::exit(self as i32)
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}
