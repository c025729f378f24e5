//! Phases that measure the reaction to one event in a full, idle cluster.

use std::time::{Duration, Instant};

use cluster::{Kind, metadata_field};
use operator::kinds::{DEPLOYMENT, NODE, OME_SERVICE, OWNED, POD};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::client::{Cluster, ObservedChange, next_change};
use crate::cluster::{EVENT, namespace, node_name};
use crate::measurements::Measurements;
use crate::parameters::Parameters;
use crate::result::Result;
use crate::workloads::pod_status;

/// Time without a write after which the reaction to an event counts as complete.
const QUIET_PERIOD: Duration = Duration::from_millis(400);
/// Polling interval of the operator's decision counter.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Edits services one by one: measures from the edit to the operator's last write for the service.
pub(crate) async fn edits(cluster: &Cluster, parameters: &Parameters) -> Result<Measurements> {
    let (count, services) = (parameters.get("edits", 200), parameters.get("services", 2000));
    let mut changes = watch_service_objects(cluster).await?;
    let mut times = Vec::new();
    for round in 0..count {
        let number = round * 14 % services;
        let name = format!("chat-{number:04}");
        let image = format!("example.com/engine:{round}");
        let edit = json!({"spec": {"engine": {"runner": {"image": image}}}});
        let start = Instant::now();
        cluster.patch(OME_SERVICE, &namespace(number), &name, &edit).await?;
        times.extend(last_write(&mut changes, &name, OME_SERVICE).await.map(|at| milliseconds(start, at)));
    }
    reaction_measurements("edit", count, times)
}

/// Makes one Pod and its Deployment unready and ready again: measures to the operator's last write for the service.
pub(crate) async fn flips(cluster: &Cluster, parameters: &Parameters) -> Result<Measurements> {
    let (count, services) = (parameters.get("flips", 100), parameters.get("services", 2000));
    let mut changes = watch_service_objects(cluster).await?;
    let mut times = Vec::new();
    for round in 0..count {
        // Uses services with odd numbers: phase `edits` changes those with even numbers, and the Deployments of changed
        // services wait for a rollout.
        let number = (round * 22 + 3) % services;
        let (service, deployment) = (format!("chat-{number:04}"), format!("chat-{number:04}-engine"));
        for ready in [false, true] {
            let status = if ready { "True" } else { "False" };
            let pod = pod_status(status);
            cluster.patch_status(POD, &namespace(number), &format!("{deployment}-0"), &pod).await?;
            let replica_counts = json!({"readyReplicas": u8::from(ready), "availableReplicas": u8::from(ready)});
            let start = Instant::now();
            cluster.patch_status(DEPLOYMENT, &namespace(number), &deployment, &replica_counts).await?;
            let last_write_at = last_write(&mut changes, &service, DEPLOYMENT).await;
            times.extend(last_write_at.map(|at| milliseconds(start, at)));
        }
    }
    reaction_measurements("flip", 2 * count, times)
}

fn reaction_measurements(name: &str, count: usize, times: Vec<f64>) -> Result<Measurements> {
    let mut measurements = Measurements::default();
    measurements.add(&format!("{name}s_answered"), times.len() as f64 / count as f64);
    measurements.add_percentiles(name, times);
    Ok(measurements)
}

async fn watch_service_objects(cluster: &Cluster) -> Result<UnboundedReceiver<ObservedChange>> {
    let kinds: Vec<Kind> = OWNED.iter().copied().chain([OME_SERVICE, EVENT]).collect();
    cluster.watch(&kinds).await
}

/// Returns the time of the last change of a service's objects after the first change of kind `own_kind`, which is the
/// test's own write.
async fn last_write(changes: &mut UnboundedReceiver<ObservedChange>, name: &str, own_kind: Kind) -> Option<Instant> {
    let (mut has_seen_own_write, mut last_change_at) = (false, None);
    while let Some(change) = next_change(changes, QUIET_PERIOD).await {
        match metadata_field(&change.object, "name").starts_with(name) {
            true if !has_seen_own_write && change.kind == own_kind => has_seen_own_write = true,
            true => last_change_at = last_change_at.max(Some(change.observed_at)),
            false => {}
        }
    }
    last_change_at
}

fn milliseconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1000.0
}

/// Cordons a node, which re-evaluates every service: measures until the operator makes no more decisions.
pub(crate) async fn cordon(cluster: &Cluster, parameters: &Parameters) -> Result<Measurements> {
    let port = parameters.get("metrics", 9464);
    let count_before = decisions(port).await?;
    let start = Instant::now();
    cluster.patch(NODE, "", &node_name(0), &json!({"spec": {"unschedulable": true}})).await?;
    let (mut last_count, mut changed_at) = (count_before, start);
    while changed_at.elapsed() < Duration::from_secs(2) {
        tokio::time::sleep(POLL_INTERVAL).await;
        let count = decisions(port).await?;
        if count != last_count {
            (last_count, changed_at) = (count, Instant::now());
        }
    }
    let mut measurements = Measurements::default();
    measurements.add("cordon_ms", milliseconds(start, changed_at));
    measurements.add("cordon_decisions", last_count - count_before);
    Ok(measurements)
}

/// Checks that an idle operator writes nothing.
pub(crate) async fn quiet(cluster: &Cluster, parameters: &Parameters) -> Result<Measurements> {
    let port = parameters.get("metrics", 9464);
    let before = (cluster.resource_version().await?, decisions(port).await?);
    tokio::time::sleep(Duration::from_secs(parameters.get("seconds", 60) as u64)).await;
    let after = (cluster.resource_version().await?, decisions(port).await?);
    let mut measurements = Measurements::default();
    measurements.add("quiet_writes", (after.0 - before.0) as f64);
    measurements.add("quiet_decisions", after.1 - before.1);
    Ok(measurements)
}

/// Returns the number of decisions that the operator has made.
async fn decisions(port: usize) -> Result<f64> {
    let mut stream = tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let line = text.lines().find_map(|line| line.strip_prefix("ostler_decision_duration_seconds_count "));
    Ok(line.ok_or("the operator exports no decision counter")?.parse()?)
}
