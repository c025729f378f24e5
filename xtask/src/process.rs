//! Runs programs from the workspace root.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Creates a command that runs in the workspace root.
pub(crate) fn command(program: impl AsRef<Path>, args: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    command.args(args).current_dir(workspace::root());
    command
}

/// Creates a cargo command.
///
/// Cargo sets variables about this package when it runs this program. Some build scripts depend on variables of the same
/// names, so that what a shell has built would be compiled again.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = command(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), args);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Creates the command that runs the ignored tests whose names contain `filter` in the test targets called `target`.
///
/// All packages are selected, as in `cargo xtask test`: with fewer packages cargo enables fewer features of the dependencies and
/// compiles almost everything again.
pub(crate) fn ignored_tests(target: &str, filter: &str) -> Command {
    cargo(&["test", "--workspace", "--test", target, "--", "--ignored", filter])
}

/// Creates the command that runs one ignored integration test.
pub(crate) fn ignored_test(name: &str) -> Command {
    let mut command = ignored_tests("it", name);
    command.arg("--exact");
    command
}

/// Prints and runs a command; fails unless it exits with status 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", format_command(command));
    let status = command.status().with_context(|| format!("failed to start `{}`", format_command(command)))?;
    if !status.success() {
        bail!("`{}` failed with {status}", format_command(command));
    }
    Ok(())
}

/// Formats a command as a shell line.
pub(crate) fn format_command(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or_default().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}
