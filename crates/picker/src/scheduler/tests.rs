mod interruptions;
mod pool_queues;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cluster::NamespacedName;
use futures::FutureExt as _;
use http::StatusCode;
use rstest::rstest;

use super::{test_request::admit_prompt, *};
use crate::{
    endpoint::{PromptTokenRange, tests::endpoint},
    endpoint_health::RequestOutcome,
    engine_metrics::EngineMetrics,
    flow_headers::FlowHeaders,
    request, snapshot,
    use_case::{NONCRITICAL, TargetModel, UseCase},
};

/// Returns a scheduler with a pool of `endpoints` and the default policy. Tests record the metrics of the endpoints.
fn scheduler_of(endpoints: Vec<Arc<Endpoint>>) -> Scheduler {
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1).with_default_namespace("ns".to_owned());
    endpoints.iter().for_each(|endpoint| assert!(endpoint.state.begin_scraping()));
    let key = NamespacedName { namespace: "ns".to_owned(), name: "p".to_owned() };
    let scheduling = scheduler.default_scheduling();
    scheduler.replace(vec![Pool { allows_implicit_use_cases: true, ..Pool::new(key, scheduling, endpoints) }]);
    scheduler
}

/// Returns a scheduler with a pool of one endpoint for prompts up to 2047 tokens, and one for prompts from 4097 tokens.
fn scheduler() -> Scheduler {
    let endpoint =
        |number, min, max| Arc::new(Endpoint { prompt_tokens: PromptTokenRange { min, max }, ..endpoint(number) });
    scheduler_of(vec![endpoint(1, None, Some(2047)), endpoint(2, Some(4097), None)])
}

fn only_pool(scheduler: &Scheduler) -> Arc<Pool> {
    scheduler.snapshot().pools.values().next().cloned().unwrap()
}

/// Admits a request with a prompt of `tokens`, which does not wait.
fn admit(scheduler: &Scheduler, tokens: usize) -> Result<Permit, RoutingError> {
    admit_model(scheduler, "m", tokens).now_or_never().expect("the request does not wait")
}

/// Admits a request for `model` with a prompt of `tokens`.
async fn admit_model(scheduler: &Scheduler, model: &str, tokens: usize) -> Result<Permit, RoutingError> {
    let prompt = "x".repeat(tokens * request::BYTES_PER_TOKEN - 2);
    admit_prompt(scheduler, model, &prompt, None).await
}

fn pod(permit: &Permit) -> &str {
    &permit.selection.result.endpoint.pod
}

#[rstest]
#[case::short(10, "pod-1", "pod-1")]
#[case::upper_bound(2047, "pod-1", "pod-1")]
#[case::no_match_uses_load(2048, "pod-1", "pod-2")]
#[case::no_match_uses_load_of_other_endpoint(4096, "pod-2", "pod-1")]
#[case::lower_bound(4097, "pod-2", "pod-2")]
#[case::long(100_000, "pod-2", "pod-2")]
fn prompts_are_routed_by_size_then_load(#[case] tokens: usize, #[case] busy: &str, #[case] expect: &str) {
    let scheduler = scheduler();
    let pool = only_pool(&scheduler);
    let busy = pool.ready_endpoints.iter().find(|endpoint| endpoint.pod == busy).unwrap();
    let _busy = busy.state.begin(1_000_000);
    assert_eq!(pod(&admit(&scheduler, tokens).unwrap()), expect);
}

#[tokio::test(start_paused = true)]
async fn failed_request_moves_to_an_untried_endpoint() {
    let scheduler = scheduler();
    let mut permit = admit(&scheduler, 10).unwrap();
    let pool = only_pool(&scheduler);
    let requests = || pool.ready_endpoints.iter().map(|endpoint| endpoint.state.requests()).collect::<Vec<_>>();
    assert_eq!((pod(&permit), requests(), scheduler.has_other_endpoint(&permit)), ("pod-1", vec![1, 0], true));
    scheduler.retry(&mut permit).await.unwrap();
    assert_eq!((pod(&permit), requests(), scheduler.has_other_endpoint(&permit)), ("pod-2", vec![0, 1], false));
    assert_eq!(permit.selection.explanation(), "0 in flight, of 2 endpoints, after 1 failed");
    assert!(matches!(scheduler.retry(&mut permit).await, Err(RoutingError::NoEndpointAvailable(_))));
    drop(permit);
    assert_eq!(requests(), [0, 0]);
}

/// Returns a scheduler with a pool of one endpoint for each component type.
fn scheduler_of_types(component_types: &[&str]) -> Scheduler {
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1).with_default_namespace("ns".to_owned());
    let endpoint = |(number, component_type): (u8, &&str)| {
        let labels = [("fusioninfer.io/component-type".to_owned(), (*component_type).to_owned())].into();
        Arc::new(Endpoint { labels, ..endpoint(number) })
    };
    let endpoints = (1..).zip(component_types).map(endpoint).collect();
    let pool = snapshot::tests::pool(NamespacedName::new("ns", "p"), endpoints);
    scheduler.replace(vec![Pool { allows_implicit_use_cases: true, ..pool }]);
    scheduler
}

fn prefill_pod(permit: &Permit) -> Option<&str> {
    permit.selection.result.prefill_endpoint.as_ref().map(|endpoint| endpoint.pod.as_str())
}

#[test]
fn prompt_is_computed_by_the_prefiller_with_the_fewest_tokens_in_flight() {
    let scheduler = scheduler_of_types(&["prefiller", "decoder", "prefiller"]);
    let mut first = admit(&scheduler, 100).unwrap();
    let second = admit(&scheduler, 10).unwrap();
    let mut prefill_pods = [prefill_pod(&first).unwrap().to_owned(), prefill_pod(&second).unwrap().to_owned()];
    prefill_pods.sort();
    assert_eq!(([pod(&first), pod(&second)], prefill_pods), (["pod-2"; 2], ["pod-1", "pod-3"].map(str::to_owned)));
    first.record_response_start();
    assert_eq!(prefill_pod(&admit(&scheduler, 10).unwrap()), prefill_pod(&first), "its prompt is computed");
    let expect = format!("1 in flight, of 1 endpoint, prefill on {}", prefill_pod(&second).unwrap());
    assert_eq!(second.selection.explanation(), expect);
}

#[rstest]
#[case::no_prefiller(&["decoder", "worker"], true, true)]
#[case::prefillers_only(&["prefiller", "prefiller"], false, false)]
#[case::one_decoder(&["decoder", "prefiller"], true, false)]
#[tokio::test(start_paused = true)]
async fn requests_are_never_sent_to_prefillers(
    #[case] component_types: &[&str],
    #[case] is_admitted: bool,
    #[case] is_retried: bool,
) {
    let scheduler = scheduler_of_types(component_types);
    assert_eq!(only_pool(&scheduler).is_serving(), is_admitted);
    let permit = admit(&scheduler, 10);
    assert_eq!(permit.is_ok(), is_admitted);
    let Ok(mut permit) = permit else { return };
    assert_ne!(component_types[usize::from(pod(&permit).as_bytes()[4] - b'1')], "prefiller");
    assert_eq!(
        (scheduler.has_other_endpoint(&permit), scheduler.retry(&mut permit).await.is_ok()),
        (is_retried, is_retried)
    );
}

/// Returns whether the next request is sent to a prefiller first.
fn uses_prefiller(scheduler: &Scheduler) -> bool {
    prefill_pod(&admit(scheduler, 10).unwrap()).is_some()
}

#[rstest]
#[case::bad_gateway(RequestOutcome::Responded(StatusCode::BAD_GATEWAY), false)]
#[case::failed(RequestOutcome::Failed, false)]
#[case::decoder_not_connected(RequestOutcome::NotConnected, true)]
#[case::invalid_request(RequestOutcome::Responded(StatusCode::BAD_REQUEST), true)]
#[case::model_not_served(RequestOutcome::Responded(StatusCode::NOT_FOUND), true)]
#[tokio::test(start_paused = true)]
async fn prefiller_of_pairs_that_fail_is_ejected(#[case] outcome: RequestOutcome, #[case] is_used: bool) {
    let scheduler = scheduler_of_types(&["decoder", "decoder", "prefiller"]);
    let permits: Vec<Permit> = (0..4).map(|_| admit(&scheduler, 10).unwrap()).collect();
    permits[1..].iter().for_each(|permit| permit.record_outcome(outcome));
    assert_eq!(uses_prefiller(&scheduler), is_used);
    let ok = RequestOutcome::Responded(StatusCode::OK);
    permits[0].record_outcome(ok);
    assert!(uses_prefiller(&scheduler), "it responded");
}

#[tokio::test(start_paused = true)]
async fn ejected_prefiller_is_probed_by_one_request() {
    let scheduler = scheduler_of_types(&["decoder", "decoder", "prefiller"]);
    let permits: Vec<Permit> = (0..4).map(|_| admit(&scheduler, 10).unwrap()).collect();
    permits[1..].iter().for_each(|permit| permit.record_outcome(RequestOutcome::Failed));
    tokio::time::advance(Duration::from_secs(1)).await;
    let probe = admit(&scheduler, 10).unwrap();
    assert!(prefill_pod(&probe).is_some() && !uses_prefiller(&scheduler));
    probe.record_outcome(RequestOutcome::Responded(StatusCode::OK));
    assert!(uses_prefiller(&scheduler));
}

#[tokio::test(start_paused = true)]
async fn failures_after_the_response_started_are_not_those_of_the_prefiller() {
    let scheduler = scheduler_of_types(&["decoder", "prefiller"]);
    for _ in 0..9 {
        let mut permit = admit(&scheduler, 10).unwrap();
        permit.record_response_start();
        permit.record_outcome(RequestOutcome::Failed);
    }
    assert!(uses_prefiller(&scheduler));
}

/// Returns a scheduler with a pool of three endpoints, and their states.
fn scheduler_of_three() -> (Scheduler, Vec<Arc<EndpointState>>) {
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1).with_default_namespace("ns".to_owned());
    let endpoints: Vec<_> = (1..=3).map(|number| Arc::new(endpoint(number))).collect();
    let states = endpoints.iter().map(|endpoint| Arc::clone(&endpoint.state)).collect();
    let pool = snapshot::tests::pool(NamespacedName::new("ns", "p"), endpoints);
    scheduler.replace(vec![Pool { allows_implicit_use_cases: true, ..pool }]);
    (scheduler, states)
}

/// Returns the Pods that 30 requests are sent to.
fn selected_pods(scheduler: &Scheduler) -> BTreeSet<String> {
    (0..30).filter_map(|_| Some(pod(&admit(scheduler, 10).ok()?).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn sleeping_engine_takes_no_request() {
    let (scheduler, states) = scheduler_of_three();
    let sleep = |index: usize, is_asleep| states[index].health.record_sleep(is_asleep, Instant::now());
    sleep(0, true);
    assert_eq!(selected_pods(&scheduler), ["pod-2", "pod-3"].map(str::to_owned).into());
    [1, 2].into_iter().for_each(|index| sleep(index, true));
    assert!(matches!(admit(&scheduler, 10), Err(RoutingError::NoEndpointAvailable(_))), "it would hang");
    sleep(2, false);
    let mut permit = admit(&scheduler, 10).unwrap();
    assert_eq!((pod(&permit), scheduler.has_other_endpoint(&permit)), ("pod-3", false));
    assert!(scheduler.retry(&mut permit).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn failed_endpoint_is_ejected_and_probed_by_one_request() {
    let (scheduler, states) = scheduler_of_three();
    let mut permits: Vec<Permit> = (0..3).map(|_| admit(&scheduler, 10).unwrap()).collect();
    permits.sort_by(|left, right| pod(left).cmp(pod(right)));
    permits.iter().for_each(|permit| permit.record_outcome(RequestOutcome::NotConnected));
    assert_eq!(selected_pods(&scheduler).len(), 3, "if all failed, requests are sent to any of them");
    let ok = RequestOutcome::Responded(StatusCode::OK);
    permits[1..].iter().for_each(|permit| permit.record_outcome(ok));
    assert_eq!(selected_pods(&scheduler), ["pod-2", "pod-3"].map(str::to_owned).into());
    tokio::time::advance(Duration::from_secs(1)).await;
    let _busy: Vec<_> = states[1..].iter().map(|state| state.begin(1_000_000)).collect();
    drop(permits);
    let probe = admit(&scheduler, 10).unwrap();
    assert_eq!(pod(&probe), "pod-1");
    assert_eq!(selected_pods(&scheduler), ["pod-2", "pod-3"].map(str::to_owned).into());
    probe.record_outcome(ok);
    drop(probe);
    assert_eq!(selected_pods(&scheduler), ["pod-1".to_owned()].into());
}

#[tokio::test(start_paused = true)]
// spec: GW-54
async fn endpoint_that_does_not_serve_a_model_is_remembered() {
    let (scheduler, _) = scheduler_of_three();
    let not_found = RequestOutcome::Responded(StatusCode::NOT_FOUND);
    let mut permit = admit(&scheduler, 10).unwrap();
    let first = pod(&permit).to_owned();
    permit.record_outcome(not_found);
    assert!(scheduler.has_other_endpoint(&permit) && !selected_pods(&scheduler).contains(&first));
    for _ in 0..2 {
        scheduler.retry(&mut permit).await.unwrap();
        permit.record_outcome(not_found);
    }
    assert!(!scheduler.has_other_endpoint(&permit));
    drop(permit);
    assert_eq!(selected_pods(&scheduler).len(), 3, "the engines answer requests for a model that none serves");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(selected_pods(&scheduler).len(), 3);
}

/// Sends `count` requests with a prompt of `tokens`, which remain in flight. After each, the two engines report
/// `waiting` requests, without ours. Returns the number of requests per engine.
fn spread(count: usize, tokens: usize, cached_by: Option<u8>, waiting: [f64; 2]) -> [usize; 2] {
    let endpoints = vec![Arc::new(endpoint(1)), Arc::new(endpoint(2))];
    let scheduler = scheduler_of(endpoints.clone());
    let report = || {
        for (endpoint, waiting) in endpoints.iter().zip(waiting) {
            let metrics = EngineMetrics { waiting: Some(waiting), running: Some(0.0), ..EngineMetrics::default() };
            endpoint.state.record_metrics(metrics, Instant::now());
        }
    };
    if let Some(number) = cached_by {
        admit(&scheduler, tokens).unwrap().record_served_endpoint(([10, 0, 0, number], 8000).into());
    }
    report();
    let permits: Vec<Permit> = (0..count)
        .map(|_| {
            let permit = admit(&scheduler, tokens).unwrap();
            report();
            permit
        })
        .collect();
    let count = |name| permits.iter().filter(|permit| pod(permit) == name).count();
    [count("pod-1"), count("pod-2")]
}

/// A prefix of 18 KB does not outweigh 50 waiting requests.
#[tokio::test]
async fn requests_leave_a_busy_endpoint_that_caches_their_prefix() {
    for cached_by in [None, Some(1), Some(2)] {
        assert_eq!(spread(20, 18_000 / request::BYTES_PER_TOKEN, cached_by, [50.0, 0.0]), [0, 20]);
    }
}

/// Gauges do not contain the requests in flight yet.
#[rstest]
#[case::short(10, None)]
#[case::long(2_000, None)]
#[case::cached(100, Some(1))]
#[tokio::test]
async fn concurrent_requests_are_spread_before_gauges_count_them(#[case] tokens: usize, #[case] cached_by: Option<u8>) {
    let spread = spread(60, tokens, cached_by, [0.0, 0.0]);
    assert!(spread.iter().all(|count| (25..=35).contains(count)), "{spread:?}");
}

/// Endpoints without metrics, and with outdated ones, are selected by the requests in flight.
// spec: GW-27
#[tokio::test(start_paused = true)]
async fn outdated_and_missing_metrics_never_block_a_pool() {
    let endpoints = vec![Arc::new(endpoint(1)), Arc::new(endpoint(2))];
    let scheduler = scheduler_of(endpoints.clone());
    let metrics =
        EngineMetrics { waiting: Some(1e9), running: Some(1e9), kv_cache_usage: Some(1.0), ..EngineMetrics::default() };
    endpoints[0].state.record_metrics(metrics, Instant::now());
    for (age, expect) in [(0, 0), (10, 0), (60, 20)] {
        tokio::time::advance(Duration::from_secs(age)).await;
        if age > 0 {
            endpoints[0].state.record_missing_report();
        }
        let permits: Vec<Permit> = (0..40).map(|_| admit(&scheduler, 10).unwrap()).collect();
        assert_eq!(permits.iter().filter(|permit| pod(permit) == "pod-1").count().div_ceil(2) * 2, expect);
    }
    scheduler.snapshot().pools.values().for_each(|pool| assert_eq!(pool.ready_endpoints.len(), 2));
}

#[rstest]
#[case::fallback(2, [0, 1])]
#[case::not_in_the_pool(9, [1, 0])]
fn request_counts_on_the_endpoint_that_serves_it(#[case] number: u8, #[case] expect: [usize; 2]) {
    let scheduler = scheduler();
    let mut permit = admit(&scheduler, 10).unwrap();
    let pool = only_pool(&scheduler);
    let count = |endpoint: &Arc<Endpoint>| (endpoint.state.requests(), endpoint.state.tokens() > 0);
    permit.record_served_endpoint(endpoint(number).address);
    let counts: Vec<_> = pool.ready_endpoints.iter().map(count).collect();
    assert_eq!(counts, expect.map(|requests| (requests, requests > 0)));
    drop(permit);
    assert!(pool.ready_endpoints.iter().all(|endpoint| count(endpoint) == (0, false)));
}

#[tokio::test]
async fn state_of_an_endpoint_survives_replacement() {
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 0).with_default_namespace("ns".to_owned());
    let address = "127.0.0.1:1".parse().unwrap();
    let running = scheduler.endpoint_state(address, "uid").begin(10);
    scheduler.replace(Vec::new());
    let state = |uid| scheduler.endpoint_state(address, uid);
    assert_eq!((state("uid").requests(), state("uid").tokens(), state("other").requests()), (1, 10, 0));
    drop(running);
    assert_eq!((state("uid").requests(), state("uid").tokens()), (0, 0));
}

/// Two pools of one use case, whose engines list different models.
// spec: GW-41
#[test]
fn target_is_drawn_among_those_that_the_pool_serves() {
    let lists = [("a", 1, &["x"][..]), ("b", 2, &["y", "z"])];
    let pools = lists.map(|(name, number, models)| {
        let models = models.iter().map(|model| (*model).to_owned()).collect();
        let endpoint = Arc::new(endpoint(number));
        endpoint.state.served_models.record(Some(models), Instant::now());
        let targets = [("x", 20), ("y", 60), ("z", 20), ("absent", 100)]
            .map(|(model, weight)| TargetModel { model: model.to_owned(), weight });
        let use_case = UseCase { targets: targets.to_vec(), ..UseCase::implicit("chat") };
        let pool = snapshot::tests::pool(NamespacedName::new("ns", name), vec![endpoint]);
        Pool { use_cases: [("chat".to_owned(), use_case)].into(), ..pool }
    });
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1).with_default_namespace("ns".to_owned());
    scheduler.replace(pools.into());
    let draws = |pool: Option<&str>| {
        let (key, info) = (pool.map(|name| NamespacedName::new("ns", name)), request::RequestInfo::default());
        let request = AdmissionRequest {
            pool: key.as_ref(),
            model: RequestedModel::Name("chat"),
            body: b"",
            info: &info,
            path: "/v1/completions",
            flow: None,
            subset: None,
            session: None,
        };
        let mut counts = BTreeMap::new();
        for _ in 0..1_000 {
            let permit = scheduler.admit(&request).now_or_never().unwrap().unwrap();
            let served = (permit.route.pool.key.name.clone(), permit.route.target_model.clone());
            *counts.entry(served).or_insert(0) += 1;
        }
        counts
    };
    let route = |pool: &str, target: &str| (pool.to_owned(), target.to_owned());
    assert_eq!(draws(Some("a")), [(route("a", "x"), 1_000)].into());
    let addressed = draws(Some("b"));
    assert_eq!(addressed.keys().collect::<Vec<_>>(), [&route("b", "y"), &route("b", "z")]);
    assert!((700..800).contains(&addressed[&route("b", "y")]), "60 to 20: {addressed:?}");
    let all = draws(None);
    assert_eq!(all.keys().collect::<Vec<_>>(), [&route("a", "x"), &route("b", "y"), &route("b", "z")]);
    assert!((150..250).contains(&all[&route("a", "x")]) && (550..650).contains(&all[&route("b", "y")]), "{all:?}");
}

/// Prompts of 8,000 tokens.
#[test]
fn engines_cache_as_much_as_they_report() {
    let endpoint = Arc::new(endpoint(1));
    let scheduler = scheduler_of([Arc::clone(&endpoint)].into());
    let cached_bytes = |tokens: usize| admit(&scheduler, tokens).unwrap().selection.result.cached_bytes;
    let metrics = |prefix_cache_tokens| EngineMetrics { prefix_cache_tokens, ..EngineMetrics::default() };
    for (tokens, expect) in [(Some(10_000.0), 8_000), (Some(2_000.0), 4_000), (Some(0.0), 0), (None, 8_000)] {
        endpoint.state.record_metrics(metrics(tokens), Instant::now());
        cached_bytes(8_000);
        let cached = cached_bytes(8_000) / request::BYTES_PER_TOKEN;
        assert!((expect * 9 / 10..=expect).contains(&cached), "{cached} of {tokens:?}");
    }
}

/// An adapter that one of three engines has loaded, as at the beginning of a rollout.
#[test]
fn requests_are_sent_to_endpoints_that_list_their_model() {
    let (scheduler, states) = scheduler_of_three();
    let list = |state: &EndpointState, models: &[&str]| {
        state.served_models.record(Some(models.iter().map(|model| (*model).to_owned()).collect()), Instant::now());
    };
    let selected = || selected_pods(&scheduler).len();
    list(&states[0], &["base"]);
    assert_eq!(selected(), 2, "what the others serve is unknown");
    list(&states[1], &["base", "m"]);
    list(&states[2], &["base"]);
    assert_eq!(selected(), 1);
    states[1].health.record_outcome(RequestOutcome::Responded(StatusCode::NOT_FOUND), 0, Instant::now());
    assert_eq!(selected(), 1, "another model");
    list(&states[1], &["base"]);
    assert_eq!(selected(), 3, "the engines may load the adapter for the request");
}

/// Pools that serve the same target have requests in proportion to their endpoints.
// spec: GW-41
#[test]
fn pools_of_a_use_case_share_its_requests() {
    let pool = |name: &str, endpoints: std::ops::Range<u8>| {
        let endpoints = endpoints.map(|number| Arc::new(endpoint(number))).collect();
        let pool = snapshot::tests::pool(NamespacedName::new("ns", name), endpoints);
        Pool { use_cases: [("m".to_owned(), UseCase::implicit("m"))].into(), ..pool }
    };
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1).with_default_namespace("ns".to_owned());
    scheduler.replace(vec![pool("a", 1..2), pool("b", 2..5), pool("empty", 0..0)]);
    let count = |name| {
        let served = (0..1_000).map(|_| admit(&scheduler, 10).unwrap().route.pool.key.name.clone());
        served.filter(|served| served == name).count()
    };
    assert!((200..300).contains(&count("a")));
    assert_eq!(count("empty"), 0);
}

/// Columns: requested model, objective, fairness ID, expected priority, flow and target of the pool with the objectives `high` and
/// `low`, a use case `declared` and a rewrite of `rewritten`.
#[rstest]
#[case::implicit("x", None, None, (NONCRITICAL, "x", "x"))]
#[case::objective("x", Some("high"), None, (7, "x", "x"))]
#[case::negative("x", Some("low"), Some("team"), (-1, "team", "x"))]
#[case::unknown_objective("x", Some("missing"), None, (NONCRITICAL, "x", "x"))]
#[case::rewritten("rewritten", Some("low"), None, (-1, "rewritten", "v2"))]
#[case::declared("declared", Some("high"), Some("team"), (100, "declared", "declared"))]
#[tokio::test]
async fn headers_state_how_requests_without_a_use_case_wait(
    #[case] model: &str,
    #[case] objective: Option<&str>,
    #[case] fairness_id: Option<&str>,
    #[case] expect: (i32, &str, &str),
) {
    let scheduler = scheduler_of(vec![Arc::new(endpoint(1))]);
    let targets = vec![TargetModel { model: "v2".to_owned(), weight: 1 }];
    let use_cases = [
        UseCase { priority: 100, ..UseCase::implicit("declared") },
        UseCase { is_rewrite: true, targets, ..UseCase::implicit("rewritten") },
    ];
    scheduler.replace(vec![Pool {
        use_cases: use_cases.map(|use_case| (use_case.model_name.clone(), use_case)).into(),
        default_priority: NONCRITICAL,
        objective_priorities: Arc::new([("high".to_owned(), 7), ("low".to_owned(), -1)].into()),
        ..(*only_pool(&scheduler)).clone()
    }]);
    let flow = FlowHeaders { objective: objective.map(str::to_owned), fairness_id: fairness_id.map(str::to_owned) };
    let route = admit_prompt(&scheduler, model, "x", Some(&flow)).await.unwrap().route;
    assert_eq!((route.priority, route.flow.as_str(), route.target_model.as_str()), expect);
}

/// A fairness ID that equals the name of a use case does not make its requests those of the use case.
#[tokio::test]
async fn only_requests_of_a_use_case_are_measured_for_its_objective() {
    let scheduler = scheduler_of(vec![Arc::new(endpoint(1))]);
    let use_case = UseCase { objective: Some(Duration::from_millis(60)), ..UseCase::implicit("chat") };
    let use_cases = [("chat".to_owned(), use_case)].into();
    scheduler.replace(vec![Pool { use_cases, ..(*only_pool(&scheduler)).clone() }]);
    let flow = FlowHeaders { objective: None, fairness_id: Some("chat".to_owned()) };
    let measured = async |model| admit_prompt(&scheduler, model, "x", Some(&flow)).await.unwrap().is_measured();
    assert!(measured("chat").await);
    assert!(!measured("other").await);
}
