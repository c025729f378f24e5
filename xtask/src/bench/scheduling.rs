//! Simulated engines behind the default scheduling policy and those of other gateways. Virtual time: the results depend on the
//! seeds only.

use std::process::Command;

use anyhow::Result;

use super::directories::example;
use super::options::{Options, Size};
use crate::process;

/// Runs the simulation, which prints its table.
pub(super) fn run(options: &Options) -> Result<()> {
    let mut command = Command::new(example("scheduling"));
    command.args((options.size == Size::Small).then_some("--small"));
    process::run(&mut command)
}
