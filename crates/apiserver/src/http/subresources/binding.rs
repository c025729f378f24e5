//! `pods/binding`: binds a Pod to a node.

use apimachinery::{Status, StatusCause, object};
use axum::response::Response;
use serde_json::json;

use crate::http::path::RequestTarget;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::server::Server;
use crate::write::decode;

pub(super) fn serve(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    let binding = decode::decode_body(&request.content_type, &request.body)?;
    let node = object::text(&binding, "/target/name").to_owned();
    let kind = object::text(&binding, "/target/kind");
    if !matches!(kind, "" | "Node") {
        let supported = [json!("Node"), json!("<empty>")];
        return Err(Status::internal_error_verbatim(
            StatusCause::not_supported("target.kind", &json!(kind), &supported).to_string(),
        ));
    }
    if !request.query.dry_run()? {
        server.bind(target.namespace(), target.name(), &node)?;
    }
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(response::created(&success))
}
