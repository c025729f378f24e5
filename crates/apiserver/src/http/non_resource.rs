//! Responses of non-resource paths: version, health, discovery and OpenAPI.

use apimachinery::Status;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};
use serde_json::{Value, json};

use super::path::NonResourcePath;
use super::response::{json_object, text};
use crate::discovery;
use crate::openapi::{self, v2};
use crate::resources::Registry;
use crate::version::KUBERNETES_VERSION;

/// Serves a non-resource path.
///
/// # Errors
/// 404 for an unknown group or version.
pub(super) fn serve(registry: &Registry, path: &NonResourcePath, accept: &str) -> Result<Response, Status> {
    let document_or_404 =
        |document: Option<Value>| document.map(|document| json_object(&document)).ok_or_else(Status::path_not_found);
    match path {
        NonResourcePath::Version => Ok(json_object(&version())),
        NonResourcePath::Health => Ok(text("ok")),
        NonResourcePath::Core => Ok(groups(accept, registry, true)),
        NonResourcePath::Groups => Ok(groups(accept, registry, false)),
        NonResourcePath::Group { group } => document_or_404(discovery::group(registry, group)),
        NonResourcePath::GroupVersion { group, version } => {
            document_or_404(discovery::resources(registry, group, version))
        }
        NonResourcePath::OpenApiV2 => Ok(openapi_v2(accept)),
        NonResourcePath::OpenApiIndex => Ok(json_object(&openapi::index(registry))),
        NonResourcePath::OpenApi { group, version } => {
            discovery::resources(registry, group, version).ok_or_else(Status::path_not_found)?;
            Ok(json_object(&openapi::group_version_document(registry, group, version)))
        }
    }
}

/// Serves `/api` and `/apis` as aggregated discovery to clients that accept it, otherwise as legacy discovery.
fn groups(accept: &str, registry: &Registry, core: bool) -> Response {
    let aggregated = accept
        .split(',')
        .find(|entry| entry.contains("as=APIGroupDiscoveryList") && entry.contains("g=apidiscovery.k8s.io"));
    let version = aggregated.and_then(|entry| {
        ["v2", "v2beta1"]
            .into_iter()
            .find(|version| entry.split(';').any(|parameter| parameter.trim() == format!("v={version}")))
    });
    let Some(version) = version else {
        return json_object(&if core { discovery::core_versions() } else { discovery::groups(registry) });
    };
    let mut response = json_object(&discovery::aggregated(registry, core, version));
    let content_type = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    if let Ok(content_type) = HeaderValue::from_str(&content_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    response
}

fn openapi_v2(accept: &str) -> Response {
    if !accept.contains(v2::ACCEPT_TYPE) {
        return json_object(&v2::json_document());
    }
    let mut response = Response::new(Body::from(v2::protobuf_document()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(v2::CONTENT_TYPE));
    response
}

fn version() -> Value {
    let mut parts = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    json!({
        "major": parts.next(), "minor": parts.next(), "gitVersion": KUBERNETES_VERSION,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}
