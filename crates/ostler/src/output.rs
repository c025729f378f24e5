//! Writes data to standard output and messages to standard error. A closed pipe is not an error.

use std::fmt;
use std::io::{self, Write};

use anyhow::{Context, Result};

/// Format of the result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
}

/// The reader of standard output has closed the pipe; the command ends without an error message.
#[derive(Debug)]
pub(crate) struct StdoutClosed;

// === impl StdoutClosed ===

impl fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for StdoutClosed {}

/// Writes `text` to standard output and flushes it: the reader of a pipe may wait for each line.
///
/// # Errors
/// [`StdoutClosed`] if the reader closed the pipe, otherwise the I/O error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        result => result.context("standard output"),
    }
}

/// Writes a line to standard output; see [`print`].
///
/// # Errors
/// Returns the errors of [`print`].
pub(crate) fn print_line(text: &str) -> Result<()> {
    print(&format!("{text}\n"))
}

/// Writes a line to standard error. Unlike `eprintln!`, it does not panic if the pipe is closed.
pub(crate) fn print_message(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Returns whether the cause of `error` is that the reader of standard output closed the pipe.
pub(crate) fn is_stdout_closed(error: &anyhow::Error) -> bool {
    let outermost = error.chain().next().and_then(|cause| cause.downcast_ref::<io::Error>());
    error.is::<StdoutClosed>() || outermost.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
