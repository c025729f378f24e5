//! Schedules of the simulation of the control plane. Virtual time: the results depend on the seeds only.

use std::process::Command;

use anyhow::Result;

use super::directories::example;
use super::options::{Options, Size};
use crate::process;

/// Runs the seeds, and prints the journal of the smallest schedule that breaks an invariant.
pub(super) fn run(options: &Options) -> Result<()> {
    let mut command = Command::new(example("run_seeds"));
    command.args((options.size == Size::Small).then_some("--small"));
    process::run(&mut command)
}
