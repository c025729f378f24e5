//! How a container runs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::LogSink;

/// How a container runs. `stop` is cancelled where a kubelet would send SIGTERM; dropping the future kills.
pub trait Runner: Send + Sync {
    fn run(&self, container: Container, stop: CancellationToken) -> BoxFuture<'static, Exit>;

    /// Brings `image` to `node`, or says why that is not possible, as a registry would. It is asked again after a while.
    ///
    /// # Errors
    /// What a kubelet would be told.
    fn pull(&self, node: &str, image: &str) -> Result<(), String> {
        let _ = (node, image);
        Ok(())
    }

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
