//! The work queue of the workload controllers: reconciles every queued object and executes its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use apimachinery::{PanicBackOff, catch_future_panic, catch_panic, disruption_budget, object, persistent_volume};
use apiserver::{Change, Lagged, Server, Subscription};
use futures::FutureExt;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::action::{Action, Plan};
use super::kind::{WORKLOAD_KINDS, WorkloadKey, WorkloadKind};
use super::leader_worker_set::BrokenGroups;
use super::{
    deployment, disruption, endpoints, enqueue, horizontal_pod_autoscaler, job, leader_worker_set, replica_set,
    stateful_set, volume_claim,
};
use crate::due_time;

/// Delay of a retry after an error other than a conflict.
const RETRY_DELAY: Duration = Duration::from_secs(5);

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
    delayed: BTreeMap<WorkloadKey, Instant>,
    panics: PanicBackOff<WorkloadKey>,
    broken_groups: BrokenGroups,
    /// Changed objects, by resource, namespace and name, for which determining the affected keys panicked.
    change_panics: PanicBackOff<(String, String, String)>,
    /// When to enqueue all objects: the next retry of `change_panics`.
    enqueue_all_at: Option<Instant>,
}

/// Runs the workload controllers until `stop` is cancelled. The loop sleeps until an object changes or a delayed key is
/// due. If `volumes_dir` is set, the provisioner creates volumes for unbound claims as directories below it.
pub async fn run_workload_controllers(server: Server, volumes_dir: Option<PathBuf>, stop: CancellationToken) {
    let mut changes = server.subscribe();
    server.cache_resources(&WORKLOAD_KINDS.map(WorkloadKind::resource));
    server.cache_resources(&["pods", endpoints::RESOURCE, stateful_set::REVISIONS]);
    let queue = enqueue::all(&server);
    let mut controller = ControllerManager::new(server, volumes_dir, queue);
    loop {
        controller.process_queue().await;
        let delay = controller.time_until_next_delayed();
        tokio::select! {
            // The order is fixed, so that a run on a virtual clock is reproducible.
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(delay.unwrap_or_default()), if delay.is_some() => controller.enqueue_due(),
            () = controller.collect_changes(&mut changes) => {}
        }
    }
}

// === impl ControllerManager ===

impl ControllerManager {
    fn new(server: Server, volumes_dir: Option<PathBuf>, queue: BTreeSet<WorkloadKey>) -> Self {
        Self {
            server,
            volumes_dir,
            queue,
            delayed: BTreeMap::new(),
            panics: PanicBackOff::default(),
            broken_groups: BrokenGroups::default(),
            change_panics: PanicBackOff::default(),
            enqueue_all_at: None,
        }
    }

    /// Reconciles all queued keys. A key that causes a panic is retried later, so that it does not stop the others.
    /// Other tasks of the worker continue between the keys.
    async fn process_queue(&mut self) {
        while let Some(key) = self.queue.pop_first() {
            tokio::task::yield_now().await;
            self.delayed.remove(&key);
            let Some(object) = self.server.get(key.kind.resource(), &key.namespace, &key.name) else {
                self.panics.reset(&key);
                continue;
            };
            let uid = object::uid(&object);
            if let Some(retry_at) = self.panics.retry_at(&key, uid, due_time::monotonic_now()) {
                self.delayed.insert(key, retry_at.into());
                continue;
            }
            match catch_future_panic(self.reconcile(&key, &object)).await {
                Ok(()) => self.panics.reset(&key),
                Err(panic) => {
                    let retry_at = self.panics.record(key.clone(), uid, due_time::monotonic_now());
                    self.server.report_panic(&object, &panic, key.kind.component());
                    self.delayed.insert(key, retry_at.into());
                }
            }
        }
    }

    /// Reconciles an object.
    async fn reconcile(&mut self, key: &WorkloadKey, object: &Value) {
        let plan = self.plan(key.kind, object);
        if let Some(at) = plan.requeue_at {
            self.delayed.insert(key.clone(), due_time::instant_of(at, &self.server));
        }
        self.execute(key, object, plan).await;
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
                leader_worker_set::plan(object, &pods, &list_in_namespace("services"), &node, &self.broken_groups, now)
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
    /// object. Other tasks of the worker continue between the actions.
    async fn execute(&mut self, key: &WorkloadKey, object: &Value, plan: Plan) {
        for action in plan.actions {
            self.server.before_write().await;
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
                    self.delayed.insert(key.clone(), Instant::now() + RETRY_DELAY);
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
        match change {
            Ok(change) => {
                self.broken_groups.observe(&self.server, &change);
                self.enqueue_affected_by(&change, enqueue::affected);
            }
            Err(Lagged) => {
                self.broken_groups.resync(&self.server);
                self.queue.extend(enqueue::all(&self.server));
                // Some of them may be deleted.
                self.queue.extend(self.delayed.keys().cloned());
            }
        }
    }

    /// Enqueues the objects that `affected` returns for a change. If it panics, all objects are enqueued later.
    fn enqueue_affected_by(&mut self, change: &Change, affected: impl Fn(&Server, &Change) -> BTreeSet<WorkloadKey>) {
        let Some(object) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let key = (change.resource.clone(), change.namespace.clone(), change.name.clone());
        let (uid, now) = (object::uid(object), due_time::monotonic_now());
        if self.change_panics.retry_at(&key, uid, now).is_some() {
            return;
        }
        match catch_panic(|| affected(&self.server, change)) {
            Ok(affected) => {
                self.queue.extend(affected);
                self.change_panics.reset(&key);
            }
            Err(panic) => {
                let retry_at = Instant::from_std(self.change_panics.record(key, uid, now));
                self.enqueue_all_at = Some(self.enqueue_all_at.map_or(retry_at, |at| at.min(retry_at)));
                self.server.report_panic(object, &panic, "controllermanager");
            }
        }
    }

    /// Returns the time until the next delayed key is due.
    fn time_until_next_delayed(&self) -> Option<Duration> {
        let next_at = self.delayed.values().chain(&self.enqueue_all_at).min()?;
        Some(due_time::duration_until(*next_at))
    }

    /// Moves delayed keys that are due into the queue.
    fn enqueue_due(&mut self) {
        let now = Instant::now();
        let due_keys: Vec<WorkloadKey> =
            self.delayed.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        self.queue.extend(due_keys);
        if self.enqueue_all_at.is_some_and(|at| at <= now) {
            let exists = |(resource, namespace, name): &(String, String, String)| {
                self.server.get(resource, namespace, name).is_some()
            };
            self.change_panics.retain(exists);
            self.enqueue_all_at = self.change_panics.next_retry(now.into_std()).map(Instant::from_std);
            self.queue.extend(enqueue::all(&self.server));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

    use apiserver::ports::{Admission, AdmissionRequest, AdmissionResponse, Clock, ServerPorts};
    use rstest::rstest;
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
        ControllerManager::new(server, None, BTreeSet::new())
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
            manager.process_queue().await;
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
        manager.process_queue().await;
        assert_eq!(manager.server.list("pods").len(), 3);
        assert_eq!(quota.attempts.load(Ordering::Relaxed), 4);
        assert!(manager.delayed.contains_key(&key), "the controller retries later");
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_objects_are_not_delayed_after_missed_changes() {
        let quota = Arc::new(PodQuota { limit: usize::MAX, attempts: AtomicUsize::new(0) });
        let mut manager = manager(&quota);
        let key = create_job(&mut manager, 1);
        let mut job = Value::clone(&manager.server.get(job::RESOURCE, "default", "once").unwrap());
        job["spec"]["activeDeadlineSeconds"] = json!(999_999_999_999_i64);
        manager.server.update(job::RESOURCE, job).unwrap();
        // The first round sets the start time.
        for _ in 0..2 {
            manager.queue.insert(key.clone());
            manager.process_queue().await;
        }
        assert!(manager.delayed.contains_key(&key), "the deadline of the Job");
        manager.server.delete(job::RESOURCE, "default", "once", None).unwrap();
        manager.enqueue_affected(Err(Lagged));
        manager.process_queue().await;
        assert!(manager.delayed.is_empty(), "{:?}", manager.delayed);
    }

    /// A clock that is set by the test.
    struct SteppedClock(AtomicI64);

    impl Clock for SteppedClock {
        fn now(&self) -> jiff::Timestamp {
            jiff::Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
        }
    }

    /// The node of a worker no longer exists: the whole group starts again, so that no part of it retains accelerators while the
    /// other one waits for a node.
    #[tokio::test(start_paused = true)]
    async fn group_is_recreated_after_the_removal_of_a_worker() {
        let clock = Arc::new(SteppedClock(AtomicI64::new(1_000_000)));
        let ports = ServerPorts { clock: Arc::<SteppedClock>::clone(&clock), ..ServerPorts::default() };
        let mut manager = ControllerManager::new(Server::new(&ports), None, BTreeSet::new());
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": leader_worker_set::RESOURCE}, "spec": {"group": "leaderworkerset.x-k8s.io",
            "scope": "Namespaced", "names": {"kind": "LeaderWorkerSet", "plural": "leaderworkersets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
        manager.server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
        let mut changes = manager.server.subscribe();
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        let set = json!({"metadata": {"name": "llama", "namespace": "default"},
            "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}});
        manager.server.create(leader_worker_set::RESOURCE, set).unwrap();
        let pod = |server: &Server, name: &str| server.get("pods", "default", name);
        let server = manager.server.clone();
        // The leader, its worker, the status, and no change.
        for _ in 0..4 {
            manager.collect_changes(&mut changes).now_or_never();
            manager.process_queue().await;
        }
        let first = pod(&server, "llama-0").unwrap();
        assert!(pod(&server, "llama-0-1").is_some());
        clock.0.fetch_add(60, Ordering::Relaxed);
        server.force_delete("pods", "default", "llama-0-1", None).unwrap();
        manager.collect_changes(&mut changes).now_or_never();
        manager.process_queue().await;
        let leader = pod(&server, "llama-0").filter(|leader| object::uid(leader) == object::uid(&first));
        assert!(leader.is_none_or(|leader| object::is_deleting(&leader)), "the leader is deleted too");
        assert_eq!(pod(&server, "llama-0-1"), None);
    }

    /// The retry of a rejected Pod, and the deadline of a Job in 100 s.
    #[rstest]
    #[case::set_back(-3600)]
    #[case::set_forward(3600)]
    #[tokio::test(start_paused = true)]
    async fn steps_of_the_clock_do_not_change_due_times(#[case] step: i64) {
        let quota = Arc::new(PodQuota { limit: 0, attempts: AtomicUsize::new(0) });
        let clock = Arc::new(SteppedClock(AtomicI64::new(1_000_000)));
        let ports =
            ServerPorts { admission: quota, clock: Arc::<SteppedClock>::clone(&clock), ..ServerPorts::default() };
        let mut manager = ControllerManager::new(Server::new(&ports), None, BTreeSet::new());
        let rejected = create_job(&mut manager, 1);
        manager.process_queue().await;
        let deadline = WorkloadKey { name: "deadline".to_owned(), ..rejected.clone() };
        let in_100_seconds = apimachinery::time::add_seconds(clock.now(), 100);
        manager.delayed.insert(deadline.clone(), due_time::instant_of(in_100_seconds, &manager.server));
        clock.0.fetch_add(step, Ordering::Relaxed);
        for (key, seconds) in [(rejected, 5), (deadline, 95)] {
            assert_eq!(manager.time_until_next_delayed(), Some(Duration::from_secs(seconds)));
            tokio::time::advance(Duration::from_secs(seconds)).await;
            manager.enqueue_due();
            assert_eq!(manager.queue, BTreeSet::from([key.clone()]));
            manager.queue.clear();
            manager.delayed.remove(&key);
        }
    }

    /// Panics for the status of Jobs.
    struct BrokenAdmission;

    impl Admission for BrokenAdmission {
        fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
            let is_broken = request.resource == job::RESOURCE
                && request.object.is_some_and(|job| job.pointer("/status/active").is_some());
            assert!(!is_broken, "broken admission");
            AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
        }
    }

    fn broken_manager() -> ControllerManager {
        let server = Server::new(&ServerPorts { admission: Arc::new(BrokenAdmission), ..ServerPorts::default() });
        ControllerManager::new(server, None, BTreeSet::new())
    }

    fn event_messages(manager: &ControllerManager, reason: &str) -> Vec<String> {
        let events = manager.server.list("events");
        let matching = events.iter().filter(|event| event["reason"] == reason && event["type"] == "Warning");
        matching.map(|event| object::text(event, "/message").to_owned()).collect()
    }

    #[tokio::test]
    async fn object_that_panics_is_reported_and_its_changes_do_not_shorten_the_delay() {
        let mut manager = broken_manager();
        let key = create_job(&mut manager, 1);
        let mut changes = manager.server.subscribe();
        manager.process_queue().await;
        manager.collect_changes(&mut changes).now_or_never();
        manager.process_queue().await;
        let retry_at = manager.delayed[&key];
        let message =
            "Internal error of job-controller: panicked: broken admission. It retries with increasing delays.";
        assert_eq!(event_messages(&manager, "InternalError"), [message]);
        let mut job = Value::clone(&manager.server.get(job::RESOURCE, "default", "once").unwrap());
        job["metadata"]["annotations"] = json!({"a": "b"});
        manager.server.update(job::RESOURCE, job).unwrap();
        manager.collect_changes(&mut changes).now_or_never();
        assert!(manager.queue.contains(&key));
        manager.process_queue().await;
        assert_eq!(manager.delayed[&key], retry_at);
        let events = manager.server.list("events");
        assert_eq!(events.iter().filter(|event| event["reason"] == "InternalError" && event["count"] != 1).count(), 0);
        manager.server.delete(job::RESOURCE, "default", "once", None).unwrap();
        create_job(&mut manager, 1);
        manager.process_queue().await;
        manager.collect_changes(&mut changes).now_or_never();
        manager.process_queue().await;
        assert!(manager.delayed[&key] > retry_at, "another object of the same name has no delay");
    }

    #[tokio::test]
    async fn change_that_panics_enqueues_all_objects_later() {
        let mut manager = broken_manager();
        let key = create_job(&mut manager, 1);
        manager.queue.clear();
        let mut changes = manager.server.subscribe();
        let pod = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        manager.server.create("pods", pod).unwrap();
        let change = changes.next().await.unwrap();
        let fail = |_: &Server, _: &Change| panic!("broken change");
        manager.enqueue_affected_by(&change, fail);
        let retry_at = manager.enqueue_all_at.unwrap();
        manager.enqueue_affected_by(&change, |_, _| unreachable!("delayed"));
        assert_eq!(manager.enqueue_all_at, Some(retry_at));
        assert_eq!(event_messages(&manager, "InternalError").len(), 1);
        assert!(manager.time_until_next_delayed().is_some());
        manager.enqueue_all_at = Some(Instant::now());
        manager.enqueue_due();
        assert!(manager.queue.contains(&key));
    }
}
