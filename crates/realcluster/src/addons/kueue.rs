//! Installs Kueue: definitions, controller and webhooks.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::cluster::RealCluster;
use crate::objects::{dynamic_api, read_manifests};
use crate::process::{POLL_INTERVAL, TIMEOUT_SECONDS};

/// Go module of Kueue.
const MODULE: &str = "sigs.k8s.io/kueue";
/// Kinds of workloads that Kueue admits.
const FRAMEWORKS: [&str; 4] = ["pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"];
/// Shell script that runs its arguments with a private `/etc`, in which the directory `$KUEUE_FILES` has the path of the metrics
/// certificate. Kueue reads this path even if it serves no metrics.
const PRIVATE_ETC: &str = "mount -t tmpfs tmpfs /etc && mkdir -p /etc/kueue/metrics && \
    ln -s \"$KUEUE_FILES\" /etc/kueue/metrics/certs && exec \"$@\"";

// === impl RealCluster ===

impl RealCluster {
    /// Returns Kueue's definition of ResourceFlavor, or `None` if its module is not in the module cache.
    ///
    /// # Errors
    /// The definition cannot be read.
    pub fn resource_flavor_definition(&self) -> Result<Option<Value>> {
        let Some(source) = self.binaries.newest_module_source(MODULE) else { return Ok(None) };
        let definitions =
            read_manifests(&source.join("config/components/crd/bases/kueue.x-k8s.io_resourceflavors.yaml"))?;
        Ok(definitions.into_iter().next())
    }

    /// Returns whether the binary of Kueue and its source exist.
    #[must_use]
    pub fn can_install_kueue(&self) -> bool {
        self.binaries.path("kueue").is_file() && self.binaries.module_source(MODULE, "kueue").is_ok()
    }

    /// Installs Kueue and waits until it gates Pods that name a queue.
    ///
    /// # Errors
    /// The controller failed to start; the error contains the end of its log.
    pub async fn install_kueue(&mut self) -> Result<()> {
        let source = self.binaries.module_source(MODULE, "kueue")?.join("config/components");
        let port = self.loopback.next_port()?;
        let address = self.loopback.socket_address(port);
        let bundle = STANDARD.encode(std::fs::read(self.certificates.ca_certificate())?);
        let conversion = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://{address}/convert"), "caBundle": bundle}}});
        let mut definitions = read_manifests(&source.join("crd/bases"))?;
        let converted_plurals = converted_plurals(&source)?;
        for definition in &mut definitions {
            if converted_plurals.iter().any(|plural| definition["spec"]["names"]["plural"] == **plural) {
                definition["spec"]["conversion"] = conversion.clone();
            }
        }
        self.apply_definitions(&definitions).await?;
        self.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})]).await?;
        let (files, config) = (self.directory.join("kueue"), self.directory.join("kueue.yaml"));
        self.certificates.write_webhook_files(&files)?;
        let configuration = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": "kueue-system",
            "leaderElection": {"leaderElect": false}, "internalCertManagement": {"enable": false},
            "webhook": {"host": address.ip(), "port": port, "certDir": files},
            "metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "0"},
            "integrations": {"frameworks": FRAMEWORKS},
        });
        std::fs::write(&config, configuration.to_string())?;
        let kueue = self.controller_command("kueue");
        let mut command = with_private_etc(&kueue, &files);
        // The visibility server would listen on all addresses.
        command.arg("--config").arg(config).args(["--zap-log-level", "info"]);
        command.args(["--feature-gates", "VisibilityOnDemand=false"]);
        self.spawn("kueue", &mut command)?.wait_until_listening(address).await?;
        let upstream = read_manifests(&source.join("webhook/manifests.yaml"))?;
        self.apply(&self.local_webhooks(upstream, "kueue-", address)?).await?;
        self.wait_until_kueue_gates_pods().await
    }

    /// Waits until the API server calls the Pod webhook.
    async fn wait_until_kueue_gates_pods(&self) -> Result<()> {
        let pods = dynamic_api(&self.client, "pods", "v1", "default");
        let pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "probe", "labels": {"kueue.x-k8s.io/queue-name": "probe"}},
            "spec": {"containers": [{"name": "main", "image": "none"}]}}))?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let start = Instant::now();
        while !pods.create(&dry_run, &pod).await.is_ok_and(|pod| pod.data["spec"]["schedulingGates"].is_array()) {
            ensure!(
                start.elapsed() < Duration::from_secs(TIMEOUT_SECONDS),
                "timed out waiting until the API server calls the Pod webhook of Kueue"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

/// Returns the plural names of the kinds that Kueue converts between versions, from its kustomization.
fn converted_plurals(source: &Path) -> Result<Vec<String>> {
    let kustomization = read_manifests(&source.join("crd/kustomization.yaml"))?;
    let patches = kustomization.iter().flat_map(|document| document["patches"].as_array().into_iter().flatten());
    let plural = |patch: &Value| {
        let file = patch["path"].as_str()?.strip_prefix("patches/webhook_in_")?;
        file.strip_suffix(".yaml").map(str::to_owned)
    };
    Ok(patches.filter_map(plural).collect())
}

/// Wraps a command to run with a private `/etc`, in a mount namespace and without root also in a user namespace.
fn with_private_etc(command: &Command, files: &Path) -> Command {
    let mut wrapped = Command::new("unshare");
    wrapped.arg(if rustix::process::geteuid().is_root() { "-m" } else { "-rm" });
    wrapped.args(["sh", "-c", PRIVATE_ETC, "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped.env("KUEUE_FILES", files);
    wrapped
}
