//! Pods that fail, restart and disappear.

use std::sync::Arc;

use apimachinery::{condition, object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kubelet::set_ready;
use crate::model::Model;
use crate::world::World;

/// Lets Pods fail, restarts their containers, and deletes them. The kubelets start and stop them.
pub(crate) struct Pods;

/// One of the running Pods whose names start with a prefix, so that a schedule does not depend on random names.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodReference {
    prefix: String,
    /// Among the Pods with the prefix, sorted by name.
    index: usize,
}

/// What happens to a Pod.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PodAction {
    Delete { pod: PodReference },
    Fail { pod: PodReference },
    RestartContainer { pod: PodReference },
    SetReady { pod: PodReference, ready: bool },
}

// === impl PodReference ===

impl PodReference {
    fn new(pod: &Value, running: &[Arc<Value>]) -> Self {
        let name = object::name(pod);
        let hash = object::label(pod, "pod-template-hash").and_then(|hash| name.find(hash));
        let prefix = name.get(..hash.unwrap_or(name.len())).unwrap_or(name).to_owned();
        let mut namesakes = running.iter().filter(|other| object::name(other).starts_with(&prefix));
        let index = namesakes.position(|other| object::name(other) == name).unwrap_or_default();
        Self { prefix, index }
    }

    fn find(&self, world: &World) -> Option<Arc<Value>> {
        running_pods(world).into_iter().filter(|pod| object::name(pod).starts_with(&self.prefix)).nth(self.index)
    }
}

// === impl Model for Pods ===

impl Model for Pods {
    type Action = PodAction;

    fn name(&self) -> &'static str {
        "pods"
    }

    fn draw(&self, world: &World, random: &mut fastrand::Rng) -> Vec<PodAction> {
        let pods = running_pods(world);
        let Some(pod) = pods.get(random.usize(..pods.len().max(1))) else { return Vec::new() };
        let pod = PodReference::new(pod, &pods);
        vec![match random.u8(..5) {
            0 => PodAction::Delete { pod },
            1 => PodAction::Fail { pod },
            2 => PodAction::RestartContainer { pod },
            _ => PodAction::SetReady { pod, ready: random.bool() },
        }]
    }

    fn act(&mut self, world: &mut World, action: PodAction) -> Option<String> {
        match action {
            PodAction::Delete { pod } => {
                let pod = pod.find(world)?;
                world.server().delete("pods", "default", object::name(&pod), None).ok()?;
                Some(format!("delete Pod {}", object::name(&pod)))
            }
            PodAction::Fail { pod } => {
                let mut failed = Value::clone(&*pod.find(world)?);
                failed["status"]["phase"] = json!("Failed");
                failed["status"]["reason"] = json!("Evicted");
                failed["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
                let name = object::name(&failed).to_owned();
                world.server().update_status("pods", failed).ok()?;
                Some(format!("Pod {name} fails"))
            }
            PodAction::RestartContainer { pod } => {
                let pod = pod.find(world)?;
                report(world, &pod, false, 1);
                Some(format!("a container of Pod {} restarts", object::name(&pod)))
            }
            PodAction::SetReady { pod, ready } => {
                let pod = pod.find(world)?;
                report(world, &pod, ready, 0);
                Some(format!("Pod {} is {}", object::name(&pod), if ready { "ready" } else { "not ready" }))
            }
        }
    }

    fn settle(&mut self, world: &mut World) {
        for pod in running_pods(world).iter().filter(|pod| !condition::is_true(pod, "Ready")) {
            report(world, pod, true, 0);
        }
    }
}

/// Returns the running Pods, sorted by name.
fn running_pods(world: &World) -> Vec<Arc<Value>> {
    let mut pods = world.server().list("pods");
    pods.retain(|pod| pod["status"]["phase"] == "Running");
    pods
}

/// Reports whether a Pod is ready, and how often its containers have restarted since the last report.
fn report(world: &World, pod: &Value, is_ready: bool, restarts: u64) {
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    let previous = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default();
    set_ready(world.server(), pod, address, is_ready, previous.saturating_add(restarts));
}
