//! `pods/log`: container logs.

use std::convert::Infallible;

use apimachinery::{Status, StatusCause, time};
use axum::body::Body;
use axum::response::Response;
use futures::StreamExt;
use http::{HeaderValue, header};
use jiff::Timestamp;
use serde_json::json;

use crate::http::path::RequestTarget;
use crate::http::query::Query;
use crate::ports::PodLogOptions;
use crate::server::Server;
use crate::write::validate::kinds::NEGATIVE_MESSAGE;

const POSITIVE_MESSAGE: &str = "must be greater than 0";

pub(super) fn serve(server: &Server, target: &RequestTarget, query: &Query) -> Result<Response, Status> {
    let (namespace, pod) = (target.namespace(), target.name());
    let options = parse_options(server, pod, query)?;
    if server.get("pods", namespace, pod).is_none() {
        return Err(Status::not_found("pods", pod));
    }
    let Some(logs) = server.pod_logs() else { return Err(Status::internal_error("no node agent provides logs")) };
    let lines = logs.open(namespace, pod, options)?;
    let mut response = Response::new(Body::from_stream(lines.map(Ok::<_, Infallible>)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// Parses a time like Go.
///
/// # Errors
/// 400 if it is not in RFC 3339.
fn parse_time(text: &str) -> Result<Timestamp, Status> {
    text.parse().map_err(|_| {
        let layout = "2006-01-02T15:04:05Z07:00";
        Status::bad_request(format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\""))
    })
}

/// Parses and validates the options (`ValidatePodLogOptions`).
///
/// # Errors
/// 400 if a parameter is not a number, 422 if it is out of range.
fn parse_options(server: &Server, pod: &str, query: &Query) -> Result<PodLogOptions, Status> {
    let number = |name| query.number::<i64>(name);
    let (tail_lines, limit_bytes, since_seconds) =
        (number("tailLines")?, number("limitBytes")?, number("sinceSeconds")?);
    let since_time: Option<Timestamp> = query.get("sinceTime").map(parse_time).transpose()?;
    let check_at_least = |name: &str, value: Option<i64>, minimum: i64, hint: &str| {
        value.filter(|value| *value < minimum).map(|value| StatusCause::invalid(name, &json!(value), hint))
    };
    let mut causes = Vec::new();
    causes.extend(check_at_least("tailLines", tail_lines, 0, NEGATIVE_MESSAGE));
    causes.extend(check_at_least("limitBytes", limit_bytes, 1, POSITIVE_MESSAGE));
    if since_seconds.is_some() && since_time.is_some() {
        let hint = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        causes.push(StatusCause::forbidden("[]", hint));
    } else {
        causes.extend(check_at_least("sinceSeconds", since_seconds, 1, POSITIVE_MESSAGE));
    }
    if !causes.is_empty() {
        return Err(Status::invalid("PodLogOptions", pod, causes));
    }
    let count = |value: Option<i64>| value.map(|value| usize::try_from(value).unwrap_or(usize::MAX));
    Ok(PodLogOptions {
        container: query.get("container").map(str::to_owned),
        follow: query.flag("follow"),
        tail_lines: count(tail_lines),
        previous: query.flag("previous"),
        since: since_seconds.map(|seconds| time::add_seconds(server.now(), seconds.saturating_neg())).or(since_time),
        timestamps: query.flag("timestamps"),
        limit_bytes: count(limit_bytes),
    })
}
