//! The parts of objects that have paths of their own; all others are for the verbs.

mod binding;
mod eviction;
mod log;
mod scale;

use apimachinery::status::Status;
use axum::response::Response;
use http::Method;

use super::call::Call;
use super::path::Target;
use super::verbs;
use crate::server::Server;

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let Some(asked) = target.subresource.as_deref() else { return verbs::serve(server, target, call) };
    let resource = &target.resource;
    match (asked, &call.method) {
        ("status", _) if resource.status => verbs::serve(server, target, call),
        ("finalize", _) if resource.plural == "namespaces" => verbs::serve(server, target, call),
        ("scale", _) if resource.scale.is_some() => scale::serve(server, target, call),
        ("log", &Method::GET) if resource.storage == "pods" => log::serve(server, target, &call.query),
        ("binding", &Method::POST) if resource.storage == "pods" => binding::serve(server, target, call),
        ("eviction", &Method::POST) if resource.storage == "pods" => eviction::serve(server, target, call),
        ("exec" | "attach" | "portforward", _) if resource.storage == "pods" => Err(unavailable(target)),
        _ if resource.custom => Err(Status::not_found(&resource.qualified(), target.name())),
        _ => Err(Status::no_such_path()),
    }
}

/// Nothing here speaks the streaming protocols of these.
fn unavailable(target: &Target) -> Status {
    let what = match target.subresource.as_deref() {
        Some("portforward") => {
            "port-forward is not available here: the Pod's own address is reachable from this machine"
        }
        Some("attach") => "attach is not available here: read the container's output with `kubectl logs -f`",
        _ => "exec is not available here: containers are processes of this machine",
    };
    Status::not_implemented(format!("pod {}: {what}", target.name()))
}
