//! `pods/NAME/eviction`: a deletion that disruption budgets may refuse.

use apimachinery::status::Status;
use axum::response::Response;
use serde_json::{Value, json};

use crate::http::call::Call;
use crate::http::path::Target;
use crate::http::{respond, verbs};
use crate::object;
use crate::server::Server;
use crate::workloads::condition;
use crate::workloads::disruption::{self, BUDGETS};
use crate::write::decode;

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let eviction = decode::body(&call.content_type, &call.body)?;
    let (namespace, name) = (target.namespace(), target.name());
    let pod = server.get("pods", namespace, name).ok_or_else(|| Status::not_found("pods", name))?;
    let stated = object::name(&eviction);
    if !stated.is_empty() && stated != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = verbs::delete_options(eviction.get("deleteOptions").unwrap_or(&Value::Null), call)?;
    options.uid = options.uid.or_else(|| Some(object::uid(&pod).to_owned()));
    if !disruption::may_always_go(&pod) {
        allow(server, &pod)?;
    }
    server.delete_object(&target.resource, namespace, name, &options)?;
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(respond::created(&done))
}

/// Whether the Pod's budget allows one more disruption. Pods that are on their way out count as gone, so nothing has to be
/// written down.
fn allow(server: &Server, pod: &Value) -> Result<(), Status> {
    let budgets = server.list(BUDGETS);
    let mut own = budgets.iter().filter(|budget| disruption::covers(budget, pod));
    let Some(budget) = own.next() else { return Ok(()) };
    if own.next().is_some() {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Status::internal(why));
    }
    let status = disruption::status(budget, &server.list("pods"), |pod| disruption::scale(server, pod));
    if !condition::is_true(pod, "Ready") && disruption::unready_may_go(budget, &status) {
        return Ok(());
    }
    let number = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or(0);
    if number("disruptionsAllowed") > 0 {
        return Ok(());
    }
    let message = format!(
        "The disruption budget {} needs {} healthy pods and has {} currently",
        object::name(budget),
        number("desiredHealthy"),
        number("currentHealthy")
    );
    Err(Status {
        code: 429,
        reason: "TooManyRequests",
        message: "Cannot evict pod as it would violate the pod's disruption budget.".to_owned(),
        details: Some(json!({"causes": [{"reason": "DisruptionBudget", "message": message}]})),
        next: None,
    })
}
