//! GET of an object.

use apimachinery::Status;
use axum::response::Response;
use http::StatusCode;

use crate::http::path::RequestTarget;
use crate::http::request::ApiRequest;
use crate::http::response_format::ResponseFormat;
use crate::http::{object_response, representation, response};
use crate::server::Server;
use crate::table::Table;

pub(super) fn serve(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    request.query.check_get_resource_version(server.store().revision())?;
    let key = target.resource.object_key(target.namespace(), target.name());
    let stored = server.store().get_stored(&key);
    let stored = stored.ok_or_else(|| Status::not_found(&target.resource.group_resource(), target.name()))?;
    request.format.check_applicable(&target.resource, false)?;
    if request.format == ResponseFormat::Object && representation::is_stored_representation(&target.resource) {
        return Ok(response::json_response(StatusCode::OK, stored.json_bytes()));
    }
    let stored = stored.value();
    let table = Table::new(&target.resource, server.now()).with_include(request.query.include_object()?);
    Ok(object_response::object_response(request.format, &target.resource, &stored, &table))
}
