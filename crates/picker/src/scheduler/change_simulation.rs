//! Weights of targets change, and a workload scales from and to zero, while requests arrive, with a virtual clock.

use std::{sync::atomic::AtomicBool, time::Duration};

use api::inference::{ScaleTargetKind, ScaleTargetRef, ScaleToZero};
use cluster::{NamespacedName, Scale};
use futures::future::join_all;
use tokio::time::sleep_until;

use super::{test_request::admit, *};
use crate::{
    activation::IdleTimeouts,
    endpoint::tests::endpoint,
    use_case::{TargetModel, UseCase},
};

/// Returns a scheduler with one pool, whose use case `chat` has these targets.
fn scheduler(endpoints: &[Arc<Endpoint>], targets: &[(&str, u32)], scale_to_zero: Option<ScaleToZero>) -> Scheduler {
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1).with_default_namespace("ns".to_owned());
    endpoints.iter().for_each(|endpoint| assert!(endpoint.state.begin_scraping(), "the simulation scrapes it"));
    let key = NamespacedName::new("ns", "p");
    let pool = Pool::new(key, scheduler.default_scheduling(), endpoints.to_vec());
    scheduler.replace(vec![with_targets(&Pool { scale_to_zero, ..pool }, targets)]);
    scheduler
}

fn with_targets(pool: &Pool, targets: &[(&str, u32)]) -> Pool {
    let target = |(model, weight): &(&str, u32)| TargetModel { model: (*model).to_owned(), weight: *weight };
    let targets = targets.iter().map(target).collect();
    Pool { use_cases: [("chat".to_owned(), UseCase { targets, ..UseCase::implicit("chat") })].into(), ..pool.clone() }
}

fn only_pool(scheduler: &Scheduler) -> Arc<Pool> {
    scheduler.snapshot().pools.values().next().cloned().unwrap()
}

/// An adapter is rolled out in three steps of 20 s, with ten requests per second that take 5 s each.
// spec: GW-42
#[tokio::test(start_paused = true)]
async fn changed_weights_concern_new_requests_only() {
    let endpoints = [1, 2].map(|number| Arc::new(endpoint(number)));
    let scheduler = scheduler(&endpoints, &[("v1", 100), ("v2", 0)], None);
    let start = Instant::now();
    let send = async |number: u32| {
        sleep_until(start + number * Duration::from_millis(100)).await;
        let permit = admit(&scheduler, "chat").await.unwrap();
        let drawn = permit.route.target_model.clone();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(permit.route.target_model, drawn);
        drawn
    };
    let change_weights = async {
        for (seconds, weights) in [(20, [20, 80]), (40, [0, 100])] {
            sleep_until(start + Duration::from_secs(seconds) - Duration::from_millis(1)).await;
            let targets = [("v1", weights[0]), ("v2", weights[1])];
            scheduler.replace(vec![with_targets(&only_pool(&scheduler), &targets)]);
        }
    };
    let (targets, ()) = tokio::join!(join_all((0..600).map(send)), change_weights);
    let counts: Vec<usize> =
        targets.chunks(200).map(|step| step.iter().filter(|target| *target == "v2").count()).collect();
    assert_eq!((counts[0], counts[2]), (0, 200));
    assert!((140..=180).contains(&counts[1]), "{counts:?}");
    assert!(endpoints.iter().all(|endpoint| endpoint.state.requests() == 0));
}

/// An engine that needs a minute to load its model stops after five minutes without requests.
// spec: GW-25
#[tokio::test(start_paused = true)]
async fn workload_scales_with_the_requests() {
    const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
    const LOAD_TIME: Duration = Duration::from_secs(60);
    const TIMEOUTS: IdleTimeouts = IdleTimeouts { serving: IDLE_TIMEOUT, starting: IDLE_TIMEOUT };
    let target_ref = ScaleTargetRef { kind: ScaleTargetKind::Deployment, name: "llama".to_owned() };
    let scheduler = scheduler(
        &[],
        &[],
        Some(ScaleToZero { target_ref, idle_timeout: None, start_timeout: Some(api::Duration(2 * LOAD_TIME)) }),
    );
    let (start, has_ended) = (Instant::now(), AtomicBool::new(false));
    let (mut starts, mut replicas_at_the_end) = (0, 1);
    let workload = async {
        let (mut replicas, mut loading_until, mut serving_since) = (0, None, None);
        while !has_ended.load(std::sync::atomic::Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (now, pool) = (Instant::now(), only_pool(&scheduler));
            if loading_until.is_some_and(|until| until <= now) {
                (loading_until, serving_since) = (None, Some(now));
                let endpoint = Arc::new(endpoint(1));
                assert!(endpoint.state.begin_scraping());
                scheduler.replace_endpoints(vec![Arc::new(pool.with_endpoints(vec![endpoint], 1))]);
            }
            let since = scheduler.demand.last_request(&pool.key).into_iter().chain(serving_since).max();
            let idle = since.map_or(Duration::ZERO, |since| now - since);
            let change = scheduler.activity(&only_pool(&scheduler), idle).required_change(TIMEOUTS);
            let scale = Scale { replicas, existing: replicas, selector: String::new() };
            match change.and_then(|change| change.apply(&scale)) {
                Some(0) => {
                    (replicas, serving_since) = (0, None);
                    scheduler.replace_endpoints(vec![Arc::new(pool.with_endpoints(Vec::new(), 0))]);
                }
                Some(count) => {
                    (replicas, starts, loading_until) = (count, starts + 1, Some(now + LOAD_TIME));
                    scheduler.replace_endpoints(vec![Arc::new(pool.with_endpoints(Vec::new(), 1))]);
                }
                None => {}
            }
            replicas_at_the_end = replicas;
        }
    };
    // Seconds of arrival, and the seconds that each request waits.
    let send = async |(arrival, expect): (u64, std::ops::Range<u64>)| {
        sleep_until(start + Duration::from_secs(arrival)).await;
        let permit = admit(&scheduler, "chat").await.unwrap();
        let waited = start.elapsed().as_secs() - arrival;
        assert!(expect.contains(&waited), "{arrival}: {waited}");
        tokio::time::sleep(Duration::from_secs(10)).await;
        drop(permit);
    };
    let requests = async {
        join_all([(10, 60..63), (12, 58..61), (300, 0..1), (2_000, 60..63)].map(send)).await;
        tokio::time::sleep(2 * IDLE_TIMEOUT).await;
        has_ended.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::join!(workload, requests);
    assert_eq!((starts, replicas_at_the_end), (2, 0));
}

/// One of two pools has no engine at the moment: it keeps its share of the requests, and its models.
#[tokio::test(start_paused = true)]
async fn pool_without_replicas_keeps_its_share() {
    let target_ref = ScaleTargetRef { kind: ScaleTargetKind::Deployment, name: "llama".to_owned() };
    let scale_to_zero = ScaleToZero { target_ref, idle_timeout: None, start_timeout: None };
    let endpoints = [1, 2].map(|number| Arc::new(endpoint(number)));
    let scheduler = scheduler(&endpoints[..1], &[("a", 90), ("b", 10)], Some(scale_to_zero));
    let first = only_pool(&scheduler);
    let second = Pool::new(NamespacedName::new("ns", "q"), scheduler.default_scheduling(), endpoints[1..].to_vec());
    assert!(endpoints[1].state.begin_scraping());
    scheduler.replace(vec![(*first).clone(), with_targets(&second, &[("a", 90), ("b", 10)])]);
    for (endpoint, model) in endpoints.iter().zip(["a", "b"]) {
        endpoint.state.served_models.record(Some([model.to_owned()].into()), Instant::now());
    }
    scheduler.replace_endpoints(vec![Arc::new(first.with_endpoints(Vec::new(), 0))]);
    let mut results = Vec::new();
    for _ in 0..200 {
        let mut request = Box::pin(admit(&scheduler, "chat"));
        match futures::FutureExt::now_or_never(&mut request) {
            Some(result) => assert_eq!(result.unwrap().route.target_model, "b"),
            None => results.push(request),
        }
    }
    assert!((160..=195).contains(&results.len()), "{} requests wait for a", results.len());
    let pool = scheduler.snapshot().pools.get(&first.key).cloned().unwrap();
    assert!(pool.lists("a") && !pool.may_serve("b"));
}
