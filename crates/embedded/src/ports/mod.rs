//! Everything that reaches outside: the caller fills these in, tests and the simulation with their own.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use apimachinery::status::{Cause, Status};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

pub use crate::node::logs::LogSink;

/// The ports of one cluster.
#[derive(Clone)]
pub struct Ports {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub admission: Arc<dyn Admission>,
    pub runner: Arc<dyn Runner>,
    pub network: Arc<dyn Network>,
}

/// What time it is.
pub trait Clock: Send + Sync {
    fn now(&self) -> jiff::Timestamp;
}

/// Where uids and generated names come from.
pub trait Random: Send + Sync {
    /// A version 4 UUID in lower case.
    fn uuid(&self) -> String;
    /// `len` characters of `bcdfghjklmnpqrstvwxz2456789`, the alphabet of Kubernetes' generated names.
    fn suffix(&self, len: usize) -> String;
}

/// What an admission webhook would be asked, and answers; in process.
pub trait Admission: Send + Sync {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse;
}

/// One write, after defaulting and validation.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionRequest<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// Plural and group: `pods`, `deployments.apps`.
    pub resource: &'a str,
    /// Empty for cluster-scoped kinds.
    pub namespace: &'a str,
    pub name: &'a str,
    /// Absent on `DELETE`.
    pub object: Option<&'a Value>,
    /// Absent on `CREATE`.
    pub old: Option<&'a Value>,
}

/// The answer to an [`AdmissionRequest`].
#[derive(Debug, Clone, Default)]
pub struct AdmissionResponse {
    pub allowed: bool,
    /// Why not; shown to the client.
    pub message: String,
    /// The fields that are wrong, where the refusal is about fields.
    pub causes: Vec<Cause>,
    /// Shown to the client as `Warning:` lines, also when allowed.
    pub warnings: Vec<String>,
}

/// How a container runs. `stop` is cancelled where a kubelet would send SIGTERM; dropping the future kills.
pub trait Runner: Send + Sync {
    fn run(&self, container: Container, stop: CancellationToken) -> BoxFuture<'static, Exit>;

    /// Whether a container of `image` on `node` sees files of this machine: only for those are volumes laid out.
    fn sees_files(&self, node: &str, image: &str) -> bool {
        let _ = (node, image);
        false
    }
}

/// What a container is run for: some have to end by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Runs until it is stopped.
    Serve,
    /// An init container: the Pod waits for its end.
    Initialise,
    /// The command of an exec probe; exit code 0 is success.
    Probe,
}

/// One container, ready to start.
#[derive(Clone)]
pub struct Container {
    /// The node that its Pod is on.
    pub node: String,
    pub namespace: String,
    pub pod: String,
    pub pod_uid: String,
    pub name: String,
    pub image: String,
    pub purpose: Purpose,
    pub command: Vec<String>,
    /// `$(VAR)` is expanded.
    pub args: Vec<String>,
    /// In the order of the Pod; `$(VAR)` is expanded.
    pub env: Vec<(String, String)>,
    /// The Pod's own address.
    pub address: IpAddr,
    /// TCP ports that it declares.
    pub ports: Vec<u16>,
    pub working_dir: Option<String>,
    /// The Pod's labels.
    pub labels: BTreeMap<String, String>,
    /// `resources` of the container, as written.
    pub resources: Value,
    /// A folder of its own to work in, where containers see files of this machine.
    pub folder: Option<PathBuf>,
    /// Its volumes, the longest path first.
    pub mounts: Vec<Mount>,
    pub log: LogSink,
}

/// A volume of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where the container looks for it: `mountPath`, without a slash at its end.
    pub path: String,
    /// Where it lies on this machine.
    pub lies: PathBuf,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    /// Empty, or what a kubelet would put into the termination message.
    pub message: String,
}

/// How probes and proxies reach a Pod.
pub trait Network: Send + Sync {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;
}

/// One connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

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

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// The machine's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

/// Allows every write.
#[derive(Debug, Clone, Copy, Default)]
pub struct AdmitAll;

/// TCP, as the machine has it; every Pod address is a loopback address.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loopback;

// === impl SystemClock ===

impl Clock for SystemClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }
}

// === impl SystemRandom ===

/// Kubernetes leaves out vowels and look-alikes (`k8s.io/apimachinery/pkg/util/rand`).
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Random for SystemRandom {
    fn uuid(&self) -> String {
        let bits = fastrand::u128(..);
        let bits = bits & !(0xf << 76) & !(0b11 << 62) | (0x4 << 76) | (0b10 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    fn suffix(&self, len: usize) -> String {
        (0..len).map(|_| char::from(SUFFIX_ALPHABET[fastrand::usize(..SUFFIX_ALPHABET.len())])).collect()
    }
}

// === impl AdmitAll ===

impl Admission for AdmitAll {
    fn review(&self, _request: &AdmissionRequest<'_>) -> AdmissionResponse {
        AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
    }
}

// === impl Loopback ===

impl Network for Loopback {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_the_shape_of_version_4() {
        let uuid = SystemRandom.uuid();
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&uuid[14..15], "4");
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
    }
}
