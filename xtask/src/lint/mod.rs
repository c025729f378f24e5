//! Checks of formatting, module cycles, paths in documents, and clippy lints. Warnings are errors.

mod cycles;
mod module_graph;
mod module_tree;
mod paths;

use anyhow::{Result, bail};

use crate::process;
use module_graph::ModuleGraph;

/// Runs all checks.
pub(crate) fn run() -> Result<()> {
    process::run(&mut process::cargo(&["fmt", "--all", "--check"]))?;
    check_modules(&[])?;
    check_paths()?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    process::run(&mut process::cargo(&clippy))
}

/// Fails if files of one crate use each other's items, directly or through other files. `packages` limits the check to
/// these packages; all are checked if it is empty.
pub(crate) fn check_modules(packages: &[&str]) -> Result<()> {
    let mut count = 0;
    for root in module_tree::crate_roots(packages)? {
        let graph = ModuleGraph::of_crate(&root)?;
        for cycle in cycles::find(&graph.edges()) {
            count += 1;
            eprintln!("{}", graph.describe(&cycle));
        }
    }
    if count > 0 {
        bail!(
            "modules have import cycles: {count}\nhint: move the shared item into a module below both, or return a value from the lower module and act on it in the upper one"
        );
    }
    Ok(())
}

/// Fails if a document names a file that does not exist.
fn check_paths() -> Result<()> {
    let missing = paths::missing()?;
    if !missing.is_empty() {
        bail!("paths that do not exist: {}", missing.join(", "));
    }
    Ok(())
}
