//! The context that all workers share.

use std::path::PathBuf;
use std::sync::Arc;

use apimachinery::{condition, object, persistent_volume};
use apiserver::Server;
use serde_json::Value;

use crate::device_manager::DeviceManager;
use crate::logs::ContainerLogs;
use crate::network::Network;
use crate::pod_ip_allocator::PodIpAllocator;
use crate::runtime::ContainerRuntime;
use crate::volumes;

/// Address of the host, which all nodes share.
pub(crate) const HOST_IP: &str = "127.0.0.1";

/// The dependencies of the workers.
pub(crate) struct NodeContext {
    pub(crate) server: Server,
    pub(crate) runtime: Arc<dyn ContainerRuntime>,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) devices: DeviceManager,
    pub(crate) logs: ContainerLogs,
    pub(crate) pod_ips: PodIpAllocator,
    pub(crate) directories: NodeDirectories,
}

/// Directories on the host in which the node agent stores data.
#[derive(Debug, Clone, Default)]
pub struct NodeDirectories {
    /// Container logs; `None` keeps them in memory.
    pub logs: Option<PathBuf>,
    /// Directories of Pods whose containers use the host file system.
    pub pods: Option<PathBuf>,
    /// Directory of dynamically provisioned PersistentVolumes; `None` disables provisioning.
    pub volumes: Option<PathBuf>,
}

// === impl NodeContext ===

impl NodeContext {
    /// Whether the node is ready. A node without a `Ready` condition is considered ready.
    pub(crate) fn is_node_ready(&self, name: &str) -> bool {
        let node = self.server.get("nodes", "", name);
        let status = node.as_ref().and_then(|node| node.get("status"));
        let ready = status.and_then(|status| condition::find(status, "Ready"));
        ready.is_none_or(|ready| object::text(ready, "/status") == "True")
    }

    /// Returns the directory of a Pod, if any of these containers uses the host file system.
    pub(crate) fn pod_dir<'a>(&self, pod: &Value, containers: impl IntoIterator<Item = &'a Value>) -> Option<PathBuf> {
        let node = object::text(pod, "/spec/nodeName");
        let uses_host_filesystem =
            |container: &Value| self.runtime.uses_host_filesystem(node, object::text(container, "/image"));
        let pods_dir = self.directories.pods.as_ref().filter(|_| containers.into_iter().any(uses_host_filesystem))?;
        Some(pods_dir.join(object::uid(pod)))
    }

    /// Removes a Pod from the API unless another one has its name now, and removes its logs and its directory.
    pub(crate) fn remove_pod(&self, pod: &Value) {
        let (namespace, name, uid) = (object::namespace(pod), object::name(pod), object::uid(pod));
        if self.stored_pod(pod).is_some()
            && let Err(status) = self.server.force_delete("pods", namespace, name, Some(uid))
        {
            tracing::debug!(namespace, name, %status, "failed to remove the Pod");
        }
        self.logs.remove_pod(namespace, name, uid);
        if let Some(pods_dir) = &self.directories.pods {
            volumes::remove_dir(&pods_dir.join(uid));
        }
    }

    /// Returns the stored Pod, `None` if it no longer exists or another Pod now has its name.
    pub(crate) fn stored_pod(&self, pod: &Value) -> Option<Arc<Value>> {
        let stored = self.server.get("pods", object::namespace(pod), object::name(pod))?;
        (object::uid(&stored) == object::uid(pod)).then_some(stored)
    }

    /// Removes the directory of a provisioned volume whose reclaim policy is `Delete`.
    pub(crate) fn remove_volume(&self, volume: &Value) {
        let dir = self
            .directories
            .volumes
            .as_deref()
            .and_then(|volumes_dir| persistent_volume::provisioned_directory(volume, volumes_dir));
        if let Some(dir) = dir {
            volumes::remove_dir(&dir);
        }
    }

    /// Removes the directories of Pods that no longer exist.
    pub(crate) fn remove_orphaned_pod_dirs(&self) {
        let pod_uids: Vec<String> = self.server.list("pods").iter().map(|pod| object::uid(pod).to_owned()).collect();
        let entries = self.directories.pods.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
        for entry in entries.filter(|entry| !pod_uids.iter().any(|uid| entry.file_name() == uid.as_str())) {
            volumes::remove_dir(&entry.path());
        }
    }

    /// Returns the internal IP of a node, 127.0.0.1 when it has none.
    pub(crate) fn host_ip(&self, node: &str) -> String {
        let node = self.server.get("nodes", "", node);
        let addresses = node.as_ref().and_then(|node| node.pointer("/status/addresses")?.as_array());
        let internal_ip =
            addresses.into_iter().flatten().find(|address| object::text(address, "/type") == "InternalIP");
        internal_ip.map_or(HOST_IP, |address| object::text(address, "/address")).to_owned()
    }
}
