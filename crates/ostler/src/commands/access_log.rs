//! Argument for the access log of a frontend.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use picker::{AccessLog, AccessLogGuard};

use crate::report::errors::error_with_hint;

#[derive(clap::Args)]
pub(super) struct AccessLogArgs {
    /// Append one line of JSON per finished request to this file; `-` is standard output [default: none]
    ///
    /// A line contains pool, use case, endpoint, status, sizes, tokens and times, never prompts or responses. If the disk or the reader
    /// is too slow, lines are dropped and counted in `ostler_access_log_dropped_lines_total`. The file is not rotated: use `copytruncate`
    /// of logrotate.
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
}

// === impl AccessLogArgs ===

impl AccessLogArgs {
    /// Opens the log. The guard writes the last lines when it is dropped.
    pub(super) fn open(&self) -> Result<Option<(AccessLog, AccessLogGuard)>> {
        let Some(path) = &self.access_log else { return Ok(None) };
        let destination: Box<dyn Write + Send> = match path.as_os_str() == "-" {
            true => Box::new(io::stdout()),
            false => Box::new(File::options().append(true).create(true).open(path).map_err(|error| {
                let cause = format!("--access-log: failed to open {}: {error}", path.display());
                error_with_hint(cause, "name a file in a directory that exists and is writable, or `-`")
            })?),
        };
        Ok(Some(AccessLog::new(destination)))
    }
}
