//! Installs Volcano: webhooks, controllers and scheduler.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::RealCluster;
use crate::objects::{dynamic_api, read_manifests};

/// Scheduler configuration of Volcano's installer.
const SCHEDULER_CONFIG: &str = "actions: \"enqueue, allocate, backfill\"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf, enablePreemptable: false}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: binpack}]
";
/// Admission paths that Volcano's installer enables.
const ENABLED_ADMISSION: &str = "/jobs/mutate,/jobs/validate,/podgroups/validate,/queues/mutate,/queues/validate,/hypernodes/validate,/cronjobs/validate";

// === impl RealCluster ===

impl RealCluster {
    /// Returns Volcano's definition of PodGroup.
    ///
    /// # Errors
    /// The module is not in the module cache.
    pub fn pod_group_definition(&self) -> Result<Value> {
        let source = self.binaries.module_source("volcano.sh/volcano", "volcano-scheduler")?;
        let definitions =
            read_manifests(&source.join("config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml"))?;
        Ok(definitions.into_iter().next().unwrap_or_default())
    }

    /// Installs Volcano and waits until its default queue is open.
    ///
    /// # Errors
    /// The component that failed to start, with the end of its log.
    pub async fn install_volcano(&mut self) -> Result<()> {
        let source = self.binaries.module_source("volcano.sh/volcano", "volcano-scheduler")?;
        self.apply_definitions(&read_manifests(&source.join("config/crd/volcano/bases"))?).await?;
        self.apply_definitions(&read_manifests(&source.join("config/crd/jobflow/bases"))?).await?;
        self.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}})]).await?;
        let port = self.loopback.next_port()?;
        let address = self.loopback.socket_address(port);
        // The webhook manager reads its configurations before it listens.
        let upstream = read_manifests(&source.join("installer/volcano-development.yaml"))?;
        self.apply(&self.local_webhooks(upstream, "", address)?).await?;
        let pki = self.certificates.clone();
        let mut command = self.controller_command("volcano-webhook-manager");
        command.args(["--listen-address", &address.ip().to_string(), "--port", &port.to_string()]);
        command.args(["--logtostderr", "-v", "2"]);
        command.args(["--enabled-admission", ENABLED_ADMISSION, "--webhook-url", &format!("https://{address}")]);
        command.arg("--tls-cert-file").arg(pki.certificate("webhook"));
        command.arg("--tls-private-key-file").arg(pki.key("webhook"));
        command.arg("--ca-cert-file").arg(pki.ca_certificate());
        self.spawn("volcano-webhook-manager", &mut command)?.wait_until_listening(address).await?;
        let mut command = self.controller_command("volcano-controller-manager");
        self.spawn("volcano-controller-manager", command.args(["--leader-elect=false", "--logtostderr", "-v", "2"]))?;
        let config = self.directory.join("volcano-scheduler.conf");
        std::fs::write(&config, SCHEDULER_CONFIG)?;
        let mut command = self.controller_command("volcano-scheduler");
        command.arg("--scheduler-conf").arg(config);
        command.args(["--leader-elect=false", "--cache-dumper=false", "--logtostderr", "-v", "2"]);
        self.spawn("volcano-scheduler", &mut command)?;
        // PodGroups are rejected until the queue is open.
        let queues = dynamic_api(&self.client, "queues.scheduling.volcano.sh", "v1beta1", "");
        let is_open = |queue: &Value| queue["status"]["state"] == "Open";
        crate::wait_until("an open queue", queues, |found| found.get("default").is_some_and(is_open)).await.map(|_| ())
    }
}
