//! The termination message of a container: the file at `terminationMessagePath`, or the last lines of its log.

use std::fs;
use std::path::{Path, PathBuf};

use apimachinery::object;
use serde_json::Value;

use crate::logs::LogSink;
use crate::private_directory::create_private_dir;
use crate::runtime::Mount;

/// Maximum size of the message from the file.
const MAX_FILE_BYTES: usize = 4096;
const MAX_LOG_BYTES: usize = 2048;
const MAX_LOG_LINES: usize = 80;

/// The termination message settings of one container.
pub(crate) struct TerminationMessage {
    /// Path on the host; `None` when the container does not use the host file system.
    file: Option<PathBuf>,
    /// `terminationMessagePath`.
    path: String,
    falls_back_to_log: bool,
}

impl TerminationMessage {
    /// Reads the settings from the spec of a container; `pod_dir` is the directory of its Pod.
    pub(crate) fn new(container: &Value, pod_dir: Option<&Path>) -> Self {
        let path = match object::text(container, "/terminationMessagePath") {
            "" => "/dev/termination-log",
            path => path,
        };
        Self {
            file: pod_dir.map(|pod_dir| pod_dir.join("termination").join(object::text(container, "/name"))),
            path: path.to_owned(),
            falls_back_to_log: object::text(container, "/terminationMessagePolicy") == "FallbackToLogsOnError",
        }
    }

    /// Creates the empty file for the next run and returns its mount.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn create_file(&self) -> Result<Option<Mount>, String> {
        let Some(file) = &self.file else { return Ok(None) };
        let result = file.parent().map_or(Ok(()), create_private_dir).and_then(|()| fs::write(file, ""));
        result.map_err(|error| format!("failed to create the termination message file {}: {error}", file.display()))?;
        Ok(Some(Mount { container_path: self.path.clone(), host_path: file.clone() }))
    }

    /// Returns the message of a terminated run.
    pub(crate) fn read(&self, exit_code: i32, log: &LogSink) -> String {
        let content = self.file.as_ref().and_then(|file| fs::read(file).ok()).unwrap_or_default();
        if !content.is_empty() {
            return String::from_utf8_lossy(content.get(..MAX_FILE_BYTES).unwrap_or(&content)).into_owned();
        }
        if exit_code == 0 || !self.falls_back_to_log {
            return String::new();
        }
        let tail = log.lines(Some(MAX_LOG_LINES)).concat();
        String::from_utf8_lossy(&tail[tail.len().saturating_sub(MAX_LOG_BYTES)..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::written("bad model", "File", 1, "bad model")]
    #[case::written_on_success("done", "File", 0, "done")]
    #[case::empty("", "File", 1, "")]
    #[case::from_log("", "FallbackToLogsOnError", 1, "out of memory\n")]
    #[case::no_log_on_success("", "FallbackToLogsOnError", 0, "")]
    #[case::file_before_log("bad model", "FallbackToLogsOnError", 1, "bad model")]
    fn reads_message(#[case] written: &str, #[case] policy: &str, #[case] exit_code: i32, #[case] expect: &str) {
        let pod_dir = tempfile::tempdir().unwrap();
        let container = json!({"name": "c", "terminationMessagePolicy": policy});
        let message = TerminationMessage::new(&container, Some(pod_dir.path()));
        let mount = message.create_file().unwrap().unwrap();
        assert_eq!(mount.container_path, "/dev/termination-log");
        fs::write(&mount.host_path, written).unwrap();
        let log = LogSink::default();
        log.write_line("out of memory");
        assert_eq!(message.read(exit_code, &log), expect);
        message.create_file().unwrap();
        assert_eq!(fs::read_to_string(&mount.host_path).unwrap(), "", "every container run starts with an empty file");
    }
}
