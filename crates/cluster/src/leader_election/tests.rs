//! Candidates of one Lease on a fake API server, with paused time. Every request passes through a network that delays and
//! loses requests and responses.

use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

/// What happens to one request. `None` means that it is lost.
#[derive(Clone, Copy)]
struct Delays {
    /// Time until there is a connection: the request is sent afterwards.
    connect: Duration,
    /// Time from sending to processing.
    request: Option<Duration>,
    /// Time from processing to the response.
    response: Option<Duration>,
}

/// Chooses the delays of each request.
type Network = Arc<dyn Fn(&Request<Body>) -> Delays + Send + Sync>;

/// API server with one Lease, and a log of what the candidates did.
#[derive(Clone, Default)]
struct FakeApi(Arc<Mutex<ApiState>>);

#[derive(Default)]
struct ApiState {
    lease: Option<Value>,
    version: u64,
    log: Log,
}

/// What the candidates did.
#[derive(Clone, Default)]
struct Log {
    /// Candidate and time of each write other than of the Lease, when it was sent.
    writes: Vec<(String, Instant)>,
    /// Candidate, start and end of the work in each term.
    terms: Vec<(String, Instant, Instant)>,
}

/// Records the work of one term from creation to drop.
struct RecordedTerm {
    api: FakeApi,
    candidate: String,
    start: Instant,
}

/// Wall clock that can be set.
#[derive(Default)]
struct AdjustableClock {
    /// Offset to the monotonic clock in seconds.
    offset: AtomicI64,
    is_stopped: AtomicBool,
}

// === impl Delays ===

impl Delays {
    const NONE: Delays =
        Delays { connect: Duration::ZERO, request: Some(Duration::ZERO), response: Some(Duration::ZERO) };
    const LOST_REQUEST: Delays = Delays { request: None, ..Delays::NONE };
    const LOST_RESPONSE: Delays = Delays { response: None, ..Delays::NONE };
}

// === impl FakeApi ===

impl FakeApi {
    fn state(&self) -> std::sync::MutexGuard<'_, ApiState> {
        self.0.lock().unwrap()
    }

    fn holder(&self) -> String {
        let lease = self.state().lease.clone().unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    fn terms_of(&self, candidate: &str) -> usize {
        self.state().log.terms.iter().filter(|(name, ..)| name == candidate).count()
    }

    fn writes_of(&self, candidate: &str) -> Vec<Instant> {
        let log = self.state().log.clone();
        log.writes.into_iter().filter(|(name, _)| name == candidate).map(|(_, time)| time).collect()
    }

    /// Returns a client whose requests pass through `network`.
    fn client(&self, candidate: &str, network: Network) -> Client {
        let (api, candidate) = (self.clone(), candidate.to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (api, candidate, delays) = (api.clone(), candidate.clone(), network(&request));
            async move {
                sleep(delays.connect).await;
                if request.method() == Method::PATCH {
                    api.state().log.writes.push((candidate, Instant::now()));
                }
                // Once it is sent, a request is processed even if the client does not wait for the response.
                let (sender, receiver) = oneshot::channel();
                tokio::spawn(async move {
                    let Some(delay) = delays.request else { return };
                    sleep(delay).await;
                    let response = api.process(request).await;
                    if let Some(delay) = delays.response {
                        sleep(delay).await;
                        sender.send(response).ok();
                    }
                });
                match receiver.await {
                    Ok(response) => Ok::<_, kube::Error>(response),
                    Err(_) => std::future::pending().await,
                }
            }
        });
        Client::new(service, "n")
    }

    async fn process(&self, request: Request<Body>) -> Response<Full<Bytes>> {
        let method = request.method().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (code, response) = self.state().process(&method, body);
        let reason = if code == 404 { "NotFound" } else { "Conflict" };
        let failure = json!({"kind": "Status", "message": "no", "reason": reason, "code": code});
        let response = if code == 200 { response } else { failure };
        Response::builder().status(code).body(Full::new(Bytes::from(response.to_string()))).unwrap()
    }

    /// Starts a candidate that writes continuously while it leads. A task that outlives the work goes on writing.
    fn start(
        &self,
        tasks: &mut JoinSet<()>,
        candidate: &'static str,
        clock: Arc<AdjustableClock>,
        network: Network,
    ) -> CancellationToken {
        let shutdown = CancellationToken::new();
        let elector = self.elector(candidate, clock, network);
        let (api, stop) = (self.clone(), shutdown.clone());
        tasks.spawn(async move {
            let work = |client: Client| {
                let term = api.record_term(candidate);
                tokio::spawn(timeout(Duration::from_secs(60), write_continuously(client.clone())));
                let stop = stop.clone();
                async move {
                    stop.run_until_cancelled(write_continuously(client)).await;
                    drop(term);
                }
            };
            elector.run(stop.clone(), work).await;
        });
        shutdown
    }

    fn elector(&self, candidate: &str, clock: Arc<AdjustableClock>, network: Network) -> LeaderElector {
        LeaderElector {
            client: self.client(candidate, network),
            clock,
            namespace: "n".to_owned(),
            name: "lease".to_owned(),
            identity: candidate.to_owned(),
            timings: LeaderElectionTimings::default(),
            on_lease_read: Arc::new(|| {}),
        }
    }

    fn record_term(&self, candidate: &str) -> RecordedTerm {
        RecordedTerm { api: self.clone(), candidate: candidate.to_owned(), start: Instant::now() }
    }
}

impl Drop for RecordedTerm {
    fn drop(&mut self) {
        let term = (self.candidate.clone(), self.start, Instant::now());
        self.api.state().log.terms.push(term);
    }
}

// === impl ApiState ===

impl ApiState {
    /// Processes a request for the Lease with optimistic concurrency, or any other write.
    fn process(&mut self, method: &Method, body: Value) -> (u16, Value) {
        match (method, &self.lease) {
            (&Method::PATCH, _) => (200, body),
            (&Method::GET, None) => (404, Value::Null),
            (&Method::GET, Some(lease)) => (200, lease.clone()),
            (&Method::PUT, Some(lease))
                if lease["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"] =>
            {
                // A write without changes creates no version.
                if lease["spec"] == body["spec"] { (200, lease.clone()) } else { (200, self.store(body)) }
            }
            (&Method::POST, None) => (200, self.store(body)),
            _ => (409, Value::Null),
        }
    }

    fn store(&mut self, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        lease
    }
}

// === impl Log ===

impl Log {
    /// Asserts that terms do not overlap and that every write was sent in a term of its candidate.
    fn assert_exclusive(mut self) {
        self.terms.sort_by_key(|(_, start, _)| *start);
        for pair in self.terms.windows(2) {
            assert!(pair[0].2 <= pair[1].1, "the terms of {} and {} overlap", pair[0].0, pair[1].0);
        }
        for (candidate, time) in &self.writes {
            let is_in_term =
                |(name, start, end): &(String, Instant, Instant)| name == candidate && start <= time && time <= end;
            assert!(self.terms.iter().any(is_in_term), "{candidate} wrote outside of its terms");
        }
    }
}

// === impl AdjustableClock ===

impl Clock for AdjustableClock {
    fn now(&self) -> Timestamp {
        let origin = Timestamp::from_second(1_800_000_000).unwrap();
        let elapsed = if self.is_stopped.load(Ordering::Relaxed) { 0 } else { elapsed_seconds() };
        origin + SignedDuration::from_secs(elapsed + self.offset.load(Ordering::Relaxed))
    }
}

/// Returns the paused time.
fn elapsed_seconds() -> i64 {
    thread_local! { static START: Instant = Instant::now(); }
    i64::try_from(START.with(Instant::elapsed).as_secs()).unwrap()
}

fn healthy() -> Network {
    Arc::new(|_: &Request<Body>| Delays::NONE)
}

/// Returns a network that treats the writes of the Lease like `delays` while `is_faulty` is set.
fn faulty_lease_writes(is_faulty: &Arc<AtomicBool>, delays: Delays) -> Network {
    let is_faulty = Arc::clone(is_faulty);
    Arc::new(move |request: &Request<Body>| {
        let is_lease_write = matches!(*request.method(), Method::PUT | Method::POST);
        if is_lease_write && is_faulty.load(Ordering::Relaxed) { delays } else { Delays::NONE }
    })
}

async fn write(client: &Client) -> Result<DynamicObject, kube::Error> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}});
    CONFIG_MAP.api(client.clone(), "n").patch("c", &PatchParams::apply("us"), &Patch::Apply(object)).await
}

async fn write_continuously(client: Client) {
    loop {
        write(&client).await.ok();
        sleep(Duration::from_millis(100)).await;
    }
}

async fn wait_until(description: &str, condition: impl Fn() -> bool) {
    let result = timeout(Duration::from_secs(300), async {
        while !condition() {
            sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(result.await.is_ok(), "timed out waiting for {description}");
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The leader loses its connection while the other candidate does not.
#[tokio::test(start_paused = true)]
async fn disconnected_leader_stops_before_the_next_one_starts() {
    let (api, mut tasks, is_faulty) = (FakeApi::default(), JoinSet::new(), Arc::new(AtomicBool::new(false)));
    api.start(&mut tasks, "a", Arc::default(), faulty_lease_writes(&is_faulty, Delays::LOST_REQUEST));
    wait_until("the first leader", || api.holder() == "a").await;
    api.start(&mut tasks, "b", Arc::default(), healthy());
    sleep(seconds(60)).await;
    assert_eq!(api.terms_of("a"), 0, "the first term has not ended");
    is_faulty.store(true, Ordering::Relaxed);
    wait_until("the second leader", || api.holder() == "b").await;
    sleep(seconds(60)).await;
    let last_write = api.writes_of("a").into_iter().max().unwrap();
    let first_write = api.writes_of("b").into_iter().min().unwrap();
    // The difference of lease duration and renew deadline; the leader writes every 0.1 s.
    assert!(first_write - last_write >= seconds(5), "{:?}", first_write - last_write);
    tasks.shutdown().await;
    api.state().log.clone().assert_exclusive();
}

/// A write that waits for a connection when the term ends is not sent afterwards.
#[tokio::test(start_paused = true)]
async fn write_that_begins_in_a_term_is_not_sent_after_it() {
    let (api, is_faulty) = (FakeApi::default(), Arc::new(AtomicBool::new(false)));
    let slow = Arc::clone(&is_faulty);
    let network: Network = Arc::new(move |request: &Request<Body>| match *request.method() {
        Method::PATCH => Delays { connect: seconds(11), ..Delays::NONE },
        _ if slow.load(Ordering::Relaxed) => Delays::LOST_REQUEST,
        _ => Delays::NONE,
    });
    let elector = api.elector("a", Arc::default(), network);
    let result = Mutex::new(None);
    let work = |client: Client| {
        is_faulty.store(true, Ordering::Relaxed);
        let result = &result;
        async move {
            // The work waits in another task, so it is not dropped with the term.
            let error = tokio::spawn(async move { write(&client).await }).await.unwrap().unwrap_err();
            *result.lock().unwrap() = Some(error.to_string());
            std::future::pending::<()>().await;
        }
    };
    tokio::time::timeout(seconds(30), elector.run(CancellationToken::new(), work)).await.unwrap_err();
    assert!(api.writes_of("a").is_empty());
}

/// A renewal may be answered late: the term begins when the request was sent.
#[tokio::test(start_paused = true)]
async fn term_begins_when_the_renewal_is_sent() {
    let api = FakeApi::default();
    let slow = Delays { response: Some(seconds(4)), ..Delays::NONE };
    let elector = api.elector("a", Arc::default(), faulty_lease_writes(&Arc::new(AtomicBool::new(true)), slow));
    let start = Instant::now();
    let term = elector.acquire(&mut ObservedLease::default(), &CancellationToken::new()).await.unwrap();
    assert_eq!(Instant::now(), start + seconds(4));
    term.ended().await;
    assert_eq!(Instant::now(), start + seconds(10));
}

#[tokio::test(start_paused = true)]
async fn lost_response_does_not_end_the_term() {
    let (api, mut tasks, is_faulty) = (FakeApi::default(), JoinSet::new(), Arc::new(AtomicBool::new(false)));
    api.start(&mut tasks, "a", Arc::default(), faulty_lease_writes(&is_faulty, Delays::LOST_RESPONSE));
    wait_until("the leader", || api.holder() == "a").await;
    for _ in 0..10 {
        // One renewal is lost; the retry succeeds.
        is_faulty.store(true, Ordering::Relaxed);
        sleep(seconds(3)).await;
        is_faulty.store(false, Ordering::Relaxed);
        sleep(seconds(20)).await;
    }
    assert_eq!(api.terms_of("a"), 0);
}

/// A candidate whose clock is set forward does not acquire the Lease early; a leader whose clock is set back or stopped
/// stops in time, and continues to renew the Lease.
#[tokio::test(start_paused = true)]
async fn wall_clock_has_no_influence() {
    let (api, mut tasks, is_faulty) = (FakeApi::default(), JoinSet::new(), Arc::new(AtomicBool::new(false)));
    let clocks = [Arc::new(AdjustableClock::default()), Arc::new(AdjustableClock::default())];
    let network = faulty_lease_writes(&is_faulty, Delays::LOST_REQUEST);
    api.start(&mut tasks, "a", Arc::clone(&clocks[0]), network);
    wait_until("the first leader", || api.holder() == "a").await;
    api.start(&mut tasks, "b", Arc::clone(&clocks[1]), healthy());
    for (leader, candidate) in [(0, 3600), (-3600, 3600), (3600, -3600)] {
        clocks[0].offset.store(leader, Ordering::Relaxed);
        clocks[1].offset.store(candidate, Ordering::Relaxed);
        sleep(seconds(30)).await;
        assert_eq!((api.holder().as_str(), api.terms_of("a")), ("a", 0));
    }
    clocks[0].is_stopped.store(true, Ordering::Relaxed);
    sleep(seconds(60)).await;
    assert_eq!((api.holder().as_str(), api.terms_of("a")), ("a", 0), "a stopped clock does not prevent renewals");
    is_faulty.store(true, Ordering::Relaxed);
    clocks[0].offset.store(-7200, Ordering::Relaxed);
    wait_until("the second leader", || api.holder() == "b").await;
    tasks.shutdown().await;
    api.state().log.clone().assert_exclusive();
}

/// The work may take long after the shutdown: no other candidate leads until it is complete, then the Lease is free.
#[tokio::test(start_paused = true)]
async fn releases_the_lease_after_the_work() {
    let api = FakeApi::default();
    let elector = api.elector("a", Arc::default(), healthy());
    let shutdown = CancellationToken::new();
    let work = |client: Client| {
        let (api, shutdown) = (&api, shutdown.clone());
        async move {
            shutdown.cancel();
            sleep(seconds(60)).await;
            assert_eq!(api.holder(), "a");
            write(&client).await.unwrap();
        }
    };
    let start = Instant::now();
    elector.run(shutdown.clone(), work).await.unwrap();
    assert_eq!((api.holder().as_str(), start.elapsed()), ("", seconds(60)));
}

/// The API server may process a write that it has not answered, so the next leader must wait.
#[tokio::test(start_paused = true)]
async fn retains_the_lease_if_a_write_was_not_answered() {
    let api = FakeApi::default();
    let network: Network = Arc::new(|request: &Request<Body>| match *request.method() {
        Method::PATCH => Delays::LOST_RESPONSE,
        _ => Delays::NONE,
    });
    let work = |client: Client| async move { timeout(seconds(1), write(&client)).await.is_err() };
    let elector = api.elector("a", Arc::default(), network);
    assert_eq!(elector.run(CancellationToken::new(), work).await, Some(true));
    assert_eq!(api.holder(), "a");
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_server_that_does_not_respond() {
    let (api, is_faulty) = (FakeApi::default(), Arc::new(AtomicBool::new(false)));
    let faulty = Arc::clone(&is_faulty);
    let network: Network = Arc::new(move |_: &Request<Body>| match faulty.load(Ordering::Relaxed) {
        true => Delays::LOST_REQUEST,
        false => Delays::NONE,
    });
    let elector = api.elector("a", Arc::default(), network.clone());
    let start = Instant::now();
    let work = |_| async { is_faulty.store(true, Ordering::Relaxed) };
    elector.run(CancellationToken::new(), work).await.unwrap();
    assert_eq!(start.elapsed(), RELEASE_TIMEOUT);
    // The same holds for a candidate that does not lead.
    let shutdown = CancellationToken::new();
    let elector = api.elector("b", Arc::default(), network);
    let mut run = pin!(elector.run(shutdown.clone(), |_| async {}));
    assert!(timeout(seconds(1), &mut run).await.is_err());
    shutdown.cancel();
    assert_eq!(timeout(seconds(5), run).await.unwrap(), None);
}

/// The work of a former leader fails, whichever task it runs in, and a dropped elector does not renew the Lease.
#[tokio::test(start_paused = true)]
async fn dropped_elector_ends_its_term() {
    let (api, mut tasks) = (FakeApi::default(), JoinSet::new());
    api.start(&mut tasks, "a", Arc::default(), healthy());
    wait_until("the first leader", || api.holder() == "a").await;
    tasks.shutdown().await;
    let mut tasks = JoinSet::new();
    api.start(&mut tasks, "b", Arc::default(), healthy());
    wait_until("the second leader", || api.holder() == "b").await;
    tasks.shutdown().await;
    api.state().log.clone().assert_exclusive();
}

/// Three candidates with random delays, losses and clock steps: terms never overlap.
#[tokio::test(start_paused = true)]
async fn terms_never_overlap() {
    let (mut terms, mut leaders) = (0, std::collections::BTreeSet::new());
    for seed in 0..40 {
        let (api, mut tasks) = (FakeApi::default(), JoinSet::new());
        let mut random = fastrand::Rng::with_seed(seed);
        let clocks: Vec<Arc<AdjustableClock>> = (0..3).map(|_| Arc::default()).collect();
        for (candidate, clock) in ["a", "b", "c"].into_iter().zip(&clocks) {
            api.start(&mut tasks, candidate, Arc::clone(clock), random_network(random.fork()));
        }
        for _ in 0..20 {
            sleep(seconds(random.u64(1..20))).await;
            let clock = &clocks[random.usize(..3)];
            clock.offset.store(random.i64(-7200..7200), Ordering::Relaxed);
            clock.is_stopped.store(random.u8(..4) == 0, Ordering::Relaxed);
        }
        tasks.shutdown().await;
        // Requests that were sent are still processed.
        sleep(seconds(120)).await;
        let log = api.state().log.clone();
        terms += log.terms.len();
        leaders.extend(log.terms.iter().map(|(candidate, ..)| (seed, candidate.clone())));
        log.assert_exclusive();
    }
    assert!(terms > 120 && leaders.len() > 80, "{terms} terms of {} leaders", leaders.len());
}

/// Returns a network that is alternately healthy and faulty.
fn random_network(random: fastrand::Rng) -> Network {
    let random = Mutex::new(random);
    let phase = Mutex::new((Instant::now(), false));
    Arc::new(move |_: &Request<Body>| {
        let (mut random, mut phase) = (random.lock().unwrap(), phase.lock().unwrap());
        if Instant::now() >= phase.0 {
            *phase = (Instant::now() + seconds(random.u64(1..40)), !phase.1);
        }
        let mut delay = |max: u64| Duration::from_millis(random.u64(..max));
        let faulty = Delays { connect: delay(12_000), request: Some(delay(20_000)), response: Some(delay(8_000)) };
        let healthy = Delays { connect: delay(20), request: Some(delay(20)), response: Some(delay(20)) };
        match (phase.1, random.u8(..10)) {
            (false, _) => healthy,
            (true, 0) => Delays::LOST_REQUEST,
            (true, 1 | 2) => Delays::LOST_RESPONSE,
            (true, 3..6) => healthy,
            (true, _) => faulty,
        }
    })
}
