//! Phase `rollout`: creates all services at once and measures until each is ready, and the operator's writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use cluster::metadata_field;
use operator::kinds::{ACCELERATOR_CLASS, DEPLOYMENT, OME_SERVICE, OWNED};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::client::{Cluster, ObservedChange, next_change};
use crate::cluster::{EVENT, service};
use crate::measurements::Measurements;
use crate::parameters::Parameters;
use crate::result::Result;
use crate::workloads::{self, NodeCapacity};

/// Timeout if no change is observed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time without a change after which the operator counts as idle.
const QUIET_PERIOD: Duration = Duration::from_secs(3);

/// Minimum number of status writes per service: one for the decision and one for readiness.
const MIN_STATUS_WRITES: f64 = 2.0;

pub(crate) async fn run(cluster: &Cluster, parameters: &Parameters) -> Result<Measurements> {
    let (count, nodes) = (parameters.get("services", 2000), parameters.get("nodes", 500));
    let kinds: Vec<_> = OWNED.iter().copied().chain([OME_SERVICE, EVENT, ACCELERATOR_CLASS]).collect();
    let mut changes = cluster.watch(&kinds).await?;
    let start = Instant::now();
    let services = (0..count).map(service).collect();
    let create_task = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.create_all(OME_SERVICE, services).await }
    });
    let mut simulation = Simulation::new(nodes);
    while simulation.ready.len() < count {
        let change = next_change(&mut changes, TIMEOUT)
            .await
            .ok_or_else(|| format!("timed out with {} of {count} services ready", simulation.ready.len()))?;
        simulation.handle_change(cluster, &change)?;
    }
    let duration = start.elapsed();
    create_task.await??;
    while let Some(result) = simulation.tasks.join_next().await {
        result??;
    }
    while let Some(change) = next_change(&mut changes, QUIET_PERIOD).await {
        simulation.handle_change(cluster, &change)?;
    }
    Ok(simulation.measurements(count, duration))
}

struct Simulation {
    node_capacity: NodeCapacity,
    tasks: JoinSet<Result<()>>,
    deployments: BTreeSet<String>,
    ready: BTreeSet<String>,
    /// Number of changes by kind.
    changes: BTreeMap<&'static str, usize>,
}

// === impl Simulation ===

impl Simulation {
    fn new(nodes: usize) -> Self {
        Self {
            node_capacity: NodeCapacity::new(nodes),
            tasks: JoinSet::new(),
            deployments: BTreeSet::new(),
            ready: BTreeSet::new(),
            changes: BTreeMap::new(),
        }
    }

    fn handle_change(&mut self, cluster: &Cluster, change: &ObservedChange) -> Result<()> {
        let name =
            format!("{}/{}", metadata_field(&change.object, "namespace"), metadata_field(&change.object, "name"));
        *self.changes.entry(change.kind.kind).or_default() += 1;
        if change.kind == DEPLOYMENT && self.deployments.insert(name.clone()) {
            let pods = self.node_capacity.schedule(&change.object)?;
            let (cluster, deployment) = (cluster.clone(), change.object.clone());
            self.tasks.spawn(async move { workloads::run(&cluster, &deployment, pods).await });
        }
        if change.kind == OME_SERVICE && is_ready(&change.object) {
            self.ready.insert(name);
        }
        Ok(())
    }

    /// Computes the measurements. One change of each service is its creation, and one change of each Deployment is the
    /// status that this program writes.
    fn measurements(&self, count: usize, duration: Duration) -> Measurements {
        let mut measurements = Measurements::default();
        measurements.add("rollout_s", duration.as_secs_f64());
        measurements.add("rollout_services_per_s", count as f64 / duration.as_secs_f64());
        let services = count as f64;
        let change_count = |kind: &str| self.changes.get(kind).copied().unwrap_or_default() as f64;
        let statuses = change_count(OME_SERVICE.kind) - services;
        let deployments = change_count(DEPLOYMENT.kind) - self.deployments.len() as f64;
        let other_changes = OWNED.iter().filter(|kind| **kind != DEPLOYMENT).map(|kind| change_count(kind.kind));
        let objects = deployments + other_changes.sum::<f64>();
        let kinds = OWNED.iter().filter(|kind| change_count(kind.kind) > 0.0).count() as f64;
        measurements.add("objects_written_per_service", objects / services);
        measurements.add("statuses_written_per_service", statuses / services);
        measurements.add("writes_times_ideal", (objects + statuses) / services / (kinds + MIN_STATUS_WRITES));
        measurements.add("events_per_service", change_count(EVENT.kind) / services);
        measurements.add("class_statuses", change_count(ACCELERATOR_CLASS.kind));
        measurements
    }
}

fn is_ready(service: &Value) -> bool {
    cluster::find_condition(&service["status"]["conditions"], "Ready").is_some_and(|ready| ready["status"] == "True")
}
