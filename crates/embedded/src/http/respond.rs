//! Answers: plain objects, metadata only, or tables; failures as Status.

use std::sync::Arc;

use apimachinery::status::Status;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::Call;
use crate::openapi::v2;
use crate::resources::{Registry, Resource};
use crate::server::{Server, key};
use crate::table::Table;
use crate::write::{Outcome, default, prune};
use crate::{conversion, discovery, object};

/// What the client wants to see of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Full,
    /// `as=Table`
    Table,
    /// `as=PartialObjectMetadata`
    Metadata,
    /// `as=PartialObjectMetadataList`
    MetadataList,
}

// === impl Shape ===

impl Shape {
    /// The first entry of `Accept` that can be served.
    pub(crate) fn negotiate(accept: &str) -> Result<Self, Status> {
        if accept.trim().is_empty() {
            return Ok(Self::Full);
        }
        let entries = accept.split(',').map(|entry| entry.split(';').map(str::trim).collect::<Vec<_>>());
        for entry in entries {
            let Some((media, parameters)) = entry.split_first() else { continue };
            if !matches!(*media, "application/json" | "*/*" | "application/*" | "application/yaml" | "text/plain") {
                continue;
            }
            let kind = parameters.iter().find_map(|parameter| parameter.strip_prefix("as="));
            let version = parameters.iter().find_map(|parameter| parameter.strip_prefix("v="));
            match kind {
                None => return Ok(Self::Full),
                Some("Table") if version == Some("v1") => return Ok(Self::Table),
                Some("PartialObjectMetadata") if version == Some("v1") => return Ok(Self::Metadata),
                Some("PartialObjectMetadataList") if version == Some("v1") => return Ok(Self::MetadataList),
                Some(_) => {}
            }
        }
        Err(Status::not_acceptable("only the following media types are accepted: application/json"))
    }

    /// Refuses the metadata of a list as that of an object, and the other way round.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn suits(self, resource: &Resource, is_list: bool) -> Result<(), Status> {
        let group =
            if resource.group.is_empty() || resource.group == "events.k8s.io" { "core" } else { &resource.group };
        let package = group.split('.').next().unwrap_or(group);
        let name = if resource.custom {
            "unstructured.Unstructured".to_owned()
        } else {
            format!("{package}.{}", resource.kind)
        };
        let message = match (self, is_list) {
            (Self::Metadata, true) => {
                format!("you requested PartialObjectMetadata, but the requested object is a list (*{name}List)")
            }
            (Self::MetadataList, false) => {
                format!("you requested PartialObjectMetadataList, but the requested object is not a list (*{name})")
            }
            _ => return Ok(()),
        };
        Err(Status::not_acceptable(message))
    }
}

/// Whether objects are shown as they are kept.
pub(crate) fn is_shown_as_kept(resource: &Resource) -> bool {
    resource.api_version() == resource.storage_api_version && !resource.has_defaults
}

/// The object as this version of the resource shows it; a default that came after the object shows too.
pub(crate) fn present(resource: &Resource, object: &Arc<Value>) -> Arc<Value> {
    if is_shown_as_kept(resource) {
        return Arc::clone(object);
    }
    let version = resource.api_version();
    if let Some(shown) = conversion::shown(resource, object) {
        return Arc::new(shown);
    }
    let mut shown = Value::clone(object);
    object::members(&mut shown).insert("apiVersion".to_owned(), json!(version));
    if version != resource.storage_api_version {
        prune::to_schema(resource, &mut shown);
    }
    default::fill(resource, &mut shown);
    Arc::new(shown)
}

/// As an item of a list: the items of typed lists do not repeat their kind.
pub(crate) fn listed(resource: &Resource, shown: &Value) -> Value {
    let mut item = shown.clone();
    if !resource.custom {
        let members = object::members(&mut item);
        members.remove("kind");
        members.remove("apiVersion");
    }
    item
}

/// Only the metadata.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

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
    with_warnings(response, &outcome.warnings)
}

/// What was just stored is text already, and mostly what is to be shown.
fn stored_text(shape: Shape, server: &Server, resource: &Resource, object: &Arc<Value>) -> Option<Bytes> {
    if shape != Shape::Full || !is_shown_as_kept(resource) {
        return None;
    }
    let place = key(resource, object::namespace(object), object::name(object));
    server.store().kept(&place).filter(|kept| kept.is(object)).map(|kept| kept.bytes())
}

/// The same answer with its `Warning` headers.
pub(crate) fn with_warnings(mut response: Response, warnings: &[String]) -> Response {
    for warning in warnings {
        if let Some(value) = warning_value(warning) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// The same answer with one more `Warning` header, before those that it has.
pub(crate) fn first_warning(mut response: Response, warning: &str) -> Response {
    let others: Vec<HeaderValue> = response.headers().get_all(header::WARNING).iter().cloned().collect();
    if let Some(value) = warning_value(warning) {
        response.headers_mut().insert(header::WARNING, value);
        for other in others {
            response.headers_mut().append(header::WARNING, other);
        }
    }
    response
}

fn warning_value(warning: &str) -> Option<HeaderValue> {
    let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("299 - \"{quoted}\"")).ok()
}

pub(crate) fn object(value: &Value) -> Response {
    json_body(StatusCode::OK, value)
}

/// An answer of 201 that is no stored object.
pub(crate) fn created(value: &Value) -> Response {
    json_body(StatusCode::CREATED, value)
}

pub(crate) fn text(text: &'static str) -> Response {
    Response::new(Body::from(text))
}

pub(crate) fn openapi_v2(accept: &str) -> Response {
    if !accept.contains(v2::ACCEPTED) {
        return object(&v2::document());
    }
    let mut response = Response::new(Body::from(v2::message()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(v2::CONTENT_TYPE));
    response
}

/// A path outside of every API group.
pub(crate) fn no_page() -> Response {
    let mut response = text("404 page not found\n");
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

pub(crate) fn failure(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_body(code, &status.to_json())
}

/// `/api` and `/apis`: everything at once for clients that ask for it, group by group for the others.
pub(crate) fn discovery(accept: &str, registry: &Registry, core: bool) -> Response {
    let aggregated = accept
        .split(',')
        .find(|entry| entry.contains("as=APIGroupDiscoveryList") && entry.contains("g=apidiscovery.k8s.io"));
    let version = aggregated.and_then(|entry| {
        ["v2", "v2beta1"].into_iter().find(|version| entry.split(';').any(|part| part.trim() == format!("v={version}")))
    });
    let Some(version) = version else {
        return object(&if core { discovery::core_versions() } else { discovery::groups(registry) });
    };
    let mut response = object(&discovery::aggregated(registry, core, version));
    let kind = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    if let Ok(kind) = HeaderValue::from_str(&kind) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}

/// JSON that is text already.
pub(crate) fn json_text(code: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn json_body(code: StatusCode, value: &Value) -> Response {
    json_text(code, value.to_string())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none("", Some(Shape::Full))]
    #[case::kubectl_get(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        Some(Shape::Table)
    )]
    #[case::kubectl_describe("application/vnd.kubernetes.protobuf,application/json", Some(Shape::Full))]
    #[case::owns("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Shape::MetadataList))]
    #[case::protobuf("application/vnd.kubernetes.protobuf", None)]
    fn the_first_served_type_wins(#[case] accept: &str, #[case] expected: Option<Shape>) {
        assert_eq!(Shape::negotiate(accept).ok(), expected);
    }
}
