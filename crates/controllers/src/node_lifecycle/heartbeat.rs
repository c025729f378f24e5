//! Node heartbeats: detects nodes that no longer renew their Lease.
//!
//! Nodes that the agent of this process runs have no heartbeat, because the agent and the API server always stop
//! together. A node with a Lease in `kube-node-lease` belongs to another kubelet, and is unreachable when that kubelet
//! no longer renews the Lease.

use apimachinery::{object, time};
use jiff::Timestamp;
use serde_json::{Value, json};

/// `node-monitor-grace-period`, in seconds, for Leases without a duration.
const GRACE_PERIOD: i64 = 40;
/// The conditions that become `Unknown` for an unreachable node.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Returns when the node becomes unreachable; `None` for a node without a Lease, or with one that was never renewed.
pub(super) fn unreachable_at(lease: Option<&Value>) -> Option<Timestamp> {
    let spec = lease?.get("spec")?;
    let renewed_at: Timestamp = object::text(spec, "/renewTime").parse().ok()?;
    let seconds = spec.get("leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(GRACE_PERIOD);
    Some(time::add_seconds(renewed_at, seconds.max(1)))
}

/// Returns the status of an unreachable node with its conditions set to `Unknown`; `None` when they already are.
pub(super) fn unreachable_status(node: &Value, now: &str) -> Option<Value> {
    let mut status = node.get("status").cloned().unwrap_or_else(|| json!({}));
    let conditions = object::members(&mut status).entry("conditions").or_insert_with(|| json!([]));
    let list = conditions.as_array_mut()?;
    let mut is_changed = false;
    for type_ in CONDITIONS {
        let existing = list.iter_mut().find(|condition| object::text(condition, "/type") == type_);
        let unknown_condition = json!({
            "type": type_, "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": now,
            "message": "Kubelet stopped posting node status.",
        });
        match existing {
            Some(condition) if object::text(condition, "/status") == "Unknown" => {}
            Some(condition) => {
                let heartbeat = condition.get("lastHeartbeatTime").cloned();
                *condition = unknown_condition;
                if let Some(heartbeat) = heartbeat {
                    condition["lastHeartbeatTime"] = heartbeat;
                }
                is_changed = true;
            }
            // Pressure conditions that were never reported are not added.
            None if type_ == "Ready" => {
                list.push(unknown_condition);
                is_changed = true;
            }
            None => {}
        }
    }
    is_changed.then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_lease_makes_node_unknown() {
        let lease = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40}});
        assert_eq!(unreachable_at(Some(&lease)), "2026-01-01T00:00:40Z".parse().ok());
        assert_eq!(unreachable_at(None), None);
        let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let status = unreachable_status(&node, "now").unwrap();
        assert_eq!(status["conditions"][0]["status"], "Unknown");
        assert_eq!(unreachable_status(&json!({"status": status}), "later"), None);
    }
}
