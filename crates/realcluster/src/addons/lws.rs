//! Installs LeaderWorkerSet.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::api::PostParams;
use serde_json::json;

use crate::cluster::RealCluster;
use crate::objects::{dynamic_api, read_manifests};
use crate::process::{POLL_INTERVAL, TIMEOUT_SECONDS};

// === impl RealCluster ===

impl RealCluster {
    /// Installs the definitions, the controller and the webhooks of LeaderWorkerSet. Its Pod webhook sets group labels and the
    /// leader's address.
    ///
    /// # Errors
    /// The controller failed to start; the error contains the end of its log.
    pub async fn install_leader_worker_set(&mut self) -> Result<()> {
        let source = self.binaries.module_source("sigs.k8s.io/lws", "lws")?.join("config");
        self.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lws-system"}})]).await?;
        let port = self.loopback.next_port()?;
        let address = self.loopback.socket_address(port);
        let (certificate_directory, config) = (self.directory.join("lws"), self.directory.join("lws.yaml"));
        self.certificates.write_webhook_files(&certificate_directory)?;
        let configuration = json!({
            "apiVersion": "config.lws.x-k8s.io/v1alpha1", "kind": "Configuration",
            "leaderElection": {"leaderElect": false}, "internalCertManagement": {"enable": false},
            "webhook": {"host": address.ip(), "port": port, "certDir": certificate_directory},
            "metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "0"},
        });
        std::fs::write(&config, configuration.to_string())?;
        // The webhooks must exist before the first Pods, because they mutate Pods only at creation.
        let upstream = read_manifests(&source.join("webhook/manifests.yaml"))?;
        self.apply(&self.local_webhooks(upstream, "lws-", address)?).await?;
        self.wait_until_pod_webhook_is_called().await?;
        self.apply_definitions(&read_manifests(&source.join("crd/bases"))?).await?;
        let mut command = self.controller_command("lws");
        command.arg("--config").arg(config).args(["--zap-log-level", "info"]);
        self.spawn("lws", &mut command)?.wait_until_listening(address).await
    }

    /// Waits until the API server calls the Pod webhook. The call fails because the webhook does not listen yet.
    async fn wait_until_pod_webhook_is_called(&self) -> Result<()> {
        let pods = dynamic_api(&self.client, "pods", "v1", "default");
        let pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
            "spec": {"containers": [{"name": "main", "image": "none"}]}}))?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let start = Instant::now();
        while !matches!(pods.create(&dry_run, &pod).await, Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook"))
        {
            ensure!(
                start.elapsed() < Duration::from_secs(TIMEOUT_SECONDS),
                "timed out waiting until the API server calls the Pod webhook"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}
