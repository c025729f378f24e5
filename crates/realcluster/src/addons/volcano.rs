//! Volcano: webhooks, controllers and scheduler.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::RealCluster;
use crate::objects::{read, resource};

/// The default configuration: what its installer sets.
const SCHEDULER: &str = "actions: \"enqueue, allocate, backfill\"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf, enablePreemptable: false}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: binpack}]
";
/// What its installer lets the webhooks review.
const REVIEWS: &str = "/jobs/mutate,/jobs/validate,/podgroups/validate,/queues/mutate,/queues/validate,/hypernodes/validate,/cronjobs/validate";

// === impl RealCluster ===

impl RealCluster {
    /// The definition of PodGroup as Volcano ships it.
    ///
    /// # Errors
    /// The source is not there.
    pub fn pod_group_definition(&self) -> Result<Value> {
        let source = self.binaries.module("volcano.sh/volcano", "volcano-scheduler")?;
        let read = read(&source.join("config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml"))?;
        Ok(read.into_iter().next().unwrap_or_default())
    }

    /// Everything of Volcano; its queue is open when this returns.
    ///
    /// # Errors
    /// What did not start, with its last words.
    pub async fn add_volcano(&mut self) -> Result<()> {
        let source = self.binaries.module("volcano.sh/volcano", "volcano-scheduler")?;
        self.define(&read(&source.join("config/crd/volcano/bases"))?).await?;
        self.define(&read(&source.join("config/crd/jobflow/bases"))?).await?;
        self.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}})]).await?;
        let port = self.place.port()?;
        let address = self.place.at(port);
        // The webhook manager looks for its configurations before it listens.
        let upstream = read(&source.join("installer/volcano-development.yaml"))?;
        self.apply(&self.local_webhooks(upstream, "", address)?).await?;
        let pki = self.certificates.clone();
        let mut command = self.controller("volcano-webhook-manager");
        command.args(["--listen-address", &address.ip().to_string(), "--port", &port.to_string()]);
        command.args(["--logtostderr", "-v", "2"]);
        command.args(["--enabled-admission", REVIEWS, "--webhook-url", &format!("https://{address}")]);
        command.arg("--tls-cert-file").arg(pki.certificate("webhook"));
        command.arg("--tls-private-key-file").arg(pki.key("webhook"));
        command.arg("--ca-cert-file").arg(pki.authority());
        self.keep("volcano-webhook-manager", &mut command)?.listens(address).await?;
        let mut command = self.controller("volcano-controller-manager");
        self.keep("volcano-controller-manager", command.args(["--leader-elect=false", "--logtostderr", "-v", "2"]))?;
        let config = self.folder.join("volcano-scheduler.conf");
        std::fs::write(&config, SCHEDULER)?;
        let mut command = self.controller("volcano-scheduler");
        command.arg("--scheduler-conf").arg(config);
        command.args(["--leader-elect=false", "--cache-dumper=false", "--logtostderr", "-v", "2"]);
        self.keep("volcano-scheduler", &mut command)?;
        // PodGroups are refused until the queue is open.
        let queues = resource(&self.client, "queues.scheduling.volcano.sh", "v1beta1", "");
        let open = |queue: &Value| queue["status"]["state"] == "Open";
        crate::until("an open queue", queues, |found| found.get("default").is_some_and(open)).await.map(|_| ())
    }
}
