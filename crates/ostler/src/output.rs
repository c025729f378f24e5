//! stdout is data, stderr is talk; the reader of either may go away at any time, which is no error.

use std::fmt;
use std::io::{self, Write};

use anyhow::{Context, Result};

/// Whoever read our standard output has gone: nothing is left to do, and nobody to tell.
#[derive(Debug)]
pub(crate) struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for Closed {}

/// Writes `text` as it is to standard output, at once: a pipe's reader may wait for each line.
///
/// # Errors
/// [`Closed`], or what else kept the text from being written.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        written => written.context("standard output"),
    }
}

/// [`print`], with the end of the line.
///
/// # Errors
/// The same.
pub(crate) fn print_line(text: &str) -> Result<()> {
    print(&format!("{text}\n"))
}

/// A line for people on standard error. Unlike `eprintln!`, it does not panic when nobody reads any more.
pub(crate) fn tell(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Whether `error` is nothing but the end of our reader.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    let outermost = error.chain().next().and_then(|cause| cause.downcast_ref::<io::Error>());
    error.is::<Closed>() || outermost.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
