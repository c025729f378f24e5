//! `pods/log`: container logs.

use std::convert::Infallible;

use apimachinery::Status;
use axum::body::Body;
use axum::response::Response;
use futures::StreamExt;
use http::{HeaderValue, header};

use crate::http::path::RequestTarget;
use crate::http::query::Query;
use crate::ports::PodLogOptions;
use crate::server::Server;

pub(super) fn serve(server: &Server, target: &RequestTarget, query: &Query) -> Result<Response, Status> {
    let (namespace, pod) = (target.namespace(), target.name());
    if server.get("pods", namespace, pod).is_none() {
        return Err(Status::not_found("pods", pod));
    }
    let Some(logs) = server.pod_logs() else { return Err(Status::internal_error("no node agent provides logs")) };
    let since = match query.number::<i64>("sinceSeconds")? {
        Some(seconds) => Some(server.now() - jiff::SignedDuration::from_secs(seconds)),
        None => query.get("sinceTime").and_then(|at| at.parse().ok()),
    };
    let query = PodLogOptions {
        container: query.get("container").map(str::to_owned),
        follow: query.flag("follow"),
        tail_lines: query.number("tailLines")?,
        previous: query.flag("previous"),
        since,
        timestamps: query.flag("timestamps"),
        limit_bytes: query.number("limitBytes")?,
    };
    let lines = logs.open(namespace, pod, query)?;
    let mut response = Response::new(Body::from_stream(lines.map(Ok::<_, Infallible>)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}
