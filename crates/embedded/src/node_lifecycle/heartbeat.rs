//! Whether a node that promised to say that it lives still does.
//!
//! Nodes of this process have no heartbeat: when their agent ends, so does the API. A node with a Lease in
//! `kube-node-lease` is somebody else's, and is lost when it does not renew it.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::object;

/// `node-monitor-grace-period`, where the Lease says nothing.
const GRACE: i64 = 40;
/// What nobody knows of a node that is lost.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// When the node counts as lost; `None` for a node without a Lease, or with one that never was renewed.
pub(super) fn lost_at(lease: Option<&Value>) -> Option<Timestamp> {
    let spec = lease?.get("spec")?;
    let renewed: Timestamp = object::text(spec, "/renewTime").parse().ok()?;
    let seconds = spec.get("leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(GRACE);
    renewed.checked_add(SignedDuration::from_secs(seconds.max(1))).ok()
}

/// The status of a node that is lost: its conditions become `Unknown`. `None` when they are.
pub(super) fn lost(node: &Value, now: &str) -> Option<Value> {
    let mut status = node.get("status").cloned().unwrap_or_else(|| json!({}));
    let conditions = object::members(&mut status).entry("conditions").or_insert_with(|| json!([]));
    let list = conditions.as_array_mut()?;
    let mut changed = false;
    for kind in CONDITIONS {
        let known = list.iter_mut().find(|condition| object::text(condition, "/type") == kind);
        let unknown = json!({
            "type": kind, "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": now,
            "message": "Kubelet stopped posting node status.",
        });
        match known {
            Some(condition) if object::text(condition, "/status") == "Unknown" => {}
            Some(condition) => {
                let heartbeat = condition.get("lastHeartbeatTime").cloned();
                *condition = unknown;
                if let Some(heartbeat) = heartbeat {
                    condition["lastHeartbeatTime"] = heartbeat;
                }
                changed = true;
            }
            // Pressure that nobody reported is not invented.
            None if kind == "Ready" => {
                list.push(unknown);
                changed = true;
            }
            None => {}
        }
    }
    changed.then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_not_renewed_makes_the_node_unknown() {
        let lease = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40}});
        assert_eq!(lost_at(Some(&lease)), "2026-01-01T00:00:40Z".parse().ok());
        assert_eq!(lost_at(None), None);
        let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let status = lost(&node, "now").unwrap();
        assert_eq!(status["conditions"][0]["status"], "Unknown");
        assert_eq!(lost(&json!({"status": status}), "later"), None);
    }
}
