//! Responses that contain an object, in the negotiated format.

use std::sync::Arc;

use apimachinery::object;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::representation::{is_stored_representation, partial_object_metadata, to_served_version};
use super::request::ApiRequest;
use super::response::{json_object, json_response};
use super::response_format::ResponseFormat;
use super::warning_header;
use crate::resources::Resource;
use crate::server::Server;
use crate::table::Table;
use crate::write::WriteResult;

/// Returns an object in the negotiated format.
pub(crate) fn object_response(
    format: ResponseFormat,
    resource: &Resource,
    stored: &Arc<Value>,
    table: &Table,
) -> Response {
    let converted = to_served_version(resource, stored);
    match format {
        ResponseFormat::Object => json_object(&converted),
        ResponseFormat::PartialObjectMetadata | ResponseFormat::PartialObjectMetadataList => {
            json_object(&partial_object_metadata(&converted))
        }
        ResponseFormat::Table => {
            let revision = object::resource_version(stored);
            json_object(&table.render(&[converted], json!({"resourceVersion": revision}), true))
        }
    }
}

/// Returns the result of a write in the negotiated format.
pub(crate) fn write_response(
    request: &ApiRequest,
    server: &Server,
    resource: &Resource,
    result: &WriteResult,
) -> Response {
    let code = if result.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = match stored_json(request.format, server, resource, &result.object) {
        Some(text) => json_response(StatusCode::OK, text),
        None => object_response(request.format, resource, &result.object, &Table::new(resource, server.now())),
    };
    *response.status_mut() = code;
    warning_header::append(response, &result.warnings)
}

/// Returns the stored JSON of an object that was just written, if the response is identical to it.
fn stored_json(format: ResponseFormat, server: &Server, resource: &Resource, object: &Arc<Value>) -> Option<Bytes> {
    if format != ResponseFormat::Object || !is_stored_representation(resource) {
        return None;
    }
    let key = resource.object_key(object::namespace(object), object::name(object));
    server.store().get_stored(&key).filter(|stored| stored.is_same(object)).map(|stored| stored.json_bytes())
}
