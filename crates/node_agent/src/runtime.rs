//! The container runtime.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::logs::LogSink;

/// Runs containers, like a CRI runtime. Cancelling `stop` corresponds to SIGTERM from the kubelet; dropping the
/// future kills the container.
pub trait ContainerRuntime: Send + Sync {
    /// Runs a container until it exits.
    fn run(&self, container: ContainerConfig, stop: CancellationToken) -> BoxFuture<'static, ContainerExit>;

    /// Pulls `image` to `node`. The node agent retries after a failure.
    ///
    /// # Errors
    /// The error message of the registry.
    fn pull_image(&self, node: &str, image: &str) -> Result<(), String> {
        let _ = (node, image);
        Ok(())
    }

    /// Whether containers of `image` on `node` use the host file system. Volumes are set up only for such containers.
    fn uses_host_filesystem(&self, node: &str, image: &str) -> bool {
        let _ = (node, image);
        false
    }
}

/// The purpose of a container, which determines whether it has to exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerPurpose {
    /// A main container or sidecar: runs until it is stopped.
    Service,
    /// An init container: has to exit before the next container starts.
    Init,
    /// The command of an exec probe; exit code 0 means success.
    ExecProbe,
}

/// The configuration of a container (CRI `ContainerConfig`).
#[derive(Clone)]
pub struct ContainerConfig {
    /// The node of the Pod.
    pub node: String,
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub pod: String,
    /// UID of the Pod.
    pub pod_uid: String,
    /// Name of the container.
    pub name: String,
    /// Number of the run (CRI `attempt`): no other run of a container in this process has it. Exec probes have that of
    /// their container.
    pub attempt: u64,
    /// Image of the container.
    pub image: String,
    /// Purpose of the container.
    pub purpose: ContainerPurpose,
    /// `command`; `$(VAR)` is expanded.
    pub command: Vec<String>,
    /// `args`; `$(VAR)` is expanded.
    pub args: Vec<String>,
    /// Environment variables in the order of the Pod spec; `$(VAR)` is expanded.
    pub env: Vec<(String, String)>,
    /// IP of the Pod.
    pub pod_ip: IpAddr,
    /// Declared TCP ports.
    pub ports: Vec<u16>,
    /// `workingDir`.
    pub working_dir: Option<String>,
    /// Labels of the Pod.
    pub labels: BTreeMap<String, String>,
    /// IDs of the devices of the container by resource.
    pub devices: BTreeMap<String, Vec<String>>,
    /// Default working directory of containers that use the host file system.
    pub default_working_dir: Option<PathBuf>,
    /// The termination message file, then the volumes, sorted by descending length of their mount paths.
    pub mounts: Vec<Mount>,
    /// Output of the container.
    pub log: LogSink,
}

/// A volume of a container (CRI `Mount`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// `mountPath`, without a trailing slash.
    pub container_path: String,
    /// Path of the volume on the host.
    pub host_path: PathBuf,
}

/// Exit code and termination message of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerExit {
    /// Exit code.
    pub code: i32,
    /// Why the runtime could not start, run or observe the container; it replaces the termination message. Otherwise empty: the
    /// message is then the file at `terminationMessagePath`, or the end of the log.
    pub message: String,
}
