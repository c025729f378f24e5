//! What is done with objects and collections: a file for each family of verbs.

mod apply;
mod delete;
mod get;
mod list;
mod listing;
mod patch;
mod watch;
mod write;

use apimachinery::status::Status;
use axum::response::Response;
use http::Method;

use super::call::Call;
use super::path::Target;
use crate::server::Server;
pub(super) use apply::{APPLY, manager};
pub(super) use delete::stated as delete_options;
pub(super) use patch::reader;

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    match (&call.method, target.name.is_some()) {
        (&Method::GET, _) if target.watched => watch::serve(server, target, call),
        (&Method::GET, false) if call.query.flag("watch") => watch::serve(server, target, call),
        (&Method::GET, false) => list::serve(server, target, call),
        (&Method::GET, true) => get::serve(server, target, call),
        (&Method::POST, false) => write::create(server, target, call),
        (&Method::PUT, true) => write::replace(server, target, call),
        (&Method::PATCH, true) => patch::serve(server, target, call),
        (&Method::DELETE, true) => delete::one(server, target, call),
        (&Method::DELETE, false) => delete::collection(server, target, call),
        _ => Err(Status::method_not_allowed()),
    }
}
