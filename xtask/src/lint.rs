//! Checks of formatting and clippy lints, with warnings as errors.

use anyhow::Result;

use crate::process;

pub(crate) fn run() -> Result<()> {
    process::run(&mut process::cargo(&["fmt", "--all", "--check"]))?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    process::run(&mut process::cargo(&clippy))
}
