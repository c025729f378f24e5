//! What is told of the server itself: its version, which resources it has, and their schemas.

use apimachinery::status::Status;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};
use serde_json::{Value, json};

use super::path::Document;
use super::respond::{object, text};
use crate::discovery;
use crate::openapi::{self, v2};
use crate::resources::Registry;
use crate::server::VERSION;

/// # Errors
/// 404 for a group or a version that is not there.
pub(super) fn serve(registry: &Registry, document: &Document, accept: &str) -> Result<Response, Status> {
    let found = |document: Option<Value>| document.map(|found| object(&found)).ok_or_else(Status::no_such_path);
    match document {
        Document::Version => Ok(object(&version())),
        Document::Health => Ok(text("ok")),
        Document::Core => Ok(groups(accept, registry, true)),
        Document::Groups => Ok(groups(accept, registry, false)),
        Document::Group { group } => found(discovery::group(registry, group)),
        Document::GroupVersion { group, version } => found(discovery::resources(registry, group, version)),
        Document::OpenApiV2 => Ok(openapi_v2(accept)),
        Document::OpenApiIndex => Ok(object(&openapi::index(registry))),
        Document::OpenApi { group, version } => {
            discovery::resources(registry, group, version).ok_or_else(Status::no_such_path)?;
            Ok(object(&openapi::group_version(registry, group, version)))
        }
    }
}

/// `/api` and `/apis`: everything at once for clients that ask for it, group by group for the others.
fn groups(accept: &str, registry: &Registry, core: bool) -> Response {
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

fn openapi_v2(accept: &str) -> Response {
    if !accept.contains(v2::ACCEPTED) {
        return object(&v2::document());
    }
    let mut response = Response::new(Body::from(v2::message()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(v2::CONTENT_TYPE));
    response
}

fn version() -> Value {
    let mut parts = VERSION.trim_start_matches('v').split('.');
    json!({
        "major": parts.next(), "minor": parts.next(), "gitVersion": VERSION,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}
