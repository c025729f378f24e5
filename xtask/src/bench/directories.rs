//! Directories of built programs and of benchmark output.

use std::path::PathBuf;

use anyhow::Result;

use crate::workspace;

/// Returns the target directory of cargo.
pub(super) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace::root().join("target"), PathBuf::from)
}

/// Creates and returns the output directory of a benchmark.
pub(super) fn output_directory(name: &str) -> Result<PathBuf> {
    let directory = target_directory().join("bench").join(name);
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// Returns the program of an example.
pub(super) fn example(name: &str) -> PathBuf {
    target_directory().join("release/examples").join(name)
}
