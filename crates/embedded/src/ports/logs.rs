//! Where `kubectl logs` reads.

use apimachinery::status::Status;
use bytes::Bytes;
use futures::stream::BoxStream;

/// Where `kubectl logs` reads.
pub trait PodLogs: Send + Sync {
    /// Lines as they were written, each with its newline.
    ///
    /// # Errors
    /// 400 where the container must be named or does not exist, 404 where there is nothing to read.
    fn open(&self, namespace: &str, pod: &str, query: LogQuery) -> Result<BoxStream<'static, Bytes>, Status>;
}

/// Which lines of a container's log are meant.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// May be left out where there is only one.
    pub container: Option<String>,
    /// Also what comes until the container ends.
    pub follow: bool,
    /// The last so many lines.
    pub tail: Option<usize>,
    /// Of the run before this one.
    pub previous: bool,
    pub since: Option<jiff::Timestamp>,
    /// Each line with its time in front.
    pub timestamps: bool,
    pub limit_bytes: Option<usize>,
}
