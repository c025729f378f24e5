//! `pods/NAME/log`.

use std::convert::Infallible;

use apimachinery::status::Status;
use axum::body::Body;
use axum::response::Response;
use futures::StreamExt;
use http::{HeaderValue, header};

use super::path::Target;
use super::query::Query;
use crate::server::Server;

pub(super) fn serve(server: &Server, target: &Target, query: &Query) -> Result<Response, Status> {
    let (namespace, pod) = (target.namespace(), target.name());
    if server.get("pods", namespace, pod).is_none() {
        return Err(Status::not_found("pods", pod));
    }
    let Some(logs) = server.logs() else { return Err(Status::internal("no node keeps logs")) };
    let lines = logs.open(
        namespace,
        pod,
        query.get("container"),
        query.flag("follow"),
        query.number("tailLines")?,
        query.flag("previous"),
    )?;
    let mut response = Response::new(Body::from_stream(lines.map(Ok::<_, Infallible>)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}
