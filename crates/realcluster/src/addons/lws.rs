//! LeaderWorkerSet.

use anyhow::Result;
use serde_json::json;

use crate::cluster::{RealCluster, free_ports};
use crate::objects::read;

// === impl RealCluster ===

impl RealCluster {
    /// Definitions, controller and webhooks: its webhook of Pods is what sets group labels and the leader's address.
    ///
    /// # Errors
    /// What did not start, with its last words.
    pub async fn add_leader_worker_sets(&mut self) -> Result<()> {
        let source = self.binaries.module("sigs.k8s.io/lws", "lws")?.join("config");
        self.define(&read(&source.join("crd/bases"))?).await?;
        self.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lws-system"}})]).await?;
        let [port] = free_ports()?;
        let (folder, config) = (self.folder.join("lws"), self.folder.join("lws.yaml"));
        self.certificates.for_webhook(&folder)?;
        let settings = json!({
            "apiVersion": "config.lws.x-k8s.io/v1alpha1", "kind": "Configuration",
            "leaderElection": {"leaderElect": false}, "internalCertManagement": {"enable": false},
            "webhook": {"host": "127.0.0.1", "port": port, "certDir": folder},
            "metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "0"},
        });
        std::fs::write(&config, settings.to_string())?;
        // Before the controller makes Pods: what its webhook adds to them is missing for ever otherwise.
        let upstream = read(&source.join("webhook/manifests.yaml"))?;
        self.apply(&self.local_webhooks(upstream, "lws-", port)?).await?;
        let mut command = self.controller("lws");
        command.arg("--config").arg(config).args(["--zap-log-level", "info"]);
        self.keep("lws", &mut command)?.listens(port).await
    }
}
