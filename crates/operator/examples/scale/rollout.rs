//! All services at once, until each is ready: how long, and how many writes of the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use cluster::object::meta;
use operator::kinds::{CLASS, DEPLOYMENT, MADE, OME_SERVICE};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::client::{Cluster, Seen, next_within};
use crate::cluster::{EVENT, service};
use crate::workloads::{self, Room};
use crate::{Figures, Result, Sizes};

/// With nothing seen for so long, nothing more will come.
const STUCK: Duration = Duration::from_secs(60);
/// The operator has nothing more to say.
const SILENCE: Duration = Duration::from_secs(3);

/// Writes of the operator that a service needs besides its objects: the decision, and that it is ready.
const STATUSES: f64 = 2.0;

pub(crate) async fn run(cluster: &Cluster, sizes: &Sizes) -> Result<Figures> {
    let (count, nodes) = (sizes.get("services", 2000), sizes.get("nodes", 500));
    let kinds: Vec<_> = MADE.iter().copied().chain([OME_SERVICE, EVENT, CLASS]).collect();
    let mut seen = cluster.follow(&kinds).await?;
    let began = Instant::now();
    let services = (0..count).map(service).collect();
    let creating = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.create_all(OME_SERVICE, services).await }
    });
    let mut play = Play::new(nodes);
    while play.ready.len() < count {
        let one = next_within(&mut seen, STUCK).await.ok_or_else(|| format!("{} are ready", play.ready.len()))?;
        play.take(cluster, &one)?;
    }
    let whole = began.elapsed();
    creating.await??;
    while let Some(done) = play.running.join_next().await {
        done??;
    }
    while let Some(one) = next_within(&mut seen, SILENCE).await {
        play.take(cluster, &one)?;
    }
    Ok(play.figures(count, whole))
}

struct Play {
    room: Room,
    running: JoinSet<Result<()>>,
    deployments: BTreeSet<String>,
    ready: BTreeSet<String>,
    /// Changes by kind.
    changes: BTreeMap<&'static str, usize>,
}

// === impl Play ===

impl Play {
    fn new(nodes: usize) -> Self {
        Self {
            room: Room::new(nodes),
            running: JoinSet::new(),
            deployments: BTreeSet::new(),
            ready: BTreeSet::new(),
            changes: BTreeMap::new(),
        }
    }

    fn take(&mut self, cluster: &Cluster, seen: &Seen) -> Result<()> {
        let name = format!("{}/{}", meta(&seen.object, "namespace"), meta(&seen.object, "name"));
        *self.changes.entry(seen.kind.kind).or_default() += 1;
        if seen.kind == DEPLOYMENT && self.deployments.insert(name.clone()) {
            let pods = self.room.place(&seen.object)?;
            let (cluster, deployment) = (cluster.clone(), seen.object.clone());
            self.running.spawn(async move { workloads::run(&cluster, &deployment, pods).await });
        }
        if seen.kind == OME_SERVICE && is_ready(&seen.object) {
            self.ready.insert(name);
        }
        Ok(())
    }

    /// One change of each service is its creation, and one of each Deployment its status, from here.
    fn figures(&self, count: usize, whole: Duration) -> Figures {
        let mut figures = Figures::default();
        figures.add("rollout_s", whole.as_secs_f64());
        figures.add("rollout_services_per_s", count as f64 / whole.as_secs_f64());
        let services = count as f64;
        let of = |kind: &str| self.changes.get(kind).copied().unwrap_or_default() as f64;
        let statuses = of(OME_SERVICE.kind) - services;
        let deployments = of(DEPLOYMENT.kind) - self.deployments.len() as f64;
        let others = MADE.iter().filter(|kind| **kind != DEPLOYMENT).map(|kind| of(kind.kind));
        let objects = deployments + others.sum::<f64>();
        let kinds = MADE.iter().filter(|kind| of(kind.kind) > 0.0).count() as f64;
        figures.add("objects_written_per_service", objects / services);
        figures.add("statuses_written_per_service", statuses / services);
        figures.add("writes_times_ideal", (objects + statuses) / services / (kinds + STATUSES));
        figures.add("events_per_service", of(EVENT.kind) / services);
        figures.add("class_statuses", of(CLASS.kind));
        figures
    }
}

fn is_ready(service: &Value) -> bool {
    cluster::conditions::find(&service["status"]["conditions"], "Ready").is_some_and(|ready| ready["status"] == "True")
}
