//! Debug pages of the metrics listener, for administrators: `ostler gateway trace` and `ostler explain` read them.
//!
//! They show addresses of Pods, and for a prompt which engines have computed it before. Therefore only clients on the loopback interface
//! may use them, on a connection to a loopback address: a process of the same host or Pod, or one that forwards a port with the permissions
//! of `kubectl port-forward`. The sidecar of a service mesh forwards requests of other Pods from a loopback address to the address of the
//! Pod. Nothing changes: a trace counts no request, records no prompt and draws no number from the generator of the process.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use cluster::NamespacedName;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body::Body;
use http_body_util::Full;
use http_server::{BodyLimits, BodyMemory, read_body};
use serde::Serialize;
use tokio::net::TcpStream;

use crate::{
    gateway::{Route, match_path},
    http_routes::RequestHead,
    openai_error::OpenAiError,
    request::{self, BODY_LIMITS, MAX_BODY_BYTES},
    request_trace::RequestTrace,
    scheduler::{AdmissionRequest, RequestedModel, Scheduler},
};

/// Start of the paths of all debug pages.
pub const DEBUG_PATH: &str = "/debug/";

/// Start of the path of a trace, before the path of the request to the gateway.
const TRACE_PATH: &str = "/debug/trace";

/// Start of the paths of the details of pools, before `NAMESPACE/NAME`.
const POOLS_PATH: &str = "/debug/pools/";

/// Limits of the body of a request to trace.
const TRACE_LIMITS: BodyLimits = BodyLimits { timeout: Duration::from_secs(30), ..BODY_LIMITS };

/// Responds to requests for debug pages.
pub struct DebugPages {
    scheduler: Arc<Scheduler>,
    /// Memory for the bodies of requests to trace.
    body_memory: BodyMemory,
}

/// Both ends of a connection to the metrics listener.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionAddresses {
    /// Address of the client.
    pub client: SocketAddr,
    /// Address that the client connected to.
    pub local: SocketAddr,
}

// === impl ConnectionAddresses ===

impl ConnectionAddresses {
    /// Returns the addresses of `stream`.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn of(stream: &TcpStream) -> io::Result<Self> {
        Ok(Self { client: stream.peer_addr()?, local: stream.local_addr()? })
    }

    fn are_loopback(&self) -> bool {
        [self.client, self.local].iter().all(|address| address.ip().to_canonical().is_loopback())
    }
}

// === impl DebugPages ===

impl DebugPages {
    /// Returns the endpoints of `scheduler`.
    pub fn new(scheduler: Arc<Scheduler>) -> Self {
        Self { scheduler, body_memory: BodyMemory::new(MAX_BODY_BYTES) }
    }

    /// Returns the response to a request on the connection with `addresses`.
    pub async fn respond<B>(&self, request: Request<B>, addresses: ConnectionAddresses) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
    {
        if !is_local(&request, addresses) {
            let message = "Debug pages respond to clients on the loopback interface only. Run `kubectl port-forward` \
                           to the Pod, and use http://localhost.";
            return error(&OpenAiError::forbidden(message));
        }
        if let Some(pool) = request.uri().path().strip_prefix(POOLS_PATH) {
            let details = pool
                .split_once('/')
                .and_then(|(namespace, name)| self.scheduler.pool_details(&NamespacedName::new(namespace, name)));
            return match details {
                Some(details) if request.method() == Method::GET => json(StatusCode::OK, &details),
                Some(_) => error(&OpenAiError::method_not_allowed("GET")),
                None => error(&OpenAiError::unknown_path(request.method(), request.uri().path())),
            };
        }
        let result = match request.uri().path().strip_prefix(TRACE_PATH) {
            Some(_) if request.method() != Method::POST => Err(OpenAiError::method_not_allowed("POST")),
            Some(_) => self.trace(request).await.map(|trace| json(StatusCode::OK, &trace)),
            None => Err(OpenAiError::unknown_path(request.method(), request.uri().path())),
        };
        result.unwrap_or_else(|failure| error(&failure))
    }

    /// Explains where the request in the body would be sent. The path after [`TRACE_PATH`] is the one of the gateway; in the query,
    /// `host` selects an HTTPRoute and `session` is the value of the session header.
    async fn trace<B>(&self, request: Request<B>) -> Result<RequestTrace, OpenAiError>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
    {
        let (head, body) = request.into_parts();
        let path = head.uri.path().strip_prefix(TRACE_PATH).unwrap_or_default();
        let Route::Inference { destination, path } = self.route(path, parameter(&head.uri, "host").as_deref()) else {
            return Err(OpenAiError::unknown_path(&head.method, path));
        };
        let body = read_body(body, TRACE_LIMITS, Some(self.body_memory.clone())).await?;
        let info = request::parse_request(&body.bytes)?;
        let model =
            info.model.as_ref().filter(|model| !model.name.is_empty()).ok_or_else(OpenAiError::missing_model)?;
        let session = parameter(&head.uri, "session");
        let mut rngs = self.scheduler.next_rngs();
        let pool = destination.draw_pool(|| rngs.fork())?;
        let admission = AdmissionRequest {
            pool: pool.as_ref(),
            model: RequestedModel::Name(&model.name),
            body: &body.bytes,
            info: &info,
            path: &path,
            flow: None,
            subset: None,
            session: session.as_deref().map(str::as_bytes).filter(|session| !session.is_empty()),
        };
        Ok(self.scheduler.trace(&admission, &mut rngs.fork())?)
    }

    /// Returns the route of a path of the gateway; with a host, HTTPRoutes apply.
    fn route(&self, path: &str, host: Option<&str>) -> Route {
        let snapshot = self.scheduler.snapshot();
        match_path(path, |path| {
            let (method, headers) = (&Method::POST, &http::HeaderMap::new());
            snapshot.routes.find(&RequestHead { authority: host?, path, query: "", method, headers })
        })
    }
}

/// Returns whether both ends of the connection have a loopback address, and `Host` names one. A web page that has its own name resolved to a
/// loopback address sends this name.
fn is_local<B>(request: &Request<B>, addresses: ConnectionAddresses) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = request.uri().authority().map(http::uri::Authority::as_str).or(host);
    let host = authority.and_then(|authority| authority.parse::<http::uri::Authority>().ok());
    let is_loopback_name = host.is_some_and(|host| {
        let name = host.host().trim_matches(['[', ']']);
        let address = name.parse::<std::net::IpAddr>();
        name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
    });
    is_loopback_name && addresses.are_loopback()
}

/// Returns the value of a parameter of the query.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let mut parameters = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    parameters.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Returns a response with a JSON body.
fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    // Values of this crate have string keys and no failing serializers.
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn error(error: &OpenAiError) -> Response<Full<Bytes>> {
    json(error.status, &error.body())
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use rstest::rstest;

    use super::*;
    use crate::{
        concurrency_limit::ConcurrencyLimit,
        endpoint::{Endpoint, tests::endpoint},
        endpoint_health::RequestOutcome,
        engine_metrics::EngineMetrics,
        peers::{EndpointLoad, FairShare},
        policy::SchedulingPolicy,
        request_trace::{TraceEndpoint, TraceExclusion, TraceOutcome},
        snapshot::Pool,
        use_case::{TargetModel, UseCase},
    };

    const LOOPBACK: &str = "127.0.0.1:40000";

    /// Address of the metrics listener for `kubectl port-forward`.
    const LISTENER: &str = "127.0.0.1:9466";

    /// Returns a gateway with a pool of `count` endpoints and the use case `chat`, of which every second request is for each target.
    fn scheduler(count: u8) -> Arc<Scheduler> {
        let scheduler = Scheduler::new(SchedulingPolicy::default(), 3).with_default_namespace("ns".to_owned());
        let endpoints: Vec<Arc<Endpoint>> = (1..=count).map(|number| Arc::new(endpoint(number))).collect();
        // The tests report metrics themselves.
        for endpoint in &endpoints {
            endpoint.state.begin_scraping();
        }
        let target = |model: &str| TargetModel { model: model.to_owned(), weight: 1 };
        let use_case = UseCase {
            targets: vec![target("old"), target("new")],
            declared_by: "LLMUseCase ns/chat".to_owned(),
            ..UseCase::implicit("chat")
        };
        let pool = Pool {
            use_cases: [("chat".to_owned(), use_case)].into(),
            ..Pool::new(NamespacedName::new("ns", "p"), scheduler.default_scheduling(), endpoints)
        };
        scheduler.replace(vec![pool]);
        Arc::new(scheduler)
    }

    async fn respond(scheduler: &Arc<Scheduler>, request: Request<String>) -> (u16, serde_json::Value) {
        respond_to(scheduler, request, LOOPBACK, LISTENER).await
    }

    async fn respond_to(
        scheduler: &Arc<Scheduler>,
        request: Request<String>,
        client: &str,
        local: &str,
    ) -> (u16, serde_json::Value) {
        let debug = DebugPages::new(Arc::clone(scheduler));
        let addresses = ConnectionAddresses { client: client.parse().unwrap(), local: local.parse().unwrap() };
        let response = debug.respond(request.map(Full::<Bytes>::from), addresses).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    fn trace_request(path: &str, body: &str) -> Request<String> {
        Request::post(format!("/debug/trace{path}")).header("host", "localhost:9466").body(body.to_owned()).unwrap()
    }

    fn body(prompt: &str) -> String {
        serde_json::json!({"model": "chat", "prompt": prompt}).to_string()
    }

    async fn trace(scheduler: &Arc<Scheduler>, prompt: &str) -> RequestTrace {
        let (status, trace) = respond(scheduler, trace_request("/v1/completions", &body(prompt))).await;
        assert_eq!(status, 200, "{trace}");
        serde_json::from_value(trace).unwrap()
    }

    /// Admits the request of [`trace`].
    async fn admit(scheduler: &Scheduler, prompt: &str) -> crate::scheduler::Permit {
        admit_to(scheduler, "/v1/completions", prompt).await
    }

    async fn admit_to(scheduler: &Scheduler, path: &str, prompt: &str) -> crate::scheduler::Permit {
        let body = body(prompt);
        let info = request::parse_request(body.as_bytes()).unwrap();
        let request = AdmissionRequest {
            pool: None,
            model: RequestedModel::Name("chat"),
            body: body.as_bytes(),
            info: &info,
            path,
            flow: None,
            subset: None,
            session: None,
        };
        scheduler.admit(&request).await.unwrap()
    }

    /// Of 200 requests in any state of the endpoints, each is sent where its trace shows, to an endpoint with the least cost within the
    /// tolerance, with the target of the trace. Traces do not influence this.
    #[tokio::test(start_paused = true)]
    async fn trace_shows_the_endpoint_of_the_next_request() {
        let (traced, untraced) = (scheduler(5), scheduler(5));
        let (mut in_flight, mut selected_count) = (Vec::new(), 0);
        let mut changes = fastrand::Rng::with_seed(1);
        for number in 0..200_u32 {
            let prompt = format!("{}{}", "p".repeat(changes.usize(..8) * 700), if changes.bool() { "x" } else { "y" });
            let (endpoint, other) = (changes.usize(..5), f64::from(changes.u8(..4)));
            for scheduler in [&traced, &untraced] {
                let pool = scheduler.snapshot().pools.values().next().cloned().unwrap();
                let metrics =
                    EngineMetrics { waiting: Some(other), running: Some(3.0 * other), ..EngineMetrics::default() };
                pool.ready_endpoints[endpoint].state.record_metrics(metrics, tokio::time::Instant::now());
            }
            let explained = trace(&traced, &prompt).await;
            assert_eq!(trace(&traced, &prompt).await, explained, "a trace changes nothing");
            if explained.outcome == TraceOutcome::Queued {
                assert!(explained.endpoints.iter().all(|endpoint| endpoint.excluded == Some(TraceExclusion::Busy)));
                in_flight.clear();
                continue;
            }
            selected_count += 1;
            let permits = [admit(&traced, &prompt).await, admit(&untraced, &prompt).await];
            for permit in &permits {
                let selected = permit.selection.result.endpoint.address;
                assert_eq!(
                    (explained.outcome, explained.selected),
                    (TraceOutcome::Selected, Some(selected)),
                    "{number}"
                );
                assert_eq!(explained.target_model, permit.route.target_model);
            }
            let candidates = || explained.endpoints.iter().filter(|endpoint| endpoint.excluded.is_none());
            let costs = |endpoint: &TraceEndpoint| endpoint.cost.unwrap().total;
            let least = candidates().map(costs).fold(f64::INFINITY, f64::min);
            let selected = candidates().find(|endpoint| Some(endpoint.address) == explained.selected);
            assert!(costs(selected.unwrap()) < least + 64.0 && least == costs(&explained.endpoints[0]));
            in_flight.push(permits);
            if changes.bool() {
                drop(in_flight.swap_remove(changes.usize(..in_flight.len())));
            }
        }
        assert!(selected_count > 100, "{selected_count}");
    }

    /// An engine computes no prompt that it only tokenizes.
    #[rstest]
    #[case::completion("/v1/completions", true)]
    #[case::tokenize("/tokenize", false)]
    #[case::detokenize("/detokenize", false)]
    #[tokio::test(start_paused = true)]
    async fn only_computed_prompts_count_as_cached(#[case] path: &str, #[case] is_cached: bool) {
        let (scheduler, prompt) = (scheduler(1), "p".repeat(4_000));
        let uncached = async || trace(&scheduler, &prompt).await.endpoints[0].cost.unwrap().uncached_prompt;
        let before = uncached().await;
        // Each target is drawn.
        for _ in 0..20 {
            drop(admit_to(&scheduler, path, &prompt).await);
        }
        assert_eq!(uncached().await < before, is_cached);
        let (status, explained) = respond(&scheduler, trace_request(path, &body(&prompt))).await;
        assert_eq!((status, &explained["outcome"]), (200, &"Selected".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn endpoints_that_are_not_selected_show_the_reason() {
        let scheduler = scheduler(4);
        let pool = scheduler.snapshot().pools.values().next().cloned().unwrap();
        let [first, second, third, _] = &pool.ready_endpoints[..] else { panic!() };
        let now = tokio::time::Instant::now();
        first.state.health.record_outcome(RequestOutcome::NotConnected, 0, now);
        second.state.health.record_sleep(true, now);
        third.state.record_unreachable(true);
        let explained = trace(&scheduler, "hello").await;
        let reasons: Vec<_> =
            explained.endpoints.iter().map(|endpoint| (endpoint.pod.as_str(), endpoint.excluded)).collect();
        let excluded = [TraceExclusion::Ejected, TraceExclusion::Asleep, TraceExclusion::Unreachable].map(Some);
        let expected = [("pod-4", None), ("pod-1", excluded[0]), ("pod-2", excluded[1]), ("pod-3", excluded[2])];
        assert_eq!(reasons, expected);
        assert_eq!(explained.selected, Some("10.0.0.4:8000".parse().unwrap()));
        assert!(explained.endpoints.iter().all(|endpoint| endpoint.requests == 0));
    }

    /// Requests, their shares and what was shed are shown by flow; endpoints with their health and limits.
    #[tokio::test(start_paused = true)]
    async fn details_of_a_pool_show_shares_and_health() {
        let scheduler = scheduler(2);
        let pool = scheduler.snapshot().pools.values().next().cloned().unwrap();
        let now = tokio::time::Instant::now();
        pool.ready_endpoints[0].state.health.record_outcome(RequestOutcome::NotConnected, 0, now);
        drop([admit(&scheduler, "hello").await, admit(&scheduler, "hello").await]);
        pool.usage.record_admission("other", -10, 60, now);
        let error = crate::routing_error::RoutingError::QueueTimeout(pool.key.clone());
        pool.usage.record_rejection("chat", -10, &error, now);
        let request = Request::get("/debug/pools/ns/p").header("host", "localhost").body(String::new()).unwrap();
        let (status, details) = respond(&scheduler, request).await;
        assert_eq!(status, 200);
        let details: crate::PoolDetails = serde_json::from_value(details).unwrap();
        let flows: Vec<_> = details.flows.iter().map(|flow| (flow.name.as_str(), flow.requests, flow.tokens)).collect();
        assert_eq!(flows, [("chat", 2, 130), ("other", 1, 60)]);
        assert!((details.flows[0].share - 130.0 / 190.0).abs() < 1e-9);
        assert_eq!(details.flows[0].use_case.as_deref(), Some("LLMUseCase ns/chat"));
        assert_eq!(details.flows[0].rejected, [("QueueTimeout".to_owned(), 1)].into());
        let health = details.endpoints.iter().map(|endpoint| (endpoint.ejected_seconds, endpoint.consecutive_failures));
        assert_eq!(health.collect::<Vec<_>>(), [(Some(1.0), 1), (None, 0)]);
        let missing = Request::get("/debug/pools/ns/q").header("host", "localhost").body(String::new()).unwrap();
        assert_eq!(respond(&scheduler, missing).await.0, 404);
    }

    /// The requests in flight and their limit are those of all replicas.
    #[tokio::test(start_paused = true)]
    async fn requests_of_peers_count_toward_the_limit() {
        let scheduler = scheduler(1);
        let pool = scheduler.snapshot().pools.values().next().cloned().unwrap();
        let state = &pool.ready_endpoints[0].state;
        state.assume_limit(ConcurrencyLimit::new(8));
        state.record_peers(EndpointLoad { requests: 5, ..EndpointLoad::default() }, FairShare::default(), false);
        let _permits = [admit(&scheduler, "hello").await, admit(&scheduler, "hello").await];
        let details = scheduler.pool_details(&pool.key).unwrap();
        assert_eq!((details.endpoints[0].requests, details.endpoints[0].request_limit), (7, Some(8)));
        let explained = trace(&scheduler, "hello").await;
        assert_eq!((explained.endpoints[0].requests, explained.endpoints[0].request_limit), (7, Some(8)));
    }

    /// Endpoints beyond the maximum of the list are ready nevertheless.
    #[tokio::test(start_paused = true)]
    async fn details_of_a_large_pool_count_unready_endpoints() {
        let scheduler = scheduler(1);
        let pool = scheduler.snapshot().pools.values().next().cloned().unwrap();
        let endpoints = vec![Arc::clone(&pool.ready_endpoints[0]); 1_200];
        scheduler.replace(vec![pool.with_endpoints(endpoints, 1_203)]);
        let details = scheduler.pool_details(&pool.key).unwrap();
        let counts = (details.endpoint_count, details.unready_endpoints, details.endpoints.len());
        assert_eq!(counts, (1_203, 3, 1_000));
    }

    #[rstest]
    #[case::other_host("10.0.0.9:40000", "10.0.0.1:9466", "localhost:9466", 403)]
    #[case::mapped("[::ffff:10.0.0.9]:40000", "[::ffff:10.0.0.1]:9466", "localhost", 403)]
    #[case::sidecar("127.0.0.6:40000", "10.0.0.1:9466", "localhost", 403)]
    #[case::mapped_sidecar("[::ffff:127.0.0.6]:40000", "[::ffff:10.0.0.1]:9466", "localhost", 403)]
    #[case::ipv6_sidecar("[::1]:40000", "[fd00::1]:9466", "localhost", 403)]
    #[case::rebound_name(LOOPBACK, LISTENER, "attacker.example", 403)]
    #[case::name_with_loopback_prefix(LOOPBACK, LISTENER, "127.0.0.1.attacker.example", 403)]
    #[case::port_forward(LOOPBACK, LISTENER, "localhost:9466", 200)]
    #[case::ipv6("[::1]:40000", "[::1]:9466", "[::1]:9466", 200)]
    #[case::mapped_loopback("[::ffff:127.0.0.1]:40000", "[::ffff:127.0.0.1]:9466", "127.0.0.1", 200)]
    #[tokio::test]
    async fn only_local_clients_may_trace(
        #[case] client: &str,
        #[case] local: &str,
        #[case] host: &str,
        #[case] expect: u16,
    ) {
        let mut request = trace_request("/v1/completions", &body("hello"));
        request.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(respond_to(&scheduler(1), request, client, local).await.0, expect);
    }

    #[rstest]
    #[case::unknown_path("/v1/other", r#"{"model":"chat"}"#, 404, "Unknown request URL")]
    #[case::development_path("/sleep", r#"{"model":"chat"}"#, 404, "Unknown request URL")]
    #[case::tokenizer_without_model("/tokenize", r#"{"prompt":"x"}"#, 400, "You must provide a model parameter.")]
    #[case::unknown_model("/v1/completions", r#"{"model":"other"}"#, 404, "The model `other` does not exist.")]
    #[case::unknown_pool("/ns/q/v1/completions", r#"{"model":"chat"}"#, 404, "The pool ns/q does not exist.")]
    #[case::no_json("/v1/completions", "hello", 400, "not a JSON object")]
    #[case::no_model("/v1/completions", "{}", 400, "You must provide a model parameter.")]
    #[tokio::test]
    async fn invalid_requests_get_the_error_of_the_gateway(
        #[case] path: &str,
        #[case] body: &str,
        #[case] status: u16,
        #[case] message: &str,
    ) {
        let (actual, error) = respond(&scheduler(1), trace_request(path, body)).await;
        assert_eq!(actual, status);
        assert!(error["error"]["message"].as_str().unwrap().contains(message), "{error}");
    }
}
