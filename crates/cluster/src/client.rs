//! Clients of a Kubernetes API whose requests and watches have deadlines.
//!
//! `kube` limits only the time to connect. A request that the API server never answers would block its caller forever.
//!
//! All requests of a client pass through one task of `tower::Buffer`, which calls the service that sends them. If the service
//! panicked there or reported that it fails, each further request would fail: [`DeadlineService`], the outermost service,
//! returns both as the error of one request.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use apimachinery::catch_panic;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::{BoxError, Layer, Service};

use crate::credential_plugin::{creation_error, credential_plugin, service_with_plugin};

/// Maximum duration of a request, including retries and the whole response. It also limits how long the API server may
/// take until it starts to respond to a watch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time between two chunks of a watch. Bookmarks arrive about once a minute.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Adds the deadlines to a service that sends requests.
struct DeadlineLayer;

/// A service whose requests have deadlines.
struct DeadlineService<S> {
    inner: S,
    /// Why the inner service was not ready for the next request.
    failure: Option<BoxError>,
}

/// Body of a response with a deadline.
struct DeadlineBody<B> {
    body: Pin<Box<B>>,
    deadline: Pin<Box<Sleep>>,
    limit: BodyLimit,
}

/// How long a response body may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyLimit {
    /// The whole body arrives before the deadline of the request.
    Deadline,
    /// The body may take any time, but each chunk arrives within [`WATCH_IDLE_TIMEOUT`] of the previous one.
    Idle,
}

/// The API server exceeded a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum TimeoutError {
    #[error("the Kubernetes API server did not complete the request within {} s", REQUEST_TIMEOUT.as_secs())]
    Request,
    #[error("the Kubernetes API server sent neither an event nor a bookmark for {} min", WATCH_IDLE_TIMEOUT.as_secs() / 60)]
    Watch,
}

/// Returns a client of the API server of `config`. Requests fail after 30 seconds, watches after 10 minutes without an
/// event or a bookmark, and requests that need credentials from a plugin after
/// [`CREDENTIAL_PLUGIN_TIMEOUT`](crate::CREDENTIAL_PLUGIN_TIMEOUT) without them, which is part of the 30 seconds. Runs the
/// plugin and waits for it.
///
/// # Errors
/// The configuration is invalid, or the plugin failed.
pub fn new_client(config: kube::Config) -> Result<Client, kube::Error> {
    let plugin = credential_plugin(&config.auth_info);
    client_of_config(config).map_err(|error| creation_error(plugin, error))
}

fn client_of_config(config: kube::Config) -> Result<Client, kube::Error> {
    let without_deadlines = |config| Ok(ClientBuilder::try_from(config)?.build());
    match service_with_plugin(&config, without_deadlines)? {
        Some(service) => Ok(client_of_service(service, &config.default_namespace)),
        None => Ok(ClientBuilder::try_from(config)?.with_layer(&DeadlineLayer).build()),
    }
}

/// Returns a client with the deadlines of [`new_client`] that sends its requests to `service`, for example to an API
/// server in the same process.
pub fn client_of_service<S, B>(service: S, default_namespace: &str) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Client::new(DeadlineLayer.layer(service), default_namespace)
}

// === impl DeadlineLayer ===

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> DeadlineService<S> {
        DeadlineService { inner, failure: None }
    }
}

// === impl DeadlineService ===

impl<S, B> Service<Request<Body>> for DeadlineService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<DeadlineBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let result = match catch_panic(|| self.inner.poll_ready(context)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => result.map_err(Into::into),
            Err(panic) => Err(panic.into()),
        };
        self.failure = result.err();
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_streamed = is_streamed(request.uri());
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let response = match self.failure.take() {
            Some(failure) => Err(failure),
            None => catch_panic(|| self.inner.call(request)).map_err(Into::into),
        };
        Box::pin(async move {
            let response = response?;
            let response = timeout_at(deadline, response).await.map_err(|_| TimeoutError::Request)?;
            let response = response.map_err(Into::into)?;
            // The body of an error is not a stream.
            let limit =
                if is_streamed && response.status().is_success() { BodyLimit::Idle } else { BodyLimit::Deadline };
            Ok(response.map(|body| DeadlineBody::new(body, limit, deadline)))
        })
    }
}

/// Returns whether the response is a stream without an end: a watch, or the log of a running container.
fn is_streamed(uri: &Uri) -> bool {
    let parameters = uri.query().unwrap_or_default().split('&');
    parameters
        .filter_map(|parameter| parameter.split_once('='))
        .any(|(name, value)| matches!(name, "watch" | "follow") && !matches!(value, "false" | "0"))
}

// === impl DeadlineBody ===

impl<B> DeadlineBody<B> {
    fn new(body: B, limit: BodyLimit, request_deadline: Instant) -> Self {
        let deadline = match limit {
            BodyLimit::Deadline => request_deadline,
            BodyLimit::Idle => Instant::now() + WATCH_IDLE_TIMEOUT,
        };
        Self { body: Box::pin(body), deadline: Box::pin(sleep_until(deadline)), limit }
    }
}

impl<B> HttpBody for DeadlineBody<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = self.body.as_mut().poll_frame(context) {
            if self.limit == BodyLimit::Idle {
                self.deadline.as_mut().reset(Instant::now() + WATCH_IDLE_TIMEOUT);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let error = match self.limit {
            BodyLimit::Deadline => TimeoutError::Request,
            BodyLimit::Idle => TimeoutError::Watch,
        };
        self.deadline.as_mut().poll(context).map(|()| Some(Err(error.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use super::*;
    use rstest::rstest;

    /// How a service fails once.
    #[derive(Clone, Copy, PartialEq)]
    enum Failure {
        PanicInCall,
        PanicInPollReady,
        NotReady,
    }

    /// A service that fails once, and then answers requests.
    struct BrokenService(Option<Failure>);

    impl Service<Request<Body>> for BrokenService {
        type Response = Response<Body>;
        type Error = BoxError;
        type Future = Ready<Result<Response<Body>, BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            match self.0.take_if(|failure| *failure != Failure::PanicInCall) {
                Some(Failure::NotReady) => Poll::Ready(Err("broken service".into())),
                Some(_) => panic!("broken service"),
                None => Poll::Ready(Ok(())),
            }
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            assert!(self.0.take().is_none(), "broken service");
            ready(Ok(Response::new(Body::from(b"{}".to_vec()))))
        }
    }

    /// Only the request for which the service fails gets an error.
    #[rstest]
    #[case::panic(Failure::PanicInCall)]
    #[case::panic_before_the_request(Failure::PanicInPollReady)]
    #[case::not_ready(Failure::NotReady)]
    #[tokio::test]
    async fn failure_of_the_service_does_not_fail_further_requests(#[case] failure: Failure) {
        let client = client_of_service(BrokenService(Some(failure)), "default");
        let get = async || client.request_text(Request::get("/version").body(Vec::new()).unwrap()).await;
        let error = get().await.unwrap_err().to_string();
        assert!(error.contains("broken service"), "{error}");
        for _ in 0..2 {
            assert_eq!(get().await.unwrap(), "{}");
        }
    }

    #[rstest]
    #[case::list("/api/v1/pods?&limit=100", false)]
    #[case::watch("/api/v1/pods?&watch=true&timeoutSeconds=290", true)]
    #[case::watch_as_number("/api/v1/pods?watch=1", true)]
    #[case::no_watch("/api/v1/pods?watch=false", false)]
    #[case::log("/api/v1/namespaces/n/pods/p/log?&tailLines=10", false)]
    #[case::followed_log("/api/v1/namespaces/n/pods/p/log?&follow=true", true)]
    #[case::object_with_this_name("/api/v1/namespaces/n/pods/watch", false)]
    fn streams_are_watches_and_followed_logs(#[case] uri: &str, #[case] expect: bool) {
        assert_eq!(is_streamed(&uri.parse().unwrap()), expect);
    }
}
