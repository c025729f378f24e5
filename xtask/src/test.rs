//! Tests that require only this repository and Rust.

use anyhow::Result;

use crate::{process, spec};

pub(crate) fn all() -> Result<()> {
    spec::check()?;
    process::run(&mut process::cargo(&["test", "--workspace", "--quiet"]))
}
