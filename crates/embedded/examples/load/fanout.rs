//! Fan-out phase: measures the total events per second that many watches of one collection receive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::memchr_iter;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::connection::ResponseBody;
use crate::measurements::Measurements;
use crate::phase_options::PhaseOptions;
use crate::result::Result;
use crate::target::LoadTarget;
use crate::watch_reader::revision;
use crate::writes::{create_request, patch_request, send, unique_run_name};

/// Runs the phase `fanout`.
pub(crate) async fn run(target: &LoadTarget, options: &PhaseOptions) -> Result<Measurements> {
    let (watches, count, writers) =
        (options.get("watches", 500), options.get("count", 500), options.get("writers", 16));
    let namespace = target.namespaces("fanout", 1).await?.remove(0);
    let run_name = unique_run_name();
    let start_revision = revision(&target.connect().await?.send_ok(&create_request(&namespace, &run_name)).await?)?;

    let ready = Arc::new(Barrier::new(watches + 1));
    let mut tasks: JoinSet<Result<Instant>> = JoinSet::new();
    for _ in 0..watches {
        let (target, ready) = (target.clone(), Arc::clone(&ready));
        let path = format!("/api/v1/namespaces/{namespace}/configmaps?watch=true&resourceVersion={start_revision}");
        tasks.spawn(async move {
            let body = target.connect().await?.open(&path).await;
            ready.wait().await;
            wait_for_events(body?, count).await
        });
    }
    let connections = target.connections(writers).await?;
    ready.wait().await;
    let started = Instant::now();
    send(connections, count, move |n| patch_request(&namespace, &run_name, &n.to_string())).await?;
    let mut duration = Duration::ZERO;
    while let Some(last_event) = tasks.join_next().await {
        duration = duration.max(last_event??.duration_since(started));
    }
    let mut measurements = Measurements::default();
    measurements.add("fanout_events_per_s", (watches * count) as f64 / duration.as_secs_f64());
    Ok(measurements)
}

/// Waits for `count` events, one per line. Returns the time at which the last one arrived.
async fn wait_for_events(mut body: ResponseBody, count: usize) -> Result<Instant> {
    let mut received = 0;
    while received < count {
        match body.next_chunk().await? {
            Some(chunk) => received += memchr_iter(b'\n', &chunk).count(),
            None => return Err(format!("a watch ended after {received} of {count} events").into()),
        }
    }
    Ok(Instant::now())
}
