//! LeaderWorkerSet.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::api::PostParams;
use serde_json::json;

use crate::cluster::RealCluster;
use crate::objects::{read, resource};
use crate::process::{PAUSE, SECONDS};

// === impl RealCluster ===

impl RealCluster {
    /// Definitions, controller and webhooks: its webhook of Pods is what sets group labels and the leader's address.
    ///
    /// # Errors
    /// What did not start, with its last words.
    pub async fn add_leader_worker_sets(&mut self) -> Result<()> {
        let source = self.binaries.module("sigs.k8s.io/lws", "lws")?.join("config");
        self.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lws-system"}})]).await?;
        let port = self.place.port()?;
        let address = self.place.at(port);
        let (folder, config) = (self.folder.join("lws"), self.folder.join("lws.yaml"));
        self.certificates.for_webhook(&folder)?;
        let settings = json!({
            "apiVersion": "config.lws.x-k8s.io/v1alpha1", "kind": "Configuration",
            "leaderElection": {"leaderElect": false}, "internalCertManagement": {"enable": false},
            "webhook": {"host": address.ip(), "port": port, "certDir": folder},
            "metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "0"},
        });
        std::fs::write(&config, settings.to_string())?;
        // Before anybody makes a set and its controller Pods: what the webhooks add is missing for ever otherwise.
        let upstream = read(&source.join("webhook/manifests.yaml"))?;
        self.apply(&self.local_webhooks(upstream, "lws-", address)?).await?;
        self.until_pods_are_reviewed().await?;
        self.define(&read(&source.join("crd/bases"))?).await?;
        let mut command = self.controller("lws");
        command.arg("--config").arg(config).args(["--zap-log-level", "info"]);
        self.keep("lws", &mut command)?.listens(address).await
    }

    /// Nothing tells when the API server has learnt of a webhook but that it asks it, in vain as nothing listens there yet.
    async fn until_pods_are_reviewed(&self) -> Result<()> {
        let pods = resource(&self.client, "pods", "v1", "default");
        let pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "nobody"},
            "spec": {"containers": [{"name": "main", "image": "none"}]}}))?;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let began = Instant::now();
        while !matches!(pods.create(&dry, &pod).await, Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook"))
        {
            ensure!(began.elapsed() < Duration::from_secs(SECONDS), "the API server asks no webhook of Pods");
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}
