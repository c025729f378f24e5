//! Binds a Pod to a node, for the `pods/binding` subresource and for the scheduler.

use std::sync::Arc;

use apimachinery::condition::{self, Condition};
use apimachinery::{Status, object, pod};
use serde_json::{Value, json};

use crate::core::Core;
use crate::transaction::{MAX_ATTEMPTS, Transaction};
use crate::write::normalize;

/// Sets `spec.nodeName` and the condition `PodScheduled` in one write, without a field manager.
///
/// # Errors
/// 404 if the Pod does not exist; 409 if it is already bound, is being deleted, or has scheduling gates.
pub(crate) fn bind(core: &Core, namespace: &str, name: &str, node: &str) -> Result<Arc<Value>, Status> {
    let pods = core.registry().by_name("pods").ok_or_else(Status::path_not_found)?;
    let key = pods.object_key(namespace, name);
    for _ in 0..MAX_ATTEMPTS {
        let current = core.store.get(&key).ok_or_else(|| Status::not_found("pods", name))?;
        let conflict = |reason: &str| Status::conflict("pods/binding", name, reason);
        let bound = object::text(&current, "/spec/nodeName");
        if !bound.is_empty() {
            return Err(conflict(&format!("pod {name} is already assigned to node {bound:?}")));
        }
        if object::is_deleting(&current) {
            return Err(conflict(&format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        if pod::is_gated(&current) {
            return Err(conflict(&format!("pod {name} has non-empty .spec.schedulingGates")));
        }
        let mut pod = Value::clone(&current);
        object::members(&mut pod["spec"]).insert("nodeName".to_owned(), json!(node));
        let status = object::members(&mut pod).entry("status").or_insert_with(|| json!({}));
        let scheduled = Condition { type_: "PodScheduled", status: true, reason: "", message: "" };
        condition::set(status, scheduled, &object::format_time(core.now()));
        normalize::normalize(&pods, &mut pod);
        if let Some(bound) = Transaction::new(core).commit(&key, Some(&current), Some(pod))? {
            return Ok(bound);
        }
    }
    Err(Status::object_modified("pods", name))
}
