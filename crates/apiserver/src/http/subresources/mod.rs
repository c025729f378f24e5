//! Dispatches requests to subresources; requests without a subresource are handled by [`verbs`].

mod binding;
mod eviction;
mod log;
mod scale;

use apimachinery::Status;
use axum::response::Response;
use http::Method;

use super::path::RequestTarget;
use super::request::ApiRequest;
use super::verbs;
use crate::server::Server;

pub(super) fn serve(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    let Some(subresource) = target.subresource.as_deref() else { return verbs::serve(server, target, request) };
    let resource = &target.resource;
    match (subresource, &request.method) {
        ("status", _) if resource.has_status => verbs::serve(server, target, request),
        ("finalize", _) if resource.plural == "namespaces" => verbs::serve(server, target, request),
        ("scale", _) if resource.scale.is_some() => scale::serve(server, target, request),
        ("log", &Method::GET) if resource.storage == "pods" => log::serve(server, target, &request.query),
        ("binding", &Method::POST) if resource.storage == "pods" => binding::serve(server, target, request),
        ("eviction", &Method::POST) if resource.storage == "pods" => eviction::serve(server, target, request),
        ("exec" | "attach" | "portforward", _) if resource.storage == "pods" => Err(streaming_unsupported(target)),
        _ if resource.custom => Err(Status::not_found(&resource.group_resource(), target.name())),
        _ => Err(Status::path_not_found()),
    }
}

/// Returns the error for subresources with streaming protocols, which are not implemented.
fn streaming_unsupported(target: &RequestTarget) -> Status {
    let message = match target.subresource.as_deref() {
        Some("portforward") => "port-forward is not supported: the address of the Pod is reachable from this host",
        Some("attach") => "attach is not supported: read the output of the container with `kubectl logs -f`",
        _ => "exec is not supported: containers are processes of this host",
    };
    Status::not_implemented(format!("pod {}: {message}", target.name()))
}
