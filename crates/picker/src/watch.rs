//! Watches pools, use cases and Pods, updates the snapshot of the scheduler, writes the status of BackendPools and use
//! cases, and applies the InferencePools that represent BackendPools.
//!
//! Required permissions for one InferencePool, in its namespace: `list` and `watch` of `pods`, and of `inferencepools` in the
//! API group of the pool (a rule with the name of this pool in `resourceNames` is sufficient). Its use cases have effect if it
//! may also list and watch `llmusecases` and `llmusecasesets`, and the BackendPool of the same name. Its watch writes no
//! objects.

mod activator;
mod changes;
mod pool_report;
mod projector;
mod rebuilds;
mod statuses;
mod written_statuses;

use std::{collections::BTreeSet, panic::resume_unwind, str::FromStr, sync::Arc, time::Duration};

use cluster::{Change, Clock, Kind, NamespacedName, StatusWriter, Stores, Watches, metadata_field};
use supervisor::TaskFailure;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    http_routes::{CONTROLLER_NAME, GatewayObjects, ServedGateways},
    index::{self, ExtensionObjects, ParsedConfigs, PoolIndex, WatchedObjects},
    kinds::{
        BACKEND_POOL, GATEWAY, GATEWAY_CLASS, HTTP_ROUTE, INFERENCE_OBJECTIVES, INFERENCE_POOL_V1, MODEL_REWRITES,
        NAMESPACE, PICKER_CONFIG, POD, REFERENCE_GRANT, USE_CASE, USE_CASE_SET,
    },
    objective_status::objective_statuses,
    pod::has_terminated,
    projection::EndpointPickerService,
    scheduler::Scheduler,
    unserved_targets::unserved_targets,
};
use activator::Activator;
use changes::PendingChanges;
use pool_report::PoolReport;
use projector::Projector;
use rebuilds::Rebuilds;
use statuses::Statuses;

/// Field manager of the gateway: the statuses of pools and use cases, and the numbers of replicas that it sets.
const MANAGER: &str = "ostler-picker";

/// How often an incomplete snapshot is checked for optional kinds that the API server rejected.
const COMPLETION_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How often the target models of use cases are compared with those that the engines list, and latencies with objectives.
const TARGET_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Kinds of the use cases of one pool. Their absence is logged.
const USE_CASE_KINDS: [Kind; 3] = [BACKEND_POOL, USE_CASE_SET, USE_CASE];

/// Kinds from which routes are built. Namespaces have the labels that a listener may select.
const GATEWAY_KINDS: [Kind; 5] = [GATEWAY_CLASS, GATEWAY, HTTP_ROUTE, REFERENCE_GRANT, NAMESPACE];

/// API group of the InferencePool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PoolGroup {
    /// `inference.networking.k8s.io/v1`
    #[default]
    Stable,
    /// `inference.networking.x-k8s.io/v1alpha2`
    Experimental,
}

/// Options of [`watch_pools`].
#[derive(Clone)]
pub struct WatchOptions {
    /// Source of the times in the statuses.
    pub clock: Arc<dyn Clock>,
    /// Gateways whose HTTPRoutes are served.
    pub served_gateways: ServedGateways,
    /// Whether the gateway serves HTTPS: it then serves the listeners of Gateways with this protocol, otherwise those with HTTP.
    pub serves_tls: bool,
    /// Controller name of the GatewayClasses whose Gateways are served, and of the entries in the status of HTTPRoutes. Gateway processes
    /// with different options need different names.
    pub controller_name: String,
    /// Endpoint pickers of the InferencePools that represent BackendPools; `None` creates no InferencePools.
    pub endpoint_picker_service: Option<EndpointPickerService>,
}

/// Which pools are watched.
#[derive(Clone)]
enum Scope {
    /// All BackendPools and InferencePools, with their use cases and HTTPRoutes. Their statuses are written.
    AllPools(WatchOptions),
    /// One InferencePool.
    InferencePool { kind: Kind, key: NamespacedName },
}

/// Watches BackendPools, InferencePools, use cases, HTTPRoutes and Pods until `shutdown`. A changed Pod updates the snapshot immediately, another
/// change at the latest after the time that the last rebuild of all pools took. Changed statuses are written concurrently, so that
/// an API server that does not respond to writes does not delay the snapshot.
///
/// A task that panics is restarted; until then, the gateway uses the last snapshot and its health check fails.
///
/// # Errors
/// Restarts do not help.
pub async fn watch_pools(
    client: kube::Client,
    scheduler: Arc<Scheduler>,
    options: WatchOptions,
    shutdown: CancellationToken,
) -> Result<(), TaskFailure> {
    watch(client, Scope::AllPools(options), scheduler, shutdown).await
}

/// Watches the InferencePool `key` and the Pods of its namespace until `shutdown`, like [`watch_pools`].
///
/// # Errors
/// Restarts do not help.
pub(crate) async fn watch_inference_pool(
    client: kube::Client,
    group: PoolGroup,
    key: &NamespacedName,
    scheduler: Arc<Scheduler>,
    shutdown: CancellationToken,
) -> Result<(), TaskFailure> {
    watch(client, Scope::InferencePool { kind: group.kind(), key: key.clone() }, scheduler, shutdown).await
}

async fn watch(
    client: kube::Client,
    scope: Scope,
    scheduler: Arc<Scheduler>,
    shutdown: CancellationToken,
) -> Result<(), TaskFailure> {
    let supervisor = scheduler.supervisor.clone();
    // Shared by all runs: the snapshot stays complete while a restarted run lists the objects again.
    let stores = Stores::new(MANAGER);
    let stop = shutdown.clone();
    let start = move || run(client.clone(), scope.clone(), stores.clone(), Arc::clone(&scheduler), stop.clone());
    supervisor.run_unless_failed(supervisor.supervise("update of the pools", shutdown, start)).await
}

/// Updates the snapshot and the statuses until `shutdown`.
async fn run(
    client: kube::Client,
    scope: Scope,
    stores: Stores,
    scheduler: Arc<Scheduler>,
    shutdown: CancellationToken,
) {
    let statuses = match &scope {
        Scope::AllPools(options) => Some(Arc::new(Statuses::new(Arc::clone(&options.clock)))),
        // Nothing writes the status of an InferencePool.
        Scope::InferencePool { .. } => None,
    };
    let write_statuses = {
        let writer = StatusWriter::new(client.clone(), stores.clone(), MANAGER);
        let (statuses, stores) = (statuses.clone(), stores.clone());
        async move {
            match statuses {
                Some(statuses) => statuses.write(&writer, &stores).await,
                None => std::future::pending().await,
            }
        }
    };
    let activator = match &scope {
        Scope::AllPools(options) => Some(Activator {
            client: client.clone(),
            stores: stores.clone(),
            scheduler: Arc::clone(&scheduler),
            clock: Arc::clone(&options.clock),
            manager: MANAGER,
        }),
        // The permission to scale workloads is that of the gateway.
        Scope::InferencePool { .. } => None,
    };
    let scale_workloads = async move {
        match activator {
            Some(activator) => activator.run().await,
            None => std::future::pending().await,
        }
    };
    let projector = match (&scope, &statuses) {
        (Scope::AllPools(options), Some(statuses)) => {
            let service = options.endpoint_picker_service.clone();
            Some(Projector::new(client.clone(), stores.clone(), MANAGER, service, Arc::clone(statuses)))
        }
        _ => None,
    };
    let project_pools = async move {
        match projector {
            Some(projector) => projector.run().await,
            None => std::future::pending().await,
        }
    };
    // The tasks end with this one, and their panics are panics of this one, which is restarted.
    let write_statuses = AbortOnDropHandle::new(tokio::spawn(write_statuses));
    let scale_workloads = AbortOnDropHandle::new(tokio::spawn(scale_workloads));
    let project_pools = AbortOnDropHandle::new(tokio::spawn(project_pools));
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = update_snapshot(client, &scope, &stores, &scheduler, statuses.as_deref(), &shutdown) => {}
        Err(error) = write_statuses => if let Ok(panic) = error.try_into_panic() { resume_unwind(panic) },
        Err(error) = scale_workloads => if let Ok(panic) = error.try_into_panic() { resume_unwind(panic) },
        Err(error) = project_pools => if let Ok(panic) = error.try_into_panic() { resume_unwind(panic) },
    }
}

/// Updates the snapshot after each change once the first lists are complete, and adds the changed statuses to `statuses`.
async fn update_snapshot(
    client: kube::Client,
    scope: &Scope,
    stores: &Stores,
    scheduler: &Scheduler,
    statuses: Option<&Statuses>,
    shutdown: &CancellationToken,
) {
    let supervisor = scheduler.supervisor.clone();
    let (mut watches, mut changes) = Watches::new(client, stores.clone(), supervisor, shutdown.clone());
    scope.start(&mut watches);
    // After a restart, the snapshot is complete, and the lists may contain no changes.
    let was_complete = scheduler.readiness_failures().is_empty();
    let unlisted = || -> Vec<Kind> {
        let required = scope.kinds().into_iter().filter(|kind| !stores.has_synced(*kind));
        required.chain(watches.unanswered_optional_kinds().into_iter().filter(|_| !was_complete)).collect()
    };
    let group_resources = |kinds: &[Kind]| kinds.iter().map(Kind::group_resource).collect::<Vec<_>>();
    let mut pending = unlisted();
    scheduler.set_unlisted(&group_resources(&pending));
    let mut rebuilds = Rebuilds::new(pending.is_empty());
    let (mut report, mut configs, mut index) = (PoolReport::default(), ParsedConfigs::default(), PoolIndex::default());
    let mut next_target_check = Instant::now();
    loop {
        let wake_up = match pending.is_empty() {
            true => rebuilds.due().into_iter().chain(statuses.map(|_| next_target_check)).min(),
            // An optional list that the API server rejects is no change.
            false => Some(Instant::now() + COMPLETION_CHECK_INTERVAL),
        };
        let mut changed = PendingChanges::default();
        if !wait_for_change(&mut changes, wake_up, &mut changed).await {
            return;
        }
        // Update the pools once for all pending changes.
        while let Ok(change) = changes.try_recv() {
            changed.add(change);
        }
        update_pods(&mut index, &changed, scheduler, statuses);
        if changed.requires_rebuild {
            rebuilds.request();
        }
        if !pending.is_empty() {
            pending = unlisted();
            if !pending.is_empty() {
                scheduler.set_unlisted(&group_resources(&pending));
                continue;
            }
            rebuilds.request();
        }
        if let Some(statuses) = statuses.filter(|_| Instant::now() >= next_target_check) {
            let snapshot = scheduler.snapshot();
            statuses.set_unserved_targets(unserved_targets(&snapshot), &index);
            statuses.set_objectives(objective_statuses(&snapshot, Instant::now()), &index);
            next_target_check = Instant::now() + TARGET_CHECK_INTERVAL;
        }
        if rebuilds.due().is_none_or(|due| Instant::now() < due) {
            continue;
        }
        let start = Instant::now();
        let objects = watched_objects(scope, stores);
        let old = std::mem::replace(&mut index, index::build_index(&objects, scheduler, &mut configs));
        scheduler.replace_all(index.pools.clone(), Arc::clone(&index.routes));
        let pods = objects.pods.iter().filter(|pod| !has_terminated(pod));
        scheduler.end_requests_of_deleted_pods(&pods.map(|pod| metadata_field(pod, "uid")).collect());
        match scope {
            Scope::AllPools(_) => log_rejected_configs(&old, &index),
            Scope::InferencePool { key, .. } => {
                let unavailable = USE_CASE_KINDS.into_iter().filter(|kind| !stores.has_synced(*kind));
                report.update(key, &index, group_resources(&unavailable.collect::<Vec<_>>()));
            }
        }
        if let Some(statuses) = statuses {
            statuses.add_all(&index);
        }
        scheduler.set_unlisted(&[]);
        rebuilds.complete(start);
    }
}

/// Logs which EndpointPickerConfigs have no effect since this index: InferencePools have no condition of the gateway.
fn log_rejected_configs(old: &PoolIndex, new: &PoolIndex) {
    let logged = old.rejected_configs();
    for (pool, message) in new.rejected_configs().iter().filter(|(pool, message)| logged.get(*pool) != Some(*message)) {
        tracing::warn!(%pool, "{message}");
    }
}

/// Updates the pools whose endpoints changed.
fn update_pods(index: &mut PoolIndex, changed: &PendingChanges, scheduler: &Scheduler, statuses: Option<&Statuses>) {
    let mut positions = BTreeSet::new();
    for (key, pod) in &changed.pods {
        positions.extend(index.update_pod(key, pod.as_deref(), scheduler));
    }
    if !positions.is_empty() {
        let pools = positions.iter().filter_map(|position| index.pools.get(*position).cloned());
        scheduler.replace_endpoints(pools.collect());
    }
    changed.ended_pods.iter().for_each(|uid| scheduler.end_requests_of_deleted_pod(uid));
    if let Some(statuses) = statuses {
        statuses.add_pools(index, positions);
        changed.statuses.iter().for_each(|(kind, key)| statuses.add(index, *kind, key));
    }
}

/// Waits for a change, and adds it to `changed`, but not longer than until `wake_up`. Returns whether the watches still run.
async fn wait_for_change(
    changes: &mut mpsc::Receiver<Change>,
    wake_up: Option<Instant>,
    changed: &mut PendingChanges,
) -> bool {
    let change = match wake_up {
        None => changes.recv().await,
        Some(wake_up) => match timeout_at(wake_up, changes.recv()).await {
            Ok(change) => change,
            Err(_) => return true,
        },
    };
    change.map(|change| changed.add(change)).is_some()
}

fn watched_objects(scope: &Scope, stores: &Stores) -> WatchedObjects {
    match scope {
        Scope::AllPools(options) => WatchedObjects {
            backend_pools: stores.list(BACKEND_POOL),
            inference_pools: stores.list(PoolGroup::Stable.kind()),
            pool_settings: Vec::new(),
            use_case_sets: stores.list(USE_CASE_SET),
            use_cases: stores.list(USE_CASE),
            pods: stores.list(POD),
            picker_configs: stores.has_synced(PICKER_CONFIG).then(|| stores.list(PICKER_CONFIG)),
            extension_objects: extension_objects(stores),
            gateway_objects: GatewayObjects {
                served: options.served_gateways,
                serves_tls: options.serves_tls,
                controller_name: options.controller_name.clone(),
                classes: stores.list(GATEWAY_CLASS),
                gateways: stores.list(GATEWAY),
                routes: stores.list(HTTP_ROUTE),
                grants: stores.list(REFERENCE_GRANT),
                namespaces: stores.list(NAMESPACE),
            },
        },
        Scope::InferencePool { kind, .. } => WatchedObjects {
            backend_pools: Vec::new(),
            inference_pools: stores.list(*kind),
            pool_settings: stores.list(BACKEND_POOL),
            use_case_sets: stores.list(USE_CASE_SET),
            use_cases: stores.list(USE_CASE),
            pods: stores.list(POD),
            picker_configs: None,
            extension_objects: extension_objects(stores),
            gateway_objects: GatewayObjects::default(),
        },
    }
}

fn extension_objects(stores: &Stores) -> ExtensionObjects {
    let list = |kinds: [Kind; 2]| kinds.into_iter().flat_map(|kind| stores.list(kind)).collect();
    ExtensionObjects { objectives: list(INFERENCE_OBJECTIVES), rewrites: list(MODEL_REWRITES) }
}

// === impl WatchOptions ===

impl WatchOptions {
    /// Returns the options of a gateway that serves HTTP and the Gateways of the default controller name.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            served_gateways: ServedGateways::OfController,
            serves_tls: false,
            controller_name: CONTROLLER_NAME.to_owned(),
            endpoint_picker_service: None,
        }
    }
}

// === impl PoolGroup ===

impl PoolGroup {
    const GROUPS: [(&str, PoolGroup); 2] =
        [("inference.networking.k8s.io", Self::Stable), ("inference.networking.x-k8s.io", Self::Experimental)];

    fn kind(self) -> Kind {
        match self {
            Self::Stable => INFERENCE_POOL_V1,
            Self::Experimental => Kind::namespaced(Self::GROUPS[1].0, "v1alpha2", "InferencePool", "inferencepools"),
        }
    }
}

impl FromStr for PoolGroup {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let group = Self::GROUPS.iter().find(|(group_name, _)| *group_name == name).map(|(_, group)| *group);
        group.ok_or_else(|| {
            format!("InferencePool is not served in this API group; use {} or {}", Self::GROUPS[0].0, Self::GROUPS[1].0)
        })
    }
}

// === impl Scope ===

impl Scope {
    /// Returns the kinds without which the snapshot is incomplete.
    fn kinds(&self) -> Vec<Kind> {
        match self {
            Self::AllPools(_) => vec![BACKEND_POOL, USE_CASE_SET, USE_CASE, POD],
            Self::InferencePool { kind, .. } => vec![*kind, POD],
        }
    }

    /// Returns the kinds that may be absent, or the permission to read them.
    fn optional_kinds(&self) -> Vec<Kind> {
        match self {
            // The permission to read ConfigMaps is required only for pools that name one. Few clusters without routers have the
            // API of InferencePools, and many do not have the Gateway API.
            Self::AllPools(_) => {
                let kinds = [PICKER_CONFIG, PoolGroup::Stable.kind()];
                [&kinds[..], &INFERENCE_OBJECTIVES, &MODEL_REWRITES, &GATEWAY_KINDS].concat()
            }
            // Other endpoint pickers need no permission for the use cases.
            Self::InferencePool { .. } => [&USE_CASE_KINDS[..], &INFERENCE_OBJECTIVES, &MODEL_REWRITES].concat(),
        }
    }

    fn start(&self, watches: &mut Watches) {
        match self {
            Self::AllPools(_) => {
                for kind in self.kinds() {
                    watches.start(kind);
                }
                for kind in self.optional_kinds() {
                    watches.start_optional(kind);
                }
            }
            Self::InferencePool { kind, key } => {
                watches.start_named(*kind, key);
                watches.start_namespace(POD, &key.namespace);
                watches.start_optional_named(BACKEND_POOL, key);
                for kind in self.optional_kinds().into_iter().filter(|kind| *kind != BACKEND_POOL) {
                    watches.start_optional_namespace(kind, &key.namespace);
                }
            }
        }
    }
}
