//! Requests to a pool whose engines are busy.

use futures::future::join_all;

use super::*;
use crate::{
    openai_error::OpenAiError,
    queue_limits::QueueLimits,
    request_queue::QueueSize,
    use_case::{CRITICAL, NONCRITICAL},
};

/// Returns a scheduler with a pool of one engine that runs one request at a time, and its endpoint.
fn busy_scheduler(queue_limits: QueueLimits) -> (Scheduler, Arc<Endpoint>) {
    let endpoint = Arc::new(endpoint(1));
    let scheduler = scheduler_of(vec![Arc::clone(&endpoint)]);
    let metrics = EngineMetrics { waiting: Some(5.0), running: Some(1.0), ..EngineMetrics::default() };
    let earlier: Vec<_> = (0..6).map(|_| endpoint.state.begin(1)).collect();
    for _ in 0..2 {
        endpoint.state.record_metrics(metrics.clone(), Instant::now());
    }
    drop(earlier);
    let use_case =
        |(model, priority): (&str, i32)| (model.to_owned(), UseCase { priority, ..UseCase::implicit(model) });
    let use_cases = [("critical", CRITICAL), ("a", NONCRITICAL), ("b", NONCRITICAL)].map(use_case).into();
    scheduler.replace(vec![Pool { use_cases, queue_limits, ..(*only_pool(&scheduler)).clone() }]);
    (scheduler, endpoint)
}

/// Adds a pool `other` with the endpoints of the only one, and the use case `other`.
fn add_pool_of_same_endpoints(scheduler: &Scheduler) {
    let pool = only_pool(scheduler);
    let other = Pool {
        key: NamespacedName::new("ns", "other"),
        use_cases: [("other".to_owned(), UseCase::implicit("other"))].into(),
        ..(*pool).clone()
    };
    scheduler.replace(vec![(*pool).clone(), other]);
}

/// While the engine is busy, requests wait in the gateway: those of the highest priority leave first, and use cases of one priority
/// alternate.
// spec: GW-36
// spec: GW-74
// spec: GW-76
#[tokio::test(start_paused = true)]
async fn requests_wait_until_the_engine_is_free() {
    let (scheduler, endpoint) = busy_scheduler(QueueLimits::default());
    let first = admit_model(&scheduler, "a", 10).await.unwrap();
    let order = Mutex::new(Vec::new());
    let send = async |model: &'static str| {
        let permit = admit_model(&scheduler, model, 10_000).await.unwrap();
        assert_eq!(endpoint.state.requests(), 1, "no request waits in the engine");
        order.lock().unwrap().push(model);
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(permit);
    };
    let requests = ["implicit", "a", "a", "b", "critical"].map(send);
    let end = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(first);
    };
    tokio::join!(join_all(requests), end);
    assert_eq!(*order.lock().unwrap(), ["critical", "a", "b", "a", "implicit"]);
    assert_eq!(endpoint.state.requests(), 0);
}

/// An error of a pool.
type PoolError = fn(NamespacedName) -> RoutingError;

/// Columns: limit of requests, seconds until the engine is free, and the result of a request that has to wait.
// spec: GW-78
#[rstest]
#[case::in_time(1, Some(29), Ok(29))]
#[case::timeout(1, None, Err((30, RoutingError::QueueTimeout as PoolError)))]
#[case::no_queue(0, Some(1), Err((0, RoutingError::QueueFull as PoolError)))]
#[tokio::test(start_paused = true)]
async fn time_in_the_queue_is_limited(
    #[case] max_requests: usize,
    #[case] free_after: Option<u64>,
    #[case] expect: Result<u64, (u64, PoolError)>,
) {
    let limits = QueueLimits::default();
    let size = QueueSize { max_requests, ..limits.size };
    let (scheduler, endpoint) = busy_scheduler(QueueLimits { size, ..limits });
    let first = admit_model(&scheduler, "a", 10).await.unwrap();
    let end = async {
        tokio::time::sleep(Duration::from_secs(free_after.unwrap_or(60))).await;
        drop(first);
    };
    let start = Instant::now();
    let request = async {
        let result = admit_model(&scheduler, "a", 10).await.map(drop);
        let seconds = start.elapsed().as_secs();
        result.map(|()| seconds).map_err(|error| (seconds, error))
    };
    let (result, ()) = tokio::join!(request, end);
    let key = only_pool(&scheduler).key.clone();
    assert_eq!(result, expect.map_err(|(seconds, error)| (seconds, error(key))));
    assert_eq!(endpoint.state.requests(), 0);
    assert!(admit(&scheduler, 10).is_ok(), "afterwards");
}

/// A full queue replaces requests with a lower priority, and those of the use case with the most requests.
// spec: GW-36
// spec: GW-79
#[rstest]
#[case::priority("critical", RoutingError::ReplacedByPriority, "evicted-priority")]
#[case::fairness("b", RoutingError::ReplacedByFairness, "evicted-queue-pressure")]
#[case::same_use_case("a", RoutingError::QueueFull, "rejected-saturated")]
#[tokio::test(start_paused = true)]
async fn replaced_requests_are_rejected_with_a_reason(
    #[case] model: &str,
    #[case] error: PoolError,
    #[case] reason: &str,
) {
    let limits = QueueLimits::default();
    let (scheduler, _) = busy_scheduler(QueueLimits { size: QueueSize { max_requests: 2, ..limits.size }, ..limits });
    let first = admit_model(&scheduler, "a", 10).await.unwrap();
    let admit_and_end = async |model: &str| admit_model(&scheduler, model, 10).await.map(drop);
    let waiting = join_all(["a", "a"].map(&admit_and_end));
    let new = admit_and_end(model);
    let end = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(first);
    };
    let results = async {
        let (waiting, new, ()) = tokio::join!(waiting, new, end);
        waiting.into_iter().chain([new]).filter_map(Result::err).collect::<Vec<_>>()
    };
    let errors = tokio::time::timeout(Duration::from_secs(60), results).await.unwrap();
    let replaced = error(only_pool(&scheduler).key.clone());
    assert_eq!(errors.first(), Some(&replaced));
    let response = OpenAiError::from(replaced);
    assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers, [("retry-after", "1"), ("x-llm-d-request-dropped-reason", reason)]);
}

/// A client that does not wait any more leaves the queue. Another endpoint, or the end of the pool, ends the wait.
#[tokio::test(start_paused = true)]
async fn queue_follows_clients_and_pools() {
    let (scheduler, _) = busy_scheduler(QueueLimits::default());
    let _first = admit_model(&scheduler, "a", 10).await.unwrap();
    let mut left = Box::pin(admit_model(&scheduler, "a", 10));
    assert!((&mut left).now_or_never().is_none());
    drop(left);

    let mut waiting = Box::pin(admit_model(&scheduler, "b", 10));
    assert!((&mut waiting).now_or_never().is_none());
    let pool = only_pool(&scheduler);
    let endpoints = pool.ready_endpoints.iter().cloned().chain([Arc::new(endpoint(2))]).collect();
    scheduler.replace_endpoints(vec![Arc::new(pool.with_endpoints(endpoints, 2))]);
    assert_eq!(pod(&waiting.await.unwrap()), "pod-2");

    let _second = admit_model(&scheduler, "a", 10).await.unwrap();
    let pool = only_pool(&scheduler);
    scheduler.replace_endpoints(vec![Arc::new(pool.with_endpoints(pool.ready_endpoints[..1].to_vec(), 1))]);
    let waiting = admit_model(&scheduler, "b", 10);
    let remove = async { scheduler.replace(Vec::new()) };
    let (result, ()) = tokio::join!(waiting, remove);
    assert_eq!(result.map(drop), Err(RoutingError::PoolNotFound(pool.key.clone())));
}

/// Requests wait for busy engines, and then the last one stops. New requests do not wait as long as those.
#[tokio::test(start_paused = true)]
async fn queue_of_a_pool_without_endpoints_delays_no_new_request() {
    let (scheduler, _) = busy_scheduler(QueueLimits::default());
    let _first = admit_model(&scheduler, "a", 10).await.unwrap();
    let mut waiting = Box::pin(admit_model(&scheduler, "a", 10));
    assert!((&mut waiting).now_or_never().is_none());
    let pool = only_pool(&scheduler);
    scheduler.replace_endpoints(vec![Arc::new(pool.with_endpoints(Vec::new(), 1))]);
    let unavailable = Err(RoutingError::NoEndpointAvailable(pool.key.clone()));
    let start = Instant::now();
    assert_eq!(admit_model(&scheduler, "b", 10).await.map(drop), unavailable);
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert_eq!(waiting.await.map(drop), unavailable);
}

/// Otherwise the decoder would compute the prompts.
#[tokio::test]
async fn busy_prefiller_is_used() {
    let scheduler = scheduler_of_types(&["decoder", "prefiller"]);
    let pool = only_pool(&scheduler);
    let prefiller = &pool.ready_endpoints[1].state;
    let _requests: Vec<_> = (0..9).map(|_| prefiller.begin(1)).collect();
    let metrics = EngineMetrics { waiting: Some(8.0), running: Some(1.0), ..EngineMetrics::default() };
    for _ in 0..2 {
        prefiller.record_metrics(metrics.clone(), Instant::now());
    }
    assert!(prefiller.is_saturated() && uses_prefiller(&scheduler));
}

/// While the engine of one pool is busy, another pool serves its requests at once, by its own engine.
// spec: GW-11
#[tokio::test(start_paused = true)]
async fn busy_pool_does_not_concern_another_one() {
    let (scheduler, first) = busy_scheduler(QueueLimits::default());
    let pool = only_pool(&scheduler);
    let other = Pool {
        use_cases: [("other".to_owned(), UseCase::implicit("other"))].into(),
        ..Pool::new(NamespacedName::new("ns", "other"), scheduler.default_scheduling(), vec![Arc::new(endpoint(2))])
    };
    scheduler.replace(vec![(*pool).clone(), other]);
    let _busy = first.state.begin(1);
    let mut waiting = Box::pin(admit_model(&scheduler, "a", 10));
    assert!((&mut waiting).now_or_never().is_none());
    for _ in 0..9 {
        assert_eq!(pod(&admit_model(&scheduler, "other", 10).now_or_never().unwrap().unwrap()), "pod-2");
    }
    assert!((&mut waiting).now_or_never().is_none());
}

/// The queue of one pool leaves as much memory as it occupies, and those of two pools as much as each of them.
#[tokio::test(start_paused = true)]
async fn bodies_of_waiting_requests_occupy_a_part_of_the_memory() {
    const BODY_BYTES: usize = 40_000;
    let (scheduler, first) = busy_scheduler(QueueLimits::default());
    let scheduler = scheduler.with_request_memory(6 * BODY_BYTES + 6_000);
    add_pool_of_same_endpoints(&scheduler);
    let _busy = first.state.begin(1);
    let mut waiting = Vec::new();
    let mut count_waiting = |model: &'static str| {
        let before = waiting.len();
        loop {
            let mut request = Box::pin(admit_model(&scheduler, model, BODY_BYTES / request::BYTES_PER_TOKEN));
            match (&mut request).now_or_never() {
                None => waiting.push(request),
                Some(result) => {
                    assert!(matches!(result, Err(RoutingError::QueueFull(_))), "{result:?}");
                    return waiting.len() - before;
                }
            }
        }
    };
    assert_eq!(["a", "other"].map(&mut count_waiting), [3, 1]);
}

/// A new engine starts while requests wait. It gets as many as a similar one runs.
#[tokio::test(start_paused = true)]
async fn new_endpoint_has_the_limit_of_the_others() {
    let (scheduler, first) = busy_scheduler(QueueLimits::default());
    let _busy = first.state.begin(1);
    let mut waiting: Vec<_> = (0..9).map(|_| Box::pin(admit_model(&scheduler, "a", 10))).collect();
    assert!(waiting.iter_mut().all(|request| request.now_or_never().is_none()));
    let (pool, new) = (only_pool(&scheduler), Arc::new(endpoint(2)));
    let endpoints = pool.ready_endpoints.iter().cloned().chain([Arc::clone(&new)]).collect();
    scheduler.replace_endpoints(vec![Arc::new(pool.with_endpoints(endpoints, 2))]);
    assert_eq!(new.state.requests(), 1);
    let admitted: Vec<_> = waiting.iter_mut().filter_map(futures::FutureExt::now_or_never).collect();
    assert_eq!(admitted.into_iter().map(|permit| pod(&permit.unwrap()).to_owned()).collect::<Vec<_>>(), ["pod-2"]);
}

/// An endpoint of two pools notifies their queues in turns.
#[tokio::test(start_paused = true)]
async fn pools_that_share_an_engine_alternate() {
    let (scheduler, endpoint) = busy_scheduler(QueueLimits::default());
    add_pool_of_same_endpoints(&scheduler);
    let busy = endpoint.state.begin(1);
    let order = Mutex::new(Vec::new());
    let send = async |model: &'static str| {
        let permit = admit_model(&scheduler, model, 10).await.unwrap();
        order.lock().unwrap().push(model);
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(permit);
    };
    let end = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(busy);
    };
    tokio::join!(join_all(["a", "a", "a", "other", "other"].map(send)), end);
    let order = order.lock().unwrap();
    assert!(order[..4].windows(2).all(|models| models[0] != models[1]), "{order:?}");
}
