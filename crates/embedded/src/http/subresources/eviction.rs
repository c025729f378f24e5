//! `pods/eviction`: deletes a Pod unless its PodDisruptionBudget forbids it.

use apimachinery::Status;
use axum::response::Response;
use serde_json::{Value, json};

use crate::http::path::RequestTarget;
use crate::http::request::ApiRequest;
use crate::http::{response, verbs};
use crate::object;
use crate::server::Server;
use crate::workloads::condition;
use crate::workloads::disruption::{self, BUDGETS};
use crate::write::decode;

pub(super) fn serve(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    let eviction = decode::decode_body(&request.content_type, &request.body)?;
    let (namespace, name) = (target.namespace(), target.name());
    let pod = server.get("pods", namespace, name).ok_or_else(|| Status::not_found("pods", name))?;
    let eviction_name = object::name(&eviction);
    if !eviction_name.is_empty() && eviction_name != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = verbs::parse_delete_options(eviction.get("deleteOptions").unwrap_or(&Value::Null), request)?;
    options.uid = options.uid.or_else(|| Some(object::uid(&pod).to_owned()));
    if !disruption::bypasses_budgets(&pod) {
        check_disruption_budget(server, &pod)?;
    }
    server.delete_object(&target.resource, namespace, name, &options)?;
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(response::created(&success))
}

/// Checks that the Pod's disruption budget allows its eviction. Terminating Pods count as disrupted, which makes
/// `status.disruptedPods` unnecessary.
fn check_disruption_budget(server: &Server, pod: &Value) -> Result<(), Status> {
    let budgets = server.list(BUDGETS);
    let mut matching = budgets.iter().filter(|budget| disruption::covers(budget, pod));
    let Some(budget) = matching.next() else { return Ok(()) };
    if matching.next().is_some() {
        let message =
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Status::internal_error(message));
    }
    let status =
        disruption::compute_status(budget, &server.list("pods"), |pod| disruption::expected_scale(server, pod));
    if !condition::is_true(pod, "Ready") && disruption::allows_unready_eviction(budget, &status) {
        return Ok(());
    }
    let status_count = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or(0);
    if status_count("disruptionsAllowed") > 0 {
        return Ok(());
    }
    let message = format!(
        "The disruption budget {} needs {} healthy pods and has {} currently",
        object::name(budget),
        status_count("desiredHealthy"),
        status_count("currentHealthy")
    );
    Err(Status {
        code: 429,
        reason: "TooManyRequests",
        message: "Cannot evict pod as it would violate the pod's disruption budget.".to_owned(),
        details: Some(json!({"causes": [{"reason": "DisruptionBudget", "message": message}]})),
        continue_token: None,
    })
}
