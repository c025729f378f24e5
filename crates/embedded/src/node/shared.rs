//! What every Pod's task uses.

use std::path::PathBuf;

use serde_json::Value;

use super::addresses::Addresses;
use super::logs::Logs;
use super::volumes;
use crate::Server;
use crate::object;
use crate::ports::Ports;
use crate::workloads::condition;
use crate::workloads::volume_claim;

/// The machine that all nodes share.
pub(super) const HOST: &str = "127.0.0.1";

pub(crate) struct Shared {
    pub(crate) server: Server,
    pub(crate) ports: Ports,
    pub(crate) logs: Logs,
    pub(crate) addresses: Addresses,
    pub(super) folders: Folders,
}

/// Where the node agent keeps what is not in the API.
#[derive(Debug, Clone, Default)]
pub struct Folders {
    /// Containers' logs; without it they are in memory.
    pub logs: Option<PathBuf>,
    /// A folder for every Pod whose containers see files of this machine.
    pub pods: Option<PathBuf>,
    /// Volumes that are made for claims; without it none are.
    pub volumes: Option<PathBuf>,
}

// === impl Shared ===

impl Shared {
    /// A node that nobody knows anything of counts as ready.
    pub(crate) fn is_node_ready(&self, name: &str) -> bool {
        let node = self.server.get("nodes", "", name);
        let status = node.as_ref().and_then(|node| node.get("status"));
        let ready = status.and_then(|status| condition::find(status, "Ready"));
        ready.is_none_or(|ready| object::text(ready, "/status") == "True")
    }

    /// The folder of a Pod, where any of these containers sees files of this machine.
    pub(crate) fn folder<'a>(&self, pod: &Value, containers: impl IntoIterator<Item = &'a Value>) -> Option<PathBuf> {
        let node = object::text(pod, "/spec/nodeName");
        let sees = |container: &Value| self.ports.runner.sees_files(node, object::text(container, "/image"));
        let folder = self.folders.pods.as_ref().filter(|_| containers.into_iter().any(sees))?;
        Some(folder.join(object::uid(pod)))
    }

    /// Removes what was in a volume that was made here, where it says so.
    pub(super) fn remove_volume(&self, volume: &Value) {
        let folder = self.folders.volumes.as_deref().and_then(|all| volume_claim::folder_of(volume, all));
        if let Some(folder) = folder {
            volumes::remove(&folder);
        }
    }

    /// Removes the folders of Pods that are gone.
    pub(super) fn sweep(&self) {
        let known: Vec<String> = self.server.list("pods").iter().map(|pod| object::uid(pod).to_owned()).collect();
        let entries = self.folders.pods.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
        for entry in entries.filter(|entry| !known.iter().any(|uid| entry.file_name() == uid.as_str())) {
            volumes::remove(&entry.path());
        }
    }

    /// The address of a node, 127.0.0.1 when it has none.
    pub(crate) fn host(&self, node: &str) -> String {
        let node = self.server.get("nodes", "", node);
        let addresses = node.as_ref().and_then(|node| node.pointer("/status/addresses")?.as_array());
        let internal = addresses.into_iter().flatten().find(|a| object::text(a, "/type") == "InternalIP");
        internal.map_or(HOST, |a| object::text(a, "/address")).to_owned()
    }
}
