//! The work queue of the workload controllers: reconciles every queued object and executes its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use apimachinery::{catch_panic, disruption_budget, object, persistent_volume, time};
use apiserver::{Change, Lagged, Server, Subscription};
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::action::{Action, Plan};
use super::kind::{WORKLOAD_KINDS, WorkloadKey, WorkloadKind};
use super::{
    deployment, disruption, endpoints, enqueue, horizontal_pod_autoscaler, job, leader_worker_set, replica_set,
    stateful_set, volume_claim,
};
use crate::panic_back_off::PanicBackOff;

/// Delay of a retry after an error other than a conflict, in seconds.
const RETRY_DELAY_SECONDS: i64 = 5;

/// Maximum number of changes that are collected before the queued objects are reconciled.
const MAX_COLLECTED_CHANGES: usize = 1000;

/// The work queue of the controllers and their dependencies.
struct ControllerManager {
    server: Server,
    /// Directory in which volumes are provisioned.
    volumes_dir: Option<PathBuf>,
    /// Keys to reconcile now.
    queue: BTreeSet<WorkloadKey>,
    /// Keys to reconcile later, with their due times.
    delayed: BTreeMap<WorkloadKey, Timestamp>,
    panics: PanicBackOff<WorkloadKey>,
}

/// Runs the workload controllers until `stop` is cancelled. The loop sleeps until an object changes or a delayed key is
/// due. If `volumes_dir` is set, the provisioner creates volumes for unbound claims as directories below it.
pub async fn run_workload_controllers(server: Server, volumes_dir: Option<PathBuf>, stop: CancellationToken) {
    let mut changes = server.subscribe();
    server.cache_resources(&WORKLOAD_KINDS.map(WorkloadKind::resource));
    server.cache_resources(&["pods", endpoints::RESOURCE, stateful_set::REVISIONS]);
    let queue = enqueue::all(&server);
    let mut controller =
        ControllerManager { server, volumes_dir, queue, delayed: BTreeMap::new(), panics: PanicBackOff::default() };
    loop {
        controller.process_queue();
        let delay = controller.time_until_next_delayed();
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(delay.unwrap_or_default()), if delay.is_some() => controller.enqueue_due(),
            () = controller.collect_changes(&mut changes) => {}
        }
    }
}

// === impl ControllerManager ===

impl ControllerManager {
    /// Reconciles all queued keys. A key that causes a panic is retried later, so that it does not stop the others.
    fn process_queue(&mut self) {
        while let Some(key) = self.queue.pop_first() {
            self.delayed.remove(&key);
            match catch_panic(|| self.reconcile(&key)) {
                Ok(()) => self.panics.reset(&key),
                Err(panic) => {
                    tracing::error!(?key, %panic, "failed to reconcile an object");
                    let delay = self.panics.next_delay_seconds(key.clone());
                    self.delayed.insert(key, time::add_seconds(self.server.now(), delay));
                }
            }
        }
    }

    /// Reconciles an object.
    fn reconcile(&mut self, key: &WorkloadKey) {
        let Some(object) = self.server.get(key.kind.resource(), &key.namespace, &key.name) else { return };
        let plan = self.plan(key.kind, &object);
        if let Some(at) = plan.requeue_at {
            self.delayed.insert(key.clone(), at);
        }
        self.execute(key, &object, plan);
    }

    /// Returns the plan of the controller for this object.
    fn plan(&self, kind: WorkloadKind, object: &Value) -> Plan {
        let now = self.server.now();
        let random = self.server.random();
        let list_in_namespace = |resource: &str| self.server.list_namespace(resource, object::namespace(object));
        let pods = list_in_namespace("pods");
        match kind {
            WorkloadKind::Deployment => deployment::plan(object, &list_in_namespace(replica_set::RESOURCE), &pods, now),
            WorkloadKind::ReplicaSet => replica_set::plan(object, &pods, random, now),
            WorkloadKind::StatefulSet => {
                let (revisions, claims) =
                    (list_in_namespace(stateful_set::REVISIONS), list_in_namespace(persistent_volume::CLAIMS));
                stateful_set::plan(object, &pods, &revisions, &claims, now)
            }
            WorkloadKind::Job => job::plan(object, &pods, random, now),
            WorkloadKind::LeaderWorkerSet => {
                let node = |name: &str| self.server.get("nodes", "", name);
                leader_worker_set::plan(object, &pods, &list_in_namespace("services"), &node, now)
            }
            WorkloadKind::PodDisruptionBudget => disruption::plan(
                object,
                &pods,
                |pod| {
                    disruption_budget::expected_scale(pod, |resource, namespace, name| {
                        self.server.get(resource, namespace, name)
                    })
                },
                &object::format_time(now),
            ),
            WorkloadKind::HorizontalPodAutoscaler => {
                let name = object::text(object, "/spec/scaleTargetRef/name");
                let target = horizontal_pod_autoscaler::target_resource(object)
                    .and_then(|resource| self.server.get(resource, object::namespace(object), name));
                horizontal_pod_autoscaler::plan(object, target.as_deref(), &object::format_time(now))
            }
            WorkloadKind::PersistentVolumeClaim => {
                let (volumes, classes) =
                    (self.server.list(persistent_volume::VOLUMES), self.server.list(persistent_volume::CLASSES));
                volume_claim::plan_claim(object, &volumes, &classes, &pods, self.volumes_dir.as_deref())
            }
            WorkloadKind::PersistentVolume => {
                let text = |field| object::text(object, field);
                let (namespace, name) = (text("/spec/claimRef/namespace"), text("/spec/claimRef/name"));
                let claim = self.server.get(persistent_volume::CLAIMS, namespace, name);
                volume_claim::plan_volume(object, claim.as_deref())
            }
            WorkloadKind::Service => endpoints::plan(object, &pods, &list_in_namespace(endpoints::RESOURCE), random),
        }
    }

    /// Executes the actions in order. A conflict requeues the key immediately, as the store already has the newer
    /// object.
    fn execute(&mut self, key: &WorkloadKey, object: &Value, plan: Plan) {
        for action in plan.actions {
            let is_create = matches!(action, Action::Create { .. });
            let Err(status) = action.execute(&self.server, key.kind.component()) else { continue };
            match status.code {
                404 => {}
                409 if !is_create => {
                    self.queue.insert(key.clone());
                }
                _ => {
                    tracing::debug!(?key, %status, "failed to execute an action");
                    if is_create {
                        let message = format!("Error creating: {status}");
                        self.server.record_event(object, "Warning", "FailedCreate", &message, key.kind.component());
                    }
                    let due_at = time::add_seconds(self.server.now(), RETRY_DELAY_SECONDS);
                    self.delayed.insert(key.clone(), due_at);
                }
            }
            return;
        }
    }

    /// Waits for a change and enqueues the objects that it and all other available changes affect: a burst changes many
    /// Pods of one object, which needs to be reconciled only once. Cancel-safe.
    async fn collect_changes(&mut self, changes: &mut Subscription) {
        let first = changes.next().await;
        self.enqueue_affected(first);
        for _ in 0..MAX_COLLECTED_CHANGES {
            let Some(change) = changes.next().now_or_never() else { return };
            self.enqueue_affected(change);
        }
    }

    /// Enqueues the objects that a change affects.
    fn enqueue_affected(&mut self, change: Result<Change, Lagged>) {
        self.queue.extend(match change {
            Ok(change) => enqueue::affected(&self.server, &change),
            Err(_) => enqueue::all(&self.server),
        });
    }

    /// Returns the time until the next delayed key is due.
    fn time_until_next_delayed(&self) -> Option<std::time::Duration> {
        let next_at = self.delayed.values().min()?;
        Some(time::duration_until(*next_at, self.server.now()))
    }

    /// Moves delayed keys that are due into the queue.
    fn enqueue_due(&mut self) {
        let now = self.server.now();
        let due_keys: Vec<WorkloadKey> =
            self.delayed.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        self.queue.extend(due_keys);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use apiserver::ports::{Admission, AdmissionRequest, AdmissionResponse, ServerPorts};
    use serde_json::json;

    use super::super::action::BURST_REPLICAS;
    use super::*;

    /// Denies Pods beyond a quota and counts all attempts to create one.
    struct PodQuota {
        limit: usize,
        attempts: AtomicUsize,
    }

    impl Admission for PodQuota {
        fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
            let is_create = request.resource == "pods" && request.operation == "CREATE";
            let allowed = !is_create || self.attempts.fetch_add(1, Ordering::Relaxed) < self.limit;
            AdmissionResponse { allowed, message: "exceeded quota".to_owned(), ..AdmissionResponse::default() }
        }
    }

    fn manager(quota: &Arc<PodQuota>) -> ControllerManager {
        let server = Server::new(&ServerPorts { admission: Arc::<PodQuota>::clone(quota), ..ServerPorts::default() });
        let (queue, delayed, panics) = (BTreeSet::new(), BTreeMap::new(), PanicBackOff::default());
        ControllerManager { server, volumes_dir: None, queue, delayed, panics }
    }

    fn create_job(manager: &mut ControllerManager, parallelism: i64) -> WorkloadKey {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        let job = json!({"metadata": {"name": "once", "namespace": "default"},
            "spec": {"parallelism": parallelism, "completions": parallelism, "template": {"spec": pod}}});
        let key = WorkloadKey::new(WorkloadKind::Job, &manager.server.create(job::RESOURCE, job).unwrap());
        manager.queue.insert(key.clone());
        key
    }

    #[tokio::test]
    async fn collects_all_changes_of_a_burst_before_the_next_reconcile() {
        let quota = Arc::new(PodQuota { limit: usize::MAX, attempts: AtomicUsize::new(0) });
        let mut manager = manager(&quota);
        let key = create_job(&mut manager, 700);
        let mut changes = manager.server.subscribe();
        let mut pods = Vec::new();
        // One round for each of the two bursts, one for the status, and one that changes nothing.
        for _ in 0..4 {
            manager.process_queue();
            pods.push(manager.server.list("pods").len());
            manager.collect_changes(&mut changes).now_or_never();
        }
        assert_eq!(pods, [BURST_REPLICAS, 700, 700, 700]);
        assert!(!manager.queue.contains(&key), "{:?}", manager.queue);
    }

    #[tokio::test]
    async fn first_rejected_pod_ends_the_burst() {
        let quota = Arc::new(PodQuota { limit: 3, attempts: AtomicUsize::new(0) });
        let mut manager = manager(&quota);
        let key = create_job(&mut manager, 700);
        manager.process_queue();
        assert_eq!(manager.server.list("pods").len(), 3);
        assert_eq!(quota.attempts.load(Ordering::Relaxed), 4);
        assert!(manager.delayed.contains_key(&key), "the controller retries later");
    }
}
