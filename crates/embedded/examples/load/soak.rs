//! Soak phase: concurrent writers, active watches, and idle watches that are read only at the end. The revisions that
//! each active watch receives are compared with the acknowledged writes, to detect lost, duplicated and reordered
//! events.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::{Request, ResponseBody};
use crate::measurements::Measurements;
use crate::phase_options::PhaseOptions;
use crate::result::Result;
use crate::target::LoadTarget;
use crate::watch_reader::{WatchLines, revision};
use crate::writes::{AcknowledgedWrite, create_request, patch_request, send, unique_run_name};

/// Number of namespaces over which objects and watches are distributed.
const NAMESPACES: usize = 50;
/// Maximum time for a watch to receive the last write after the writers have finished.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(120);

/// The last revision written in each namespace; `None` until the writers have finished.
type FinalRevisions = watch::Receiver<Option<Vec<u64>>>;

/// The revisions that a watch received and the error that ended it, if any.
struct WatchResult {
    namespace: usize,
    revisions: Vec<u64>,
    error: Option<String>,
}

/// Runs the phase `soak`.
pub(crate) async fn run(target: &LoadTarget, options: &PhaseOptions) -> Result<Measurements> {
    let (objects, writers) = (options.get("objects", 50_000), options.get("writers", 64));
    let (watches, slow) = (options.get("watches", 500), options.get("slow", 8));
    let namespaces = target.namespaces("soak", NAMESPACES).await?;
    let start_revision = latest_revision(target).await?;

    let (final_revisions, receiver) = watch::channel(None);
    let mut watchers = JoinSet::new();
    for index in 0..watches {
        let namespace = index % NAMESPACES;
        let path = format!(
            "/api/v1/namespaces/{}/configmaps?watch=true&resourceVersion={start_revision}",
            namespaces[namespace]
        );
        let body = target.connect().await?.open(&path).await?;
        watchers.spawn(watch_until(namespace, WatchLines::new(body), receiver.clone()));
    }
    let mut idle_watches = Vec::new();
    for _ in 0..slow {
        let path = format!("/api/v1/configmaps?watch=true&resourceVersion={start_revision}");
        idle_watches.push(target.connect().await?.open(&path).await?);
    }

    let started = Instant::now();
    let mut acknowledged = write_objects(target, &namespaces, (objects, writers)).await?;
    let duration = started.elapsed();
    let mut measurements = Measurements::default();
    measurements.add_latencies("soak_writes", acknowledged.iter().map(|write| write.latency).collect(), duration);
    let slowest = acknowledged.iter().map(|write| write.latency).max().unwrap_or_default();
    measurements.add("soak_write_worst_ms", slowest.as_secs_f64() * 1000.0);

    acknowledged.sort_by_key(|write| write.revision);
    let mut expected = vec![Vec::new(); NAMESPACES];
    acknowledged.iter().for_each(|write| expected[write.index % NAMESPACES].push(write.revision));
    let last_revisions = expected.iter().map(|revisions| revisions.last().copied().unwrap_or_default()).collect();
    final_revisions.send_replace(Some(last_revisions));
    let (incorrect, events) = compare(watchers, &expected).await?;
    measurements.add("soak_events_per_s", events as f64 / started.elapsed().as_secs_f64());
    measurements.add("soak_watches_wrong", incorrect as f64);
    let results = idle_watch_results(idle_watches).await?;
    for (name, count) in results {
        measurements.add(name, count as f64);
    }
    Ok(measurements)
}

/// Returns the latest revision of the server.
async fn latest_revision(target: &LoadTarget) -> Result<u64> {
    let mut connection = target.connect().await?;
    let path = "/api/v1/namespaces/soak-0/configmaps?limit=1";
    let list = connection.send_ok(&Request::get(path)).await?;
    // Servers may encode the metadata of a list before or after its items. The largest revision is that of the list.
    let mut latest = 0;
    let mut remaining: &[u8] = &list;
    while let Some(position) = memmem::find(remaining, b"\"resourceVersion\":\"") {
        latest = latest.max(revision(&remaining[position..])?);
        remaining = &remaining[position + 1..];
    }
    Ok(latest)
}

/// Creates `objects` objects, then patches half of them.
async fn write_objects(
    target: &LoadTarget,
    namespaces: &[String],
    (objects, writers): (usize, usize),
) -> Result<Vec<AcknowledgedWrite>> {
    let object_key = {
        let (namespaces, run) = (namespaces.to_vec(), unique_run_name());
        move |n: usize| (namespaces[n % NAMESPACES].clone(), format!("s{run}-{n}"))
    };
    let create = {
        let object_key = object_key.clone();
        move |n| {
            let (namespace, name) = object_key(n);
            create_request(&namespace, &name)
        }
    };
    let patch = move |n| {
        let (namespace, name) = object_key(n);
        patch_request(&namespace, &name, "on")
    };
    let mut acknowledged = send(target.connections(writers).await?, objects, create).await?;
    acknowledged.extend(send(target.connections(writers).await?, objects / 2, patch).await?);
    Ok(acknowledged)
}

/// Reads a watch until it has received the final revision of its namespace.
async fn watch_until(namespace: usize, mut lines: WatchLines, mut final_revisions: FinalRevisions) -> WatchResult {
    let mut result = WatchResult { namespace, revisions: Vec::new(), error: None };
    let mut deadline = None;
    loop {
        if let Some(last_revisions) = final_revisions.borrow().as_ref() {
            if result.revisions.last() >= last_revisions.get(namespace) {
                return result;
            }
            deadline.get_or_insert(tokio::time::Instant::now() + CATCH_UP_TIMEOUT);
        }
        let timeout = async {
            match deadline {
                Some(deadline_at) => tokio::time::sleep_until(deadline_at).await,
                None => std::future::pending().await,
            }
        };
        let line = tokio::select! {
            line = lines.next() => line,
            _ = final_revisions.changed(), if deadline.is_none() => continue,
            () = timeout => Err("timed out".into()),
        };
        let received = line.and_then(|line| revision(&line.ok_or("the watch has ended")?));
        match received {
            Ok(revision) => result.revisions.push(revision),
            Err(error) => {
                result.error = Some(error.to_string());
                return result;
            }
        }
    }
}

/// Returns the number of watches whose events differ from the acknowledged writes, and the total number of received
/// events.
async fn compare(mut watchers: JoinSet<WatchResult>, expected: &[Vec<u64>]) -> Result<(usize, usize)> {
    let (mut incorrect, mut events) = (0, 0);
    while let Some(result) = watchers.join_next().await {
        let result = result?;
        events += result.revisions.len();
        if result.revisions != expected[result.namespace] {
            incorrect += 1;
            let (received, acknowledged) = (result.revisions.len(), expected[result.namespace].len());
            eprintln!("a watch received {received} of {acknowledged} events: {}", result.error.unwrap_or_default());
        }
    }
    Ok((incorrect, events))
}

/// Counts the idle watches by result: ended with status 410, closed by the server, or still open.
async fn idle_watch_results(idle_watches: Vec<ResponseBody>) -> Result<BTreeMap<&'static str, usize>> {
    let mut results = BTreeMap::new();
    for body in idle_watches {
        let mut lines = WatchLines::new(body);
        let outcome = loop {
            match tokio::time::timeout(Duration::from_secs(2), lines.next()).await {
                Ok(Ok(Some(line))) if memmem::find(&line, b"\"code\":410").is_some() => break "soak_slow_received_410",
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None) | Err(_)) => break "soak_slow_closed",
                Err(_) => break "soak_slow_caught_up",
            }
        };
        *results.entry(outcome).or_default() += 1;
    }
    Ok(results)
}
