//! A full cluster at rest, and what one event does to it.

use std::time::{Duration, Instant};

use cluster::Kind;
use cluster::object::meta;
use operator::kinds::{DEPLOYMENT, MADE, NODE, OME_SERVICE, POD};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::client::{Cluster, Seen, next_within};
use crate::cluster::{EVENT, namespace, node_name};
use crate::workloads::pod_status;
use crate::{Figures, Result, Sizes};

/// After so long without a write nothing more will come of an event.
const SILENCE: Duration = Duration::from_millis(400);
/// Between two looks at the operator's own count.
const LOOK: Duration = Duration::from_millis(20);

/// Edits one service after the other: from the edit to the operator's last write for it.
pub(crate) async fn edits(cluster: &Cluster, sizes: &Sizes) -> Result<Figures> {
    let (count, services) = (sizes.get("edits", 200), sizes.get("services", 2000));
    let mut seen = followed(cluster).await?;
    let mut times = Vec::new();
    for round in 0..count {
        let number = round * 14 % services;
        let name = format!("chat-{number:04}");
        let image = format!("example.com/engine:{round}");
        let edit = json!({"spec": {"engine": {"runner": {"image": image}}}});
        let began = Instant::now();
        cluster.patch(OME_SERVICE, &namespace(number), &name, &edit).await?;
        times.extend(last_write(&mut seen, &name, OME_SERVICE).await.map(|at| milliseconds(began, at)));
    }
    told("edit", count, times)
}

/// Makes one Pod unready, and ready again, and its Deployment count it: from that to the operator's last write for its
/// service.
pub(crate) async fn flips(cluster: &Cluster, sizes: &Sizes) -> Result<Figures> {
    let (count, services) = (sizes.get("flips", 100), sizes.get("services", 2000));
    let mut seen = followed(cluster).await?;
    let mut times = Vec::new();
    for round in 0..count {
        // Odd ones, while edits take even ones: a Deployment that was edited waits here for a rollout.
        let number = (round * 22 + 3) % services;
        let (service, deployment) = (format!("chat-{number:04}"), format!("chat-{number:04}-engine"));
        for ready in [false, true] {
            let status = if ready { "True" } else { "False" };
            let pod = pod_status(status);
            cluster.patch_status(POD, &namespace(number), &format!("{deployment}-0"), &pod).await?;
            let counted = json!({"readyReplicas": u8::from(ready), "availableReplicas": u8::from(ready)});
            let began = Instant::now();
            cluster.patch_status(DEPLOYMENT, &namespace(number), &deployment, &counted).await?;
            let last = last_write(&mut seen, &service, DEPLOYMENT).await;
            times.extend(last.map(|at| milliseconds(began, at)));
        }
    }
    told("flip", 2 * count, times)
}

fn told(name: &str, count: usize, times: Vec<f64>) -> Result<Figures> {
    let mut figures = Figures::default();
    figures.add(&format!("{name}s_answered"), times.len() as f64 / count as f64);
    figures.add_times(name, times);
    Ok(figures)
}

async fn followed(cluster: &Cluster) -> Result<UnboundedReceiver<Seen>> {
    let kinds: Vec<Kind> = MADE.iter().copied().chain([OME_SERVICE, EVENT]).collect();
    cluster.follow(&kinds).await
}

/// When the last change of what belongs to a service was seen, after the first one of the kind `own`, which is ours.
async fn last_write(seen: &mut UnboundedReceiver<Seen>, name: &str, own: Kind) -> Option<Instant> {
    let (mut ours, mut last) = (false, None);
    while let Some(one) = next_within(seen, SILENCE).await {
        match meta(&one.object, "name").starts_with(name) {
            true if !ours && one.kind == own => ours = true,
            true => last = last.max(Some(one.at)),
            false => {}
        }
    }
    last
}

fn milliseconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1000.0
}

/// Cordons a node: every service is looked at again. Until the operator decides nothing more.
pub(crate) async fn cordon(cluster: &Cluster, sizes: &Sizes) -> Result<Figures> {
    let port = sizes.get("metrics", 9464);
    let before = decisions(port).await?;
    let began = Instant::now();
    cluster.patch(NODE, "", &node_name(0), &json!({"spec": {"unschedulable": true}})).await?;
    let (mut last, mut changed) = (before, began);
    while changed.elapsed() < Duration::from_secs(2) {
        tokio::time::sleep(LOOK).await;
        let now = decisions(port).await?;
        if now != last {
            (last, changed) = (now, Instant::now());
        }
    }
    let mut figures = Figures::default();
    figures.add("cordon_ms", milliseconds(began, changed));
    figures.add("cordon_decisions", last - before);
    Ok(figures)
}

/// Does nothing, and sees that nothing is done.
pub(crate) async fn quiet(cluster: &Cluster, sizes: &Sizes) -> Result<Figures> {
    let port = sizes.get("metrics", 9464);
    let before = (cluster.revision().await?, decisions(port).await?);
    tokio::time::sleep(Duration::from_secs(sizes.get("seconds", 60) as u64)).await;
    let after = (cluster.revision().await?, decisions(port).await?);
    let mut figures = Figures::default();
    figures.add("quiet_writes", (after.0 - before.0) as f64);
    figures.add("quiet_decisions", after.1 - before.1);
    Ok(figures)
}

/// How many decisions the operator has taken.
async fn decisions(port: usize) -> Result<f64> {
    let mut stream = tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let line = text.lines().find_map(|line| line.strip_prefix("ostler_decision_duration_seconds_count "));
    Ok(line.ok_or("the operator counts no decisions")?.parse()?)
}
