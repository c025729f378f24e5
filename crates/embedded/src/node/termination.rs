//! What a container says at its end: the file at `terminationMessagePath`, or the last lines of its log.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::logs::LogSink;
use super::volumes::private;
use crate::object;
use crate::ports::Mount;

/// More of the file is cut off.
const FILE_BYTES: usize = 4096;
const LOG_BYTES: usize = 2048;
const LOG_LINES: usize = 80;

/// Where one container leaves its last words.
pub(super) struct Termination {
    /// On this machine; `None` where the container sees no files of it.
    file: Option<PathBuf>,
    /// In the container.
    path: String,
    falls_back_to_log: bool,
}

impl Termination {
    /// `folder` is the Pod's.
    pub(super) fn of(container: &Value, folder: Option<&Path>) -> Self {
        let path = match object::text(container, "/terminationMessagePath") {
            "" => "/dev/termination-log",
            path => path,
        };
        Self {
            file: folder.map(|folder| folder.join("termination").join(object::text(container, "/name"))),
            path: path.to_owned(),
            falls_back_to_log: object::text(container, "/terminationMessagePolicy") == "FallbackToLogsOnError",
        }
    }

    /// Makes the file, empty, for the next run.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn begin(&self) -> Result<Option<Mount>, String> {
        let Some(file) = &self.file else { return Ok(None) };
        let made = file.parent().map_or(Ok(()), private).and_then(|()| fs::write(file, ""));
        made.map_err(|error| format!("cannot make the termination message file {}: {error}", file.display()))?;
        Ok(Some(Mount { path: self.path.clone(), lies: file.clone() }))
    }

    /// The message of a run that ended.
    pub(super) fn message(&self, code: i32, log: &LogSink) -> String {
        let written = self.file.as_ref().and_then(|file| fs::read(file).ok()).unwrap_or_default();
        if !written.is_empty() {
            return String::from_utf8_lossy(written.get(..FILE_BYTES).unwrap_or(&written)).into_owned();
        }
        if code == 0 || !self.falls_back_to_log {
            return String::new();
        }
        let tail = log.lines(Some(LOG_LINES)).concat();
        String::from_utf8_lossy(&tail[tail.len().saturating_sub(LOG_BYTES)..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::written("bad model", "File", 1, "bad model")]
    #[case::written_at_success("done", "File", 0, "done")]
    #[case::nothing("", "File", 1, "")]
    #[case::from_the_log("", "FallbackToLogsOnError", 1, "out of memory\n")]
    #[case::not_at_success("", "FallbackToLogsOnError", 0, "")]
    #[case::the_file_first("bad model", "FallbackToLogsOnError", 1, "bad model")]
    fn messages(#[case] written: &str, #[case] policy: &str, #[case] code: i32, #[case] expect: &str) {
        let folder = tempfile::tempdir().unwrap();
        let container = json!({"name": "c", "terminationMessagePolicy": policy});
        let termination = Termination::of(&container, Some(folder.path()));
        let mount = termination.begin().unwrap().unwrap();
        assert_eq!(mount.path, "/dev/termination-log");
        fs::write(&mount.lies, written).unwrap();
        let log = LogSink::default();
        log.write_line("out of memory");
        assert_eq!(termination.message(code, &log), expect);
        termination.begin().unwrap();
        assert_eq!(fs::read_to_string(&mount.lies).unwrap(), "", "every run begins anew");
    }
}
