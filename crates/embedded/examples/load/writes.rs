//! Write phases: measure the throughput and latency of creating and patching objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::connection::{Connection, Request};
use crate::measurements::Measurements;
use crate::phase_options::PhaseOptions;
use crate::result::Result;
use crate::target::LoadTarget;
use crate::watch_reader::revision;

/// Bytes of data per object.
const DATA_LENGTH: usize = 256;

/// An acknowledged write.
pub(crate) struct AcknowledgedWrite {
    pub(crate) index: usize,
    pub(crate) revision: u64,
    pub(crate) latency: Duration,
}

/// Returns a unique name for this run. It becomes part of object names, so that phases can be repeated on one server.
pub(crate) fn unique_run_name() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", now.as_millis())
}

/// Returns a request that creates a ConfigMap.
pub(crate) fn create_request(namespace: &str, name: &str) -> Request {
    let data = "x".repeat(DATA_LENGTH);
    let body = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"app":"load"}}}},"data":{{"value":"{data}"}}}}"#);
    Request::post(format!("/api/v1/namespaces/{namespace}/configmaps"), body.into())
}

/// Returns a request that patches a ConfigMap.
pub(crate) fn patch_request(namespace: &str, name: &str, value: &str) -> Request {
    let body = format!(r#"{{"data":{{"state":"{value}"}}}}"#);
    Request::merge_patch(format!("/api/v1/namespaces/{namespace}/configmaps/{name}"), body.into())
}

/// Sends the writes `0..count` over the connections. Each connection sends the next unsent write as soon as its
/// previous one is acknowledged.
pub(crate) async fn send(
    connections: Vec<Connection>,
    count: usize,
    make_request: impl Fn(usize) -> Request + Send + Sync + 'static,
) -> Result<Vec<AcknowledgedWrite>> {
    let (make_request, next) = (Arc::new(make_request), Arc::new(AtomicUsize::new(0)));
    let mut tasks: JoinSet<Result<Vec<AcknowledgedWrite>>> = JoinSet::new();
    for mut connection in connections {
        let (make_request, next) = (Arc::clone(&make_request), Arc::clone(&next));
        tasks.spawn(async move {
            let mut acknowledged = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok(acknowledged);
                }
                let request = make_request(index);
                let started = Instant::now();
                let response = connection.send_ok(&request).await?;
                acknowledged.push(AcknowledgedWrite {
                    index,
                    revision: revision(&response)?,
                    latency: started.elapsed(),
                });
            }
        });
    }
    let mut writes = Vec::with_capacity(count);
    while let Some(acknowledged) = tasks.join_next().await {
        writes.extend(acknowledged??);
    }
    Ok(writes)
}

/// Runs the phase `create`.
pub(crate) async fn create(target: &LoadTarget, options: &PhaseOptions) -> Result<Measurements> {
    let (count, writers) = (options.get("count", 5000), options.get("writers", 16));
    let namespace = target.namespaces("bench", 1).await?.remove(0);
    let (run, connections) = (unique_run_name(), target.connections(writers).await?);
    measure("create", send(connections, count, move |n| create_request(&namespace, &format!("c{run}-{n}")))).await
}

/// Runs the phase `patch`, which creates `count` / 10 objects and patches each of them ten times.
pub(crate) async fn patch(target: &LoadTarget, options: &PhaseOptions) -> Result<Measurements> {
    let (count, writers) = (options.get("count", 5000), options.get("writers", 16));
    let namespace = target.namespaces("bench", 1).await?.remove(0);
    let (run, objects) = (unique_run_name(), (count / 10).max(1));
    let (create_namespace, create_run) = (namespace.clone(), run.clone());
    let connections = target.connections(writers).await?;
    send(connections, objects, move |n| create_request(&create_namespace, &format!("p{create_run}-{n}"))).await?;
    let make_request = move |n: usize| patch_request(&namespace, &format!("p{run}-{}", n % objects), &n.to_string());
    let connections = target.connections(writers).await?;
    measure("patch", send(connections, count, make_request)).await
}

/// Measures the throughput and latency of the writes of a phase.
async fn measure(name: &str, writes: impl Future<Output = Result<Vec<AcknowledgedWrite>>>) -> Result<Measurements> {
    let started = Instant::now();
    let acknowledged = writes.await?;
    let duration = started.elapsed();
    let mut measurements = Measurements::default();
    measurements.add_latencies(name, acknowledged.into_iter().map(|write| write.latency).collect(), duration);
    Ok(measurements)
}
