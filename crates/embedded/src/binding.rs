//! Puts a Pod on a node: what `pods/NAME/binding` and the scheduler do.

use std::sync::Arc;

use apimachinery::status::Status;
use serde_json::{Value, json};

use crate::object;
use crate::server::{Server, key};
use crate::workloads::condition::{self, Condition};
use crate::write::typed;

impl Server {
    /// Writes the node and `PodScheduled` at once. Nobody owns either.
    ///
    /// # Errors
    /// 404 for the Pod; 409 when it is on a node already, or going.
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
