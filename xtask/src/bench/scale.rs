//! The control plane at scale.

use anyhow::Result;

pub(super) fn run(_words: &[&str]) -> Result<()> {
    Ok(())
}
