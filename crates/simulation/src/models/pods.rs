//! Pods that fail, restart and disappear.

use apimachinery::condition;
use serde_json::{Value, json};

use crate::kubelet::set_ready;
use crate::model::Model;
use crate::world::World;

/// Lets Pods fail, restarts their containers, and deletes them. The kubelets start and stop them.
pub(crate) struct Pods;

// === impl Model for Pods ===

impl Model for Pods {
    fn name(&self) -> &'static str {
        "pods"
    }

    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let mut pods = world.server().list("pods");
        pods.retain(|pod| pod["status"]["phase"] == "Running");
        let pod = pods.get(random.usize(..pods.len().max(1)))?;
        let name = pod["metadata"]["name"].as_str()?;
        match random.u8(..5) {
            0 => {
                world.server().delete("pods", "default", name, None).ok()?;
                Some(format!("delete Pod {name}"))
            }
            1 => {
                let mut failed = Value::clone(pod);
                failed["status"]["phase"] = json!("Failed");
                failed["status"]["reason"] = json!("Evicted");
                failed["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
                world.server().update_status("pods", failed).ok()?;
                Some(format!("Pod {name} fails"))
            }
            2 => {
                report(world, pod, false, 1);
                Some(format!("a container of Pod {name} restarts"))
            }
            _ => {
                let is_ready = random.bool();
                report(world, pod, is_ready, 0);
                Some(format!("Pod {name} is {}", if is_ready { "ready" } else { "not ready" }))
            }
        }
    }

    fn settle(&mut self, world: &mut World) {
        for pod in world.server().list("pods") {
            if pod["status"]["phase"] == "Running" && !condition::is_true(&pod, "Ready") {
                report(world, &pod, true, 0);
            }
        }
    }
}

/// Reports whether a Pod is ready, and how often its containers have restarted since the last report.
fn report(world: &World, pod: &Value, is_ready: bool, restarts: u64) {
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    let previous = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default();
    set_ready(world.server(), pod, address, is_ready, previous.saturating_add(restarts));
}
