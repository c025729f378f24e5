//! Answers that are objects, in the shape asked for.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::call::Call;
use super::present::{is_shown_as_kept, partial, present};
use super::respond::{json_text, object};
use super::shape::Shape;
use super::warning;
use crate::object;
use crate::resources::Resource;
use crate::server::{Server, key};
use crate::table::Table;
use crate::write::Outcome;

/// One object in the shape asked for.
pub(crate) fn one(shape: Shape, resource: &Resource, found: &Arc<Value>, table: &Table) -> Response {
    let shown = present(resource, found);
    match shape {
        Shape::Full => object(&shown),
        Shape::Metadata | Shape::MetadataList => object(&partial(&shown)),
        Shape::Table => {
            let revision = object::resource_version(found);
            object(&table.render(&[shown], json!({"resourceVersion": revision}), true))
        }
    }
}

/// What a write answers, in the shape asked for.
pub(crate) fn written(call: &Call, server: &Server, resource: &Resource, outcome: &Outcome) -> Response {
    let code = if outcome.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = match stored_text(call.shape, server, resource, &outcome.object) {
        Some(text) => json_text(StatusCode::OK, text),
        None => one(call.shape, resource, &outcome.object, &Table::new(resource, server.now())),
    };
    *response.status_mut() = code;
    warning::append(response, &outcome.warnings)
}

/// What was just stored is text already, and mostly what is to be shown.
fn stored_text(shape: Shape, server: &Server, resource: &Resource, object: &Arc<Value>) -> Option<Bytes> {
    if shape != Shape::Full || !is_shown_as_kept(resource) {
        return None;
    }
    let place = key(resource, object::namespace(object), object::name(object));
    server.store().kept(&place).filter(|kept| kept.is(object)).map(|kept| kept.bytes())
}
