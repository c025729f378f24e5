//! Admission of Pods to their node.

use std::sync::Arc;

use apimachinery::{object, pod};
use serde_json::{Value, json};

use crate::context::NodeContext;
use crate::device_manager::InsufficientDevices;

/// Reason of a Pod whose devices cannot be allocated, as in the kubelet.
const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";

/// Maximum number of attempts to write the status of a rejected Pod.
const MAX_STATUS_UPDATES: usize = 5;

/// Allocates the devices of a Pod. If too few are free, sets its phase to `Failed` and returns `false`.
pub(crate) fn admit(context: &NodeContext, pod: &Arc<Value>) -> bool {
    let Some(node) = context.server.get("nodes", "", object::text(pod, "/spec/nodeName")) else { return true };
    match context.devices.allocate(pod, &node) {
        Ok(()) => true,
        Err(error) => {
            reject(context, pod, &error);
            false
        }
    }
}

fn reject(context: &NodeContext, pod: &Value, error: &InsufficientDevices) {
    let message = error.to_string();
    context.server.record_event(pod, "Warning", UNEXPECTED_ADMISSION_ERROR, &message, "kubelet");
    for _ in 0..MAX_STATUS_UPDATES {
        let Some(current) = context.stored_pod(pod) else { return };
        let mut rejected = Value::clone(&current);
        let status = object::members(&mut rejected).entry("status").or_insert_with(|| json!({}));
        status["phase"] = json!("Failed");
        status["reason"] = json!(UNEXPECTED_ADMISSION_ERROR);
        status["message"] = json!(format!("Pod was rejected: {message}"));
        status["qosClass"] = json!(pod::qos_class(pod));
        match context.server.update_status("pods", rejected) {
            Err(status) if status.code == 409 => {}
            Err(status) => {
                tracing::debug!(pod = object::name(pod), %status, "failed to update the status of a rejected Pod");
                return;
            }
            Ok(_) => return,
        }
    }
}
