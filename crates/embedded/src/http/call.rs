//! Reads one request, as far as the kinds do not matter.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use apimachinery::status::Status;
use axum::body::Body;
use bytes::Bytes;
use http::{Method, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::query::Query;
use super::shape::Shape;

/// Largest request body in bytes, as kube-apiserver's.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// How long a body may take to arrive.
const SLOWEST_BODY: Duration = Duration::from_secs(30);

/// One request.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) query: Query,
    pub(crate) shape: Shape,
    /// Without its parameters.
    pub(crate) content_type: String,
    /// The default of `fieldManager`: the first word of the user agent.
    pub(crate) agent: String,
    pub(crate) body: Bytes,
}

// === impl Call ===

impl Call {
    /// # Errors
    /// 400 for parameters that cannot be read, 406.
    pub(super) fn read(request: &http::Request<()>, body: Bytes, accept: &str) -> Result<Self, Status> {
        let content_type = header_text(request, header::CONTENT_TYPE);
        let content_type = content_type.split(';').next().unwrap_or_default().trim().to_owned();
        let agent = header_text(request, header::USER_AGENT);
        let agent = agent.split(['/', ' ']).next().unwrap_or_default().to_owned();
        let query = Query::parse(request.method(), request.uri())?;
        let shape = Shape::negotiate(accept)?;
        let method = request.method().clone();
        Ok(Self { method, query, shape, content_type, agent, body })
    }
}

/// # Errors
/// 400 for a body that cannot be read, 408 for one that does not arrive, 413.
pub(super) async fn whole(body: Body) -> Result<Bytes, Status> {
    let mut whole = pin!(Limited::new(body, LARGEST_BODY).collect());
    // Most bodies are there with their head, and need no clock.
    let whole = match futures::poll!(&mut whole) {
        Poll::Ready(whole) => whole,
        Poll::Pending => tokio::time::timeout(SLOWEST_BODY, whole).await.map_err(|_| {
            let limit = SLOWEST_BODY.as_secs();
            Status::too_slow(format!("the body of the request did not arrive within {limit} seconds"))
        })?,
    };
    let whole = whole.map_err(|error| {
        if error.downcast_ref::<LengthLimitError>().is_some() {
            Status::too_large(format!("limit is {LARGEST_BODY} bytes"))
        } else {
            Status::bad_request(format!("the body could not be read: {error}"))
        }
    })?;
    Ok(whole.to_bytes())
}

/// All values of a header, as one.
pub(super) fn header_text<B>(request: &http::Request<B>, name: header::HeaderName) -> String {
    let values = request.headers().get_all(name);
    values.iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",")
}
