//! `pods/eviction`: deletes a Pod unless its PodDisruptionBudget forbids it.

use apimachinery::{Status, disruption_budget, object, pod};
use axum::response::Response;
use serde_json::{Value, json};

use crate::http::path::RequestTarget;
use crate::http::request::ApiRequest;
use crate::http::{response, verbs};
use crate::server::Server;
use crate::transaction::Transaction;
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
    let check = |transaction: &Transaction<'_>, pod: &Value| {
        if !bypasses_budgets(pod) {
            check_disruption_budget(transaction, pod)?;
        }
        Ok(true)
    };
    server.delete_object_if(&target.resource, namespace, name, &options, &check)?;
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(response::created(&success))
}

/// Checks that the Pod's disruption budget allows its eviction. Terminating Pods count as disrupted, and the eviction
/// conflicts with changes of the Pods that the budget covers, which makes `status.disruptedPods` unnecessary.
fn check_disruption_budget(transaction: &Transaction<'_>, pod: &Value) -> Result<(), Status> {
    let budgets = transaction.list(disruption_budget::RESOURCE);
    let mut matching = budgets.iter().filter(|budget| disruption_budget::covers(budget, pod));
    let Some(budget) = matching.next() else { return Ok(()) };
    if matching.next().is_some() {
        let message =
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Status::internal_error(message));
    }
    let get = |resource: &str, namespace: &str, name: &str| transaction.get(resource, namespace, name);
    let is_covered = |pod: &Value| disruption_budget::covers(budget, pod);
    let covered_pods = transaction.list_matching("pods", object::namespace(pod), is_covered);
    let status =
        disruption_budget::compute_status(budget, &covered_pods, |pod| disruption_budget::expected_scale(pod, get));
    if !pod::is_ready(pod) && allows_unready_eviction(budget, &status) {
        return Ok(());
    }
    if number(&status, "disruptionsAllowed") > 0 {
        return Ok(());
    }
    let message = format!(
        "The disruption budget {} needs {} healthy pods and has {} currently",
        object::name(budget),
        number(&status, "desiredHealthy"),
        number(&status, "currentHealthy")
    );
    Err(Status {
        code: 429,
        reason: "TooManyRequests",
        message: "Cannot evict pod as it would violate the pod's disruption budget.".to_owned(),
        details: Some(json!({"causes": [{"reason": "DisruptionBudget", "message": message}]})),
        continue_token: None,
    })
}

/// Whether the Pod may be evicted without checking budgets, because it is terminating, finished or pending.
fn bypasses_budgets(pod: &Value) -> bool {
    object::is_deleting(pod) || pod::is_finished(pod) || object::text(pod, "/status/phase") == "Pending"
}

/// Whether `unhealthyPodEvictionPolicy` of the budget allows the eviction of a Pod that is not ready.
fn allows_unready_eviction(budget: &Value, status: &Value) -> bool {
    match object::text(budget, "/spec/unhealthyPodEvictionPolicy") {
        "AlwaysAllow" => true,
        _ => {
            let desired_healthy = number(status, "desiredHealthy");
            desired_healthy > 0 && number(status, "currentHealthy") >= desired_healthy
        }
    }
}

fn number(status: &Value, field: &str) -> i64 {
    status.get(field).and_then(Value::as_i64).unwrap_or(0)
}
