//! `pods/NAME/binding`: puts a Pod on a node.

use apimachinery::status::{Cause, Status};
use axum::response::Response;
use serde_json::json;

use crate::http::call::Call;
use crate::http::path::Target;
use crate::http::respond;
use crate::object;
use crate::server::Server;
use crate::write::decode;

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let binding = decode::body(&call.content_type, &call.body)?;
    let node = object::text(&binding, "/target/name").to_owned();
    let kind = object::text(&binding, "/target/kind");
    if !matches!(kind, "" | "Node") {
        let known = [json!("Node"), json!("<empty>")];
        return Err(Status::unexplained(Cause::not_supported("target.kind", &json!(kind), &known).to_string()));
    }
    if !call.query.dry_run()? {
        server.bind(target.namespace(), target.name(), &node)?;
    }
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(respond::created(&done))
}
