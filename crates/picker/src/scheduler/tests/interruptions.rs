//! Requests to a pool whose last endpoint is replaced.

use super::*;

/// How a pool loses its last endpoint.
enum Interruption {
    /// Its selector changes.
    Pool,
    /// The Pod stops.
    Pod,
    /// The Pod has stopped long ago.
    FormerPod,
}

#[rstest]
#[case::soon(Some(1_999), Ok(()), 1_999)]
#[case::later(Some(2_001), Err(()), 2_000)]
#[case::never(None, Err(()), 2_000)]
#[tokio::test(start_paused = true)]
async fn requests_wait_for_endpoints_of_an_interrupted_pool(
    #[values(Interruption::Pool, Interruption::Pod, Interruption::FormerPod)] interruption: Interruption,
    #[case] delay: Option<u64>,
    #[case] expect: Result<(), ()>,
    #[case] expect_millis: u64,
) {
    let scheduler = scheduler();
    let pool = only_pool(&scheduler);
    let empty = Arc::new(Pool { ready_endpoints: Vec::new(), ..(*pool).clone() });
    match interruption {
        Interruption::Pool => scheduler.replace_all(vec![empty], Arc::default()),
        Interruption::Pod | Interruption::FormerPod => scheduler.replace_endpoints(vec![empty]),
    }
    let expect = match interruption {
        Interruption::FormerPod => {
            tokio::time::sleep(Duration::from_secs(10)).await;
            (Err(()), Duration::ZERO)
        }
        _ => (expect, Duration::from_millis(expect_millis)),
    };
    let start = Instant::now();
    let ready = async {
        let Some(delay) = delay else { return };
        tokio::time::sleep(Duration::from_millis(delay)).await;
        scheduler.replace_endpoints(vec![Arc::clone(&pool)]);
    };
    let attempt = async {
        let result = admit_model(&scheduler, "m", 10).await;
        (result.map(drop).map_err(drop), start.elapsed())
    };
    let (result, ()) = tokio::join!(attempt, ready);
    assert_eq!(result, expect);
    assert!(delay.is_none() || admit(&scheduler, 10).is_ok(), "afterwards");
}

/// The engine of a deleted Pod rejects connections before the snapshot changes.
#[tokio::test(start_paused = true)]
async fn failed_request_waits_for_the_endpoint_that_replaces_the_last_one() {
    let scheduler = scheduler_of(vec![Arc::new(endpoint(1))]);
    let mut permit = admit(&scheduler, 10).unwrap();
    let replacement =
        Arc::new(Pool { ready_endpoints: vec![Arc::new(endpoint(2))], ..(*only_pool(&scheduler)).clone() });
    let replace = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        scheduler.replace_endpoints(vec![replacement]);
    };
    let start = Instant::now();
    let (result, ()) = tokio::join!(scheduler.retry(&mut permit), replace);
    assert_eq!((result, pod(&permit), start.elapsed()), (Ok(()), "pod-2", Duration::from_secs(1)));

    for (pause, seconds) in [(0, 2), (10, 0), (60, 2)] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let (mut permit, start) = (admit(&scheduler, 10).unwrap(), Instant::now());
        assert!(scheduler.retry(&mut permit).await.is_err());
        assert_eq!(start.elapsed(), Duration::from_secs(seconds), "only the first failure delays");
    }
}
