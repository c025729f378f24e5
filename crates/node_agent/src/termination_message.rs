//! The termination message of a container: the file at `terminationMessagePath`, or the last lines of its log.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use apimachinery::object;
use rustix::fs::OFlags;
use serde_json::Value;

use crate::logs::LogSink;
use crate::private_directory::create_private_dir;
use crate::runtime::Mount;

/// Maximum size of the message from the file: a longer message loses its beginning, as with the kubelet.
const MAX_FILE_BYTES: u64 = 4096;
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
        let result = file.parent().map_or(Ok(()), create_private_dir).and_then(|()| create_empty_file(file));
        result.map_err(|error| format!("failed to create the termination message file {}: {error}", file.display()))?;
        Ok(Some(Mount { container_path: self.path.clone(), host_path: file.clone() }))
    }

    /// Returns the message of a terminated run.
    pub(crate) fn read(&self, exit_code: i32, log: &LogSink) -> String {
        let content = self.file.as_ref().and_then(|file| read_end(file).ok()).unwrap_or_default();
        if !content.is_empty() {
            return String::from_utf8_lossy(&content).into_owned();
        }
        if exit_code == 0 || !self.falls_back_to_log {
            return String::new();
        }
        String::from_utf8_lossy(&log.tail(MAX_LOG_LINES, MAX_LOG_BYTES)).into_owned()
    }
}

/// Replaces whatever the previous run of the container left at this path, without following a link.
fn create_empty_file(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => OpenOptions::new().write(true).create_new(true).open(file).map(drop),
    }
}

/// Returns the last bytes of a regular file. A container may replace the file by a link to a device, or by a pipe, which
/// would block the reader.
fn read_end(file: &Path) -> io::Result<Vec<u8>> {
    if !fs::symlink_metadata(file)?.is_file() {
        return Ok(Vec::new());
    }
    // A container that shares the volume may have replaced the file in the meantime.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(file)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Vec::new());
    }
    let length = metadata.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_FILE_BYTES)))?;
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut content)?;
    Ok(content)
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

    #[test]
    fn reads_only_the_end_of_regular_files() {
        let pod_dir = tempfile::tempdir().unwrap();
        let message = TerminationMessage::new(&json!({"name": "c"}), Some(pod_dir.path()));
        let file = message.create_file().unwrap().unwrap().host_path;
        fs::write(&file, format!("{}end", "x".repeat(5000))).unwrap();
        let end = message.read(1, &LogSink::default());
        assert!(end.len() == 4096 && end.ends_with("xend"), "{end}");

        let foreign_file = pod_dir.path().join("foreign");
        fs::write(&foreign_file, "private").unwrap();
        for target in ["/dev/zero", foreign_file.to_str().unwrap()] {
            fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink(target, &file).unwrap();
            assert_eq!(message.read(1, &LogSink::default()), "");
        }
        message.create_file().unwrap();
        assert_eq!(fs::read_to_string(&foreign_file).unwrap(), "private");

        fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        assert_eq!(message.read(1, &LogSink::default()), "", "a pipe without a writer would block");
        message.create_file().unwrap();
    }
}
