//! The verbs on objects and collections.

mod apply;
mod delete;
mod get;
mod list;
mod list_body;
mod patch;
mod watch;
mod write;

use apimachinery::Status;
use axum::response::Response;
use http::Method;

use super::path::RequestTarget;
use super::request::ApiRequest;
use crate::server::Server;
pub(super) use apply::{APPLY_PATCH_TYPE, required_manager};
pub(super) use delete::parse_delete_options;
pub(super) use patch::{JSON_PATCH_TYPE, patch_function};

pub(super) fn serve(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    match (&request.method, target.name.is_some()) {
        (&Method::GET, _) if target.is_watch => watch::serve(server, target, request),
        (&Method::GET, false) if request.query.flag("watch") => watch::serve(server, target, request),
        (&Method::GET, false) => list::serve(server, target, request),
        (&Method::GET, true) => get::serve(server, target, request),
        (&Method::POST, false) => write::create(server, target, request),
        (&Method::PUT, true) => write::replace(server, target, request),
        (&Method::PATCH, true) => patch::serve(server, target, request),
        (&Method::DELETE, true) => delete::delete_one(server, target, request),
        (&Method::DELETE, false) => delete::delete_collection(server, target, request),
        _ => Err(Status::method_not_allowed()),
    }
}
