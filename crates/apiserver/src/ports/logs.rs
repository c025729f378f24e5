//! Access to container logs.

use apimachinery::Status;
use bytes::Bytes;
use futures::stream::BoxStream;

/// Access to container logs, as used by `kubectl logs`.
pub trait PodLogs: Send + Sync {
    /// Opens the log of a container; lines include their newline.
    ///
    /// # Errors
    /// 400 when the Pod has not started, a container name is required or unknown, or there is no log.
    fn open(&self, namespace: &str, pod: &str, options: PodLogOptions) -> Result<BoxStream<'static, Bytes>, Status>;
}

/// Options of a log request (`PodLogOptions`).
#[derive(Debug, Clone, Default)]
pub struct PodLogOptions {
    /// Optional when the Pod has only one container.
    pub container: Option<String>,
    /// Whether to stream new lines until the container terminates.
    pub follow: bool,
    /// Number of lines from the end of the log.
    pub tail_lines: Option<usize>,
    /// Whether to read the log of the previous run.
    pub previous: bool,
    /// Only lines after this time.
    pub since: Option<jiff::Timestamp>,
    /// Whether to prefix each line with its time.
    pub timestamps: bool,
    /// Maximum number of bytes.
    pub limit_bytes: Option<usize>,
}
