//! A kube-apiserver with etcd for one test.

use std::path::PathBuf;

use realcluster::{Binaries, Components, RealCluster};

/// Running kube-apiserver; stopped on drop.
pub(super) struct RealApiserver {
    /// Dropped before `directory` is removed, because dropping it stops the processes.
    cluster: Option<RealCluster>,
    directory: PathBuf,
}

// === impl RealApiserver ===

impl RealApiserver {
    /// Starts a kube-apiserver and waits until it is ready.
    pub(super) async fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("ostler-differential-").tempdir().unwrap().keep();
        let binaries = Binaries::find_for(Components::minimal()).unwrap();
        let cluster = RealCluster::start_components(Components::minimal(), binaries, directory.clone()).await.unwrap();
        Self { cluster: Some(cluster), directory }
    }

    pub(super) fn client(&self) -> kube::Client {
        self.cluster.as_ref().unwrap().client.clone()
    }
}

impl Drop for RealApiserver {
    fn drop(&mut self) {
        self.cluster = None;
        // Retain the logs after a failure.
        if !std::thread::panicking() {
            std::fs::remove_dir_all(&self.directory).ok();
        }
    }
}
