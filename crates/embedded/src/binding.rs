//! Puts a Pod on a node: what `pods/NAME/binding` and the scheduler do.

use std::sync::Arc;

use apimachinery::status::Status;
use serde_json::{Value, json};

use crate::object;
use crate::server::{Server, key};
use crate::workloads::condition::{self, Condition};
use crate::write::typed;

/// What a Pod's condition says while gates keep it from being scheduled.
pub(crate) const GATED: Condition<'static> = Condition {
    kind: "PodScheduled",
    status: false,
    reason: "SchedulingGated",
    message: "Scheduling is blocked due to non-empty scheduling gates",
};

/// Whether somebody still has to let the Pod be scheduled.
pub(crate) fn is_gated(pod: &Value) -> bool {
    pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty())
}

impl Server {
    /// Writes the node and `PodScheduled` at once. Nobody owns either.
    ///
    /// # Errors
    /// 404 for the Pod; 409 when it is on a node already, going, or gated.
    pub(crate) fn bind(&self, namespace: &str, name: &str, node: &str) -> Result<Arc<Value>, Status> {
        let pods = self.registry().by_name("pods").ok_or_else(Status::no_such_path)?;
        let place = key(&pods, namespace, name);
        loop {
            let current = self.store().get(&place).ok_or_else(|| Status::not_found("pods", name))?;
            let conflict = |why: &str| Status::conflict("pods/binding", name, why);
            let bound = object::text(&current, "/spec/nodeName");
            if !bound.is_empty() {
                return Err(conflict(&format!("pod {name} is already assigned to node {bound:?}")));
            }
            if object::is_deleting(&current) {
                return Err(conflict(&format!("pod {name} is being deleted, cannot be assigned to a host")));
            }
            if is_gated(&current) {
                return Err(conflict(&format!("pod {name} has non-empty .spec.schedulingGates")));
            }
            let mut pod = Value::clone(&current);
            object::members(&mut pod["spec"]).insert("nodeName".to_owned(), json!(node));
            let status = object::members(&mut pod).entry("status").or_insert_with(|| json!({}));
            let scheduled = Condition { kind: "PodScheduled", status: true, reason: "", message: "" };
            condition::set(status, scheduled, &object::time(self.now()));
            typed::form(&pods, &mut pod);
            if let Some(bound) = self.store().attempt(&place, Some(&current), Some(pod))? {
                return Ok(bound);
            }
        }
    }
}
