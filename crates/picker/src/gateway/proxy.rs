//! Handles one request: reads it, selects an endpoint, forwards it, and streams the response.

use std::{pin::pin, sync::Arc, time::Duration};

use cluster::NamespacedName;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header, uri::Authority,
};
use http_body::Body as _;
use http_server::BodyMemory;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::{
    engine_client::{EngineClient, EngineError, EngineTarget},
    engine_request_body::EngineRequestBody,
    engine_response_body::EngineResponseBody,
    event_stream::Api,
    forwarded_headers::remove_unforwarded_headers,
    models,
    options::GatewayOptions,
    proxied_request::{ProxiedRequest, read_request},
    response,
    response_body::ResponseBody,
    retry_copy::hold_copy,
    route::{Destination, Route, match_path},
};
use crate::{
    access_log::AccessRecord,
    api_keys::{Access, ApiKeys, remove_api_key},
    control_fields::{ControlFields, REQUEST_ID_HEADER},
    control_headers::engine_headers,
    endpoint_health::RequestOutcome,
    flow_headers::FlowHeaders,
    http_routes::RequestHead,
    model_rewrite::{self, RewrittenModel},
    openai_error::OpenAiError,
    routing_error::RoutingError,
    scheduler::{AdmissionRequest, Permit, RequestedModel, Scheduler, Selection},
};

/// Maximum number of endpoints to which one request is sent.
const MAX_ATTEMPTS: usize = 3;

/// A request that fails within this time is sent to another endpoint. Afterwards only what is not sent yet of its body is in
/// memory: an engine may take minutes, and slow engines of one pool would occupy the memory for all pools.
const RETRY_WINDOW: Duration = Duration::from_secs(10);

/// Handles the requests of all connections.
pub(super) struct Proxy {
    scheduler: Arc<Scheduler>,
    engine_client: EngineClient,
    body_memory: BodyMemory,
    /// Whether responses explain the selection.
    debug_headers: bool,
    api_keys: Option<Arc<ApiKeys>>,
    control_fields: ControlFields,
    session_header: Option<HeaderName>,
}

impl Proxy {
    /// Returns a proxy to the endpoints of `scheduler`.
    pub(super) fn new(scheduler: Arc<Scheduler>, options: &GatewayOptions) -> Self {
        Self {
            scheduler,
            engine_client: EngineClient::new(),
            body_memory: BodyMemory::new(options.request_memory),
            debug_headers: options.debug_headers,
            api_keys: options.api_keys.clone(),
            control_fields: options.control_fields,
            session_header: options.session_header.clone(),
        }
    }

    /// Closes connections to engines that are not used any more, until the future is dropped.
    pub(super) fn close_idle_connections(&self) -> impl Future<Output = ()> + Send + 'static {
        self.engine_client.close_idle_connections(&self.scheduler.supervisor)
    }

    /// Returns the response to one request.
    pub(super) async fn handle(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let log = self.scheduler.access_log.as_ref().filter(|_| !is_probe(request.uri().path()));
        let mut record = log.map(|log| log.begin(request.uri().path()));
        let response = self.respond(request, &mut record).await;
        // A response of an engine has taken the record.
        if let Some(mut record) = record {
            match &response {
                Ok(response) => {
                    record.record_response(response.status(), false);
                    record.record_end();
                }
                Err(error) => record.record_error(error),
            }
        }
        response.unwrap_or_else(|error| response::error(&error))
    }

    /// Returns the response to one request, and moves its record into the response of an engine.
    async fn respond(
        &self,
        request: Request<Incoming>,
        record: &mut Option<Box<AccessRecord>>,
    ) -> Result<Response<ResponseBody>, OpenAiError> {
        check_host(&request)?;
        let path = request.uri().path().to_owned();
        let is_get = request.method() == Method::GET;
        match self.route(&request) {
            // Without the tasks that update the snapshot, the gateway serves requests with the last one; a restart would
            // lose it. The process ends if the tasks do not recover.
            Route::Liveness => Ok(response::health(&[])),
            Route::Health => Ok(response::health(&self.scheduler.outages())),
            Route::Readiness => Ok(response::health(&self.scheduler.readiness_failures())),
            Route::NotFound => Err(OpenAiError::unknown_path(request.method(), &path)),
            Route::Models(_) | Route::Model(..) if !is_get => Err(OpenAiError::method_not_allowed("GET")),
            Route::Models(destination) => {
                let access = self.access(request.headers())?;
                let models = models::list_models(&self.scheduler.snapshot(), &destination, &access)?;
                Ok(response::json(StatusCode::OK, &models))
            }
            Route::Model(destination, name) => {
                let access = self.access(request.headers())?;
                let model = models::get_model(&self.scheduler.snapshot(), &destination, &name, &access)?;
                Ok(response::json(StatusCode::OK, &model))
            }
            Route::Inference { .. } if request.method() != Method::POST => Err(OpenAiError::method_not_allowed("POST")),
            Route::Inference { destination, path } => {
                let access = self.access(request.headers())?;
                let Some(timeout) = destination.timeout() else {
                    return self.infer(request, &destination, &path, &access, None, record).await;
                };
                let deadline = Instant::now() + timeout;
                // Few requests have a timeout; the future of the others stays small.
                let response = Box::pin(self.infer(request, &destination, &path, &access, Some(deadline), record));
                let response = timeout_at(deadline, response).await;
                response.unwrap_or_else(|_| {
                    let error = OpenAiError::route_timeout();
                    self.scheduler.metrics.record_rejection("", "", error.status);
                    Err(error)
                })
            }
        }
    }

    /// Returns the route of a request.
    fn route(&self, request: &Request<Incoming>) -> Route {
        let snapshot = self.scheduler.snapshot();
        match_path(request.uri().path(), |path| {
            let authority = request.uri().authority().map(Authority::as_str);
            let host = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
            snapshot.routes.find(&RequestHead {
                authority: authority.or_else(host).unwrap_or_default(),
                path,
                query: request.uri().query().unwrap_or_default(),
                method: request.method(),
                headers: request.headers(),
            })
        })
    }

    /// Returns the response to an inference request to `path`, which ends at `deadline`.
    async fn infer(
        &self,
        mut request: Request<Incoming>,
        destination: &Destination,
        path: &str,
        access: &Access,
        deadline: Option<Instant>,
        record: &mut Option<Box<AccessRecord>>,
    ) -> Result<Response<ResponseBody>, OpenAiError> {
        // Clients must not raise their own priority.
        FlowHeaders::remove(request.headers_mut());
        if let Destination::Rule(rule) = destination {
            rule.change_headers(request.headers_mut());
        }
        let pool = destination.draw_pool(|| self.scheduler.rng()).map_err(OpenAiError::from);
        let request = match pool {
            Ok(pool) => self.read(request, pool, path, access).await,
            Err(error) => Err(error),
        };
        let mut request = request.inspect_err(|error| self.scheduler.metrics.record_rejection("", "", error.status))?;
        request.deadline = deadline;
        if let Some(record) = record {
            record.record_request(&request.model.name, request.body.len());
        }
        self.forward(request, access, record).await
    }

    /// Reads an inference request to `path` that may address a pool.
    ///
    /// # Errors
    /// The request is invalid, or it may not use its model.
    async fn read(
        &self,
        request: Request<Incoming>,
        pool: Option<NamespacedName>,
        path: &str,
        access: &Access,
    ) -> Result<ProxiedRequest, OpenAiError> {
        let mut request = read_request(request, pool, path, &self.body_memory).await?;
        self.control_fields.check_request_ids(request.headers.get_all(REQUEST_ID_HEADER))?;
        self.control_fields.check_field(request.info.control_field)?;
        let snapshot = self.scheduler.snapshot();
        if !models::allows(&snapshot, request.pool.as_ref(), &request.model.name, access) {
            let (pool, name) = (request.pool.as_ref(), &request.model.name);
            return Err(models::model_not_found(&snapshot, pool, name, access).into());
        }
        if self.api_keys.is_some() {
            remove_api_key(&mut request.headers);
        }
        Ok(request)
    }

    /// Returns what a request with these headers may use.
    ///
    /// # Errors
    /// The request contains no valid API key.
    fn access(&self, headers: &HeaderMap) -> Result<Access, OpenAiError> {
        let Some(keys) = &self.api_keys else { return Ok(Access::default()) };
        keys.access(headers).ok_or_else(OpenAiError::invalid_api_key)
    }

    async fn forward(
        &self,
        mut request: ProxiedRequest,
        access: &Access,
        record: &mut Option<Box<AccessRecord>>,
    ) -> Result<Response<ResponseBody>, OpenAiError> {
        let admission = AdmissionRequest {
            pool: request.pool.as_ref(),
            model: RequestedModel::Name(&request.model.name),
            body: &request.body,
            info: &request.info,
            path: request.api_path(),
            flow: request.flow.as_deref(),
            subset: None,
            session: self.session(&request.headers),
        };
        let permit = self.scheduler.admit(&admission).await;
        let mut permit = permit.map_err(|error| self.reject(&request, access, error))?;
        if let Some(record) = record {
            permit.record_admission(record);
        }
        let rewritten = (permit.route.target_model != request.model.name).then(|| {
            // Boxed for the size of the future.
            Box::new(RewrittenModel {
                client_model: request.model.name.clone(),
                engine_model: permit.route.target_model.clone(),
            })
        });
        let body = std::mem::take(&mut request.body);
        let mut body = match &rewritten {
            Some(model) => model_rewrite::replace_model(&body, &request.model.span, &model.engine_model).into(),
            None => EngineRequestBody::from(body),
        };
        let mut reuses_connection = true;
        loop {
            let address = permit.selection.result.endpoint.address;
            let target =
                EngineTarget { address: permit.destination(), pod_deleted: permit.pod_deleted(), reuses_connection };
            let attempt = upstream_request(&request, &body, &permit, rewritten.is_some());
            let attempt = pin!(self.engine_client.send(attempt, target));
            let (result, copy) = hold_copy(body, RETRY_WINDOW, attempt).await;
            if let (Err(error @ EngineError::StaleConnection(_)), Some(copy)) = (&result, &copy) {
                tracing::debug!(%address, %error, "retrying on a new connection");
                (body, reuses_connection) = (copy.clone(), false);
                continue;
            }
            permit.record_outcome(outcome(&result));
            if let Some(record) = record {
                permit.record_endpoint(record);
            }
            match result {
                Ok(response)
                    if copy.is_some()
                        && should_retry(response.status())
                        && permit.attempts() < MAX_ATTEMPTS
                        && self.scheduler.has_other_endpoint(&permit) =>
                {
                    let status = response.status();
                    tracing::debug!(%address, %status, "endpoint rejected the request, trying another");
                }
                Ok(response) => {
                    permit.set_access_record(record.take());
                    return Ok(self.downstream_response(&request, response, rewritten.as_deref(), permit));
                }
                // Another endpoint would repeat the work, and the client has waited too long already.
                Err(error @ EngineError::Timeout) => {
                    tracing::warn!(%address, %error, "endpoint timed out");
                    return Err(OpenAiError::engine_timeout());
                }
                Err(error) => {
                    tracing::debug!(%address, %error, "endpoint failed before it responded");
                    if permit.attempts() >= MAX_ATTEMPTS {
                        return Err(RoutingError::NoEndpointAvailable(permit.route.pool.key.clone()).into());
                    }
                }
            }
            body = copy.ok_or_else(OpenAiError::engine_failed)?;
            reuses_connection = true;
            // Few requests are retried; the future of the others stays small.
            Box::pin(self.scheduler.retry(&mut permit)).await?;
        }
    }

    /// Returns the session of a request, if it belongs to one.
    fn session<'a>(&self, headers: &'a HeaderMap) -> Option<&'a [u8]> {
        let value = headers.get_all(self.session_header.as_ref()?).iter().next_back()?;
        Some(value.as_bytes()).filter(|session| !session.is_empty())
    }

    /// Returns the error for the client of a request that is not admitted, and counts it.
    fn reject(&self, request: &ProxiedRequest, access: &Access, error: RoutingError) -> OpenAiError {
        // The names of models that do not exist would fill the set of known labels.
        let model = if matches!(error, RoutingError::ModelNotFound(_)) { "" } else { &request.model.name };
        let error = OpenAiError::from(match error {
            RoutingError::ModelNotFound(name) => {
                models::model_not_found(&self.scheduler.snapshot(), request.pool.as_ref(), &name, access)
            }
            error => error,
        });
        self.scheduler.metrics.record_rejection(model, model, error.status);
        error
    }

    /// Returns the response to `request` for the client, with its name of the model if that was `rewritten`.
    fn downstream_response(
        &self,
        request: &ProxiedRequest,
        response: Response<EngineResponseBody>,
        rewritten: Option<&RewrittenModel>,
        mut permit: Permit,
    ) -> Response<ResponseBody> {
        permit.record_response_start();
        let (head, incoming) = response.into_parts();
        if !head.status.is_success() {
            permit.record_error_response();
        }
        if let Some(record) = permit.access_record() {
            record.record_response(head.status, false);
            if incoming.is_end_stream() {
                record.record_end();
            }
        }
        let mut headers = head.headers;
        remove_unforwarded_headers(&mut headers);
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_compressed = headers.contains_key(header::CONTENT_ENCODING);
        let restorer = rewritten.and_then(|model| model.restorer(content_type, is_compressed));
        let is_event_stream = content_type.starts_with("text/event-stream") && !is_compressed;
        if restorer.is_some() || is_event_stream {
            headers.remove(header::CONTENT_LENGTH);
        }
        if self.debug_headers {
            add_explanation_headers(&mut headers, &permit.selection);
        }
        let event_stream = is_event_stream.then(|| Api::of_path(request.api_path()));
        let body = ResponseBody::upstream(incoming, restorer, event_stream, permit, request.deadline);
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        *response.headers_mut() = headers;
        response
    }
}

/// Returns whether a path is that of a probe, which the access log does not contain.
fn is_probe(path: &str) -> bool {
    ["/livez", "/readyz", "/health"].contains(&path)
}

/// Checks `Host` (RFC 9112 §3.2, RFC 9113 §8.3.1). A proxy in front of the gateway may have authorized another one of several hosts than
/// the one that HTTPRoutes match.
fn check_host<B>(request: &Request<B>) -> Result<(), OpenAiError> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (host, is_required) = (hosts.next(), request.version() == Version::HTTP_11);
    let authority = request.uri().authority();
    let differs = |host: &HeaderValue| {
        authority.is_some_and(|authority| !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()))
    };
    let is_invalid = hosts.next().is_some() || host.map_or(is_required, differs);
    if is_invalid { Err(OpenAiError::invalid_host()) } else { Ok(()) }
}

fn outcome(result: &Result<Response<EngineResponseBody>, EngineError>) -> RequestOutcome {
    match result {
        Ok(response) => RequestOutcome::Responded(response.status()),
        Err(error) if error.is_connect() => RequestOutcome::NotConnected,
        Err(_) => RequestOutcome::Failed,
    }
}

/// Returns whether another endpoint may succeed: this endpoint does not serve the model, or does not accept requests.
fn should_retry(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::SERVICE_UNAVAILABLE)
}

/// Returns the request for the engine.
fn upstream_request(
    original: &ProxiedRequest,
    body: &EngineRequestBody,
    permit: &Permit,
    is_rewritten: bool,
) -> Request<EngineRequestBody> {
    let (result, primary_port) = (&permit.selection.result, permit.route.pool.scheduling.policy().primary_port);
    let mut request = Request::new(body.clone());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = original.path.parse().unwrap_or_default();
    let mut headers = original.headers.clone();
    if is_rewritten {
        // The model name cannot be restored in a compressed response.
        headers.remove(header::ACCEPT_ENCODING);
    }
    for (name, address) in engine_headers(result, primary_port) {
        if let Ok(value) = HeaderValue::from_str(&address.to_string()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    *request.headers_mut() = headers;
    request
}

/// Adds headers that explain the selection.
fn add_explanation_headers(headers: &mut HeaderMap, selection: &Selection) {
    let address = selection.result.endpoint.address.to_string();
    for (name, value) in [
        ("x-ostler-endpoint", &address),
        ("x-ostler-pod", &selection.result.endpoint.pod),
        ("x-ostler-decision", &selection.explanation()),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use bytes::Bytes;
    use cluster::NamespacedName;
    use http_body_util::Full;
    use rstest::rstest;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        time::{sleep, timeout},
    };

    use super::*;
    use crate::{
        endpoint::{Endpoint, tests::endpoint},
        policy::tests::policy_without_metrics,
        snapshot::{self, Pool},
    };

    #[rstest]
    #[case::one(Version::HTTP_11, "/", &["a"], true)]
    #[case::none(Version::HTTP_11, "/", &[], false)]
    #[case::two(Version::HTTP_11, "/", &["a", "a"], false)]
    #[case::absolute_url(Version::HTTP_11, "http://a/", &["a"], true)]
    #[case::other_absolute_url(Version::HTTP_11, "http://b/", &["a"], false)]
    #[case::old_version(Version::HTTP_10, "/", &[], true)]
    #[case::authority(Version::HTTP_2, "http://a/", &[], true)]
    #[case::same_authority(Version::HTTP_2, "http://a/", &["a"], true)]
    #[case::other_authority(Version::HTTP_2, "http://a/", &["b"], false)]
    fn request_names_one_host(
        #[case] version: Version,
        #[case] url: &str,
        #[case] hosts: &[&str],
        #[case] is_valid: bool,
    ) {
        let request =
            hosts.iter().fold(Request::get(url).version(version), |request, host| request.header("host", *host));
        assert_eq!(check_host(&request.body(()).unwrap()).is_ok(), is_valid);
    }

    /// Size in bytes of the body and of the memory.
    const BODY_BYTES: usize = 32 * 1024;

    /// Starts two engines. Of all connections, the first is closed without a response after `failure_time`; the others respond
    /// at once. Returns a gateway in front of them.
    async fn start(failure_time: Duration) -> Proxy {
        let has_failed = Arc::new(AtomicBool::new(false));
        let mut endpoints = Vec::new();
        for number in [1, 2] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            endpoints.push(Arc::new(Endpoint { address: listener.local_addr().unwrap(), ..endpoint(number) }));
            let has_failed = Arc::clone(&has_failed);
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let mut request = Vec::new();
                    while request.len() < BODY_BYTES {
                        stream.read_buf(&mut request).await.unwrap();
                    }
                    if has_failed.swap(true, Relaxed) {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                    } else {
                        sleep(failure_time).await;
                    }
                }
            });
        }
        let scheduler = Scheduler::new(policy_without_metrics(), 1).with_default_namespace("ns".to_owned());
        let key = NamespacedName { namespace: "ns".to_owned(), name: "p".to_owned() };
        scheduler.replace(vec![Pool { allows_implicit_use_cases: true, ..snapshot::tests::pool(key, endpoints) }]);
        Proxy::new(Arc::new(scheduler), &GatewayOptions { request_memory: BODY_BYTES, ..GatewayOptions::default() })
    }

    /// Reads a request that occupies all of the memory.
    async fn read_largest(proxy: &Proxy) -> ProxiedRequest {
        let mut body = br#"{"model":"m"}"#.to_vec();
        body.resize(BODY_BYTES, b' ');
        let request = Request::new(Full::new(Bytes::from(body)));
        read_request(request, None, "/v1/completions", &proxy.body_memory).await.unwrap()
    }

    /// A large future costs more to move and to keep in the caches of the CPU than the rest of a decision.
    #[tokio::test]
    async fn future_of_a_request_is_small() {
        let proxy = start(Duration::ZERO).await;
        let body = Request::new(Full::new(Bytes::from_static(b"{}")));
        let read = read_request(body, None, "/v1/completions", &proxy.body_memory);
        let request = read_largest(&proxy).await;
        let sizes = [size_of_val(&read), size_of_val(&proxy.forward(request, &Access::default(), &mut None))];
        assert!(sizes[0] <= 2 * 1024 && sizes[1] <= 4 * 1024, "{sizes:?} bytes");
    }

    /// One slow engine must not occupy the memory for the requests of all pools.
    #[tokio::test(start_paused = true)]
    async fn body_is_released_while_the_engine_works() {
        let proxy = start(Duration::from_secs(3600)).await;
        let (access, mut record) = (Access::default(), None);
        let mut response = Box::pin(proxy.forward(read_largest(&proxy).await, &access, &mut record));
        assert!(timeout(RETRY_WINDOW - Duration::from_secs(1), &mut response).await.is_err());
        assert_eq!(proxy.body_memory.available_bytes(), 0, "the request may be retried");
        assert!(timeout(Duration::from_secs(2), &mut response).await.is_err());
        assert_eq!(proxy.body_memory.available_bytes(), BODY_BYTES);
    }

    #[rstest]
    #[case::early(9, Ok(200))]
    #[case::late(11, Err(502))]
    #[tokio::test(start_paused = true)]
    async fn early_failure_is_retried(#[case] failure_seconds: u64, #[case] expected: Result<u16, u16>) {
        let proxy = start(Duration::from_secs(failure_seconds)).await;
        let response = proxy.forward(read_largest(&proxy).await, &Access::default(), &mut None).await;
        let status = response.map(|response| response.status().as_u16()).map_err(|error| error.status.as_u16());
        assert_eq!(status, expected);
    }
}
