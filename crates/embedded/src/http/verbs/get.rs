//! GET of one object.

use apimachinery::status::Status;
use axum::response::Response;
use http::StatusCode;

use crate::http::call::Call;
use crate::http::path::Target;
use crate::http::shape::Shape;
use crate::http::{answer, present, respond};
use crate::server::{Server, key};
use crate::table::Table;

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    call.query.check_object_version(server.store().revision())?;
    let place = key(&target.resource, target.namespace(), target.name());
    let found = server.store().kept(&place);
    let found = found.ok_or_else(|| Status::not_found(&target.resource.qualified(), target.name()))?;
    call.shape.suits(&target.resource, false)?;
    if call.shape == Shape::Full && present::is_shown_as_kept(&target.resource) {
        return Ok(respond::json_text(StatusCode::OK, found.bytes()));
    }
    let found = found.tree();
    let table = Table::new(&target.resource, server.now()).including(call.query.include()?);
    Ok(answer::one(call.shape, &target.resource, &found, &table))
}
