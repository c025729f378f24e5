//! A kube-apiserver of this test's own, to which nobody else writes.

use std::path::PathBuf;

use realcluster::{Binaries, Parts, RealCluster};

pub(super) struct Living {
    /// Taken out, and so ended, before its folder goes.
    cluster: Option<RealCluster>,
    folder: PathBuf,
}

// === impl Living ===

impl Living {
    /// Starts one and waits until it answers.
    pub(super) async fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("ostler-differential-").tempdir().unwrap().keep();
        let binaries = Binaries::of(Parts::quiet()).unwrap();
        let cluster = RealCluster::start_parts(Parts::quiet(), binaries, folder.clone()).await.unwrap();
        Self { cluster: Some(cluster), folder }
    }

    pub(super) fn client(&self) -> kube::Client {
        self.cluster.as_ref().unwrap().client.clone()
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        self.cluster = None;
        // After a failure, what the programs said stays.
        if !std::thread::panicking() {
            std::fs::remove_dir_all(&self.folder).ok();
        }
    }
}
