//! The control loop: watch events enqueue work items, and reconciles process them.
//!
//! Reconciles compute sequentially; a limited number of them wait for the API server concurrently.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::{
    Applier, CUSTOM_RESOURCE_DEFINITION, Change, Clock, Condition, ConditionStatus, Error, EventRecorder, Kind,
    NamespacedName, StatusWriter, Stores, Transition, Watches, WorkQueue, find_condition, is_served,
};
use futures::FutureExt as _;
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::admission::webhook::{self, WebhookOptions};
use crate::claims::Claims;
use crate::crash_tracker::CrashTracker;
use crate::decision_cache::DecisionCache;
use crate::error_chain::error_chain;
use crate::event_queue::{EventSender, event_queue};
use crate::in_flight::{InFlight, ReconcileResult};
use crate::inventory::{self, InventoryTracker};
use crate::kinds::{
    ACCELERATOR_CLASS, BASE_SET_CONFIG_MAP, BUILTIN, CLUSTER_SERVING_RUNTIME, CUSTOM_RESOURCES, FUSIONINFER_SERVICE,
    LABEL_FILTERED, OME_SERVICE, OSTLER_APIS, OWNED, POD, RESOURCE_FLAVORS, SERVING_RUNTIME, cache_policy,
};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::selection_snapshot::{InvalidObject, SELECTION_KINDS, SnapshotCache};
use crate::service_index::ServiceIndex;
use crate::status_report::StatusReport;
use crate::triggers::{self, WorkItem};
use crate::{FIELD_MANAGER, base_set, pod_group_schema};

/// Reporting controller of events.
const CONTROLLER_NAME: &str = "ostler.io/operator";
/// Timeout for sending the remaining events after shutdown.
const EVENT_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which the loop checks whether the initial lists are complete.
const SYNC_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// State shared by all reconciles.
pub(crate) struct Operator {
    pub(crate) stores: Stores,
    pub(crate) applier: Applier,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) accelerator_aware: bool,
    pub(crate) event_recorder: EventRecorder,
    event_sender: EventSender,
    pub(crate) snapshot_cache: Mutex<SnapshotCache>,
    pub(crate) claims: Claims,
    service_index: Mutex<ServiceIndex>,
    pub(crate) decision_cache: DecisionCache,
    pub(crate) crash_tracker: CrashTracker,
    pub(crate) invalid_objects: Mutex<Vec<InvalidObject>>,
    pub(crate) inventory: InventoryTracker,
    pub(crate) discovery: bool,
    pub(crate) known_classes: Vec<(decide::Class, Value)>,
    pub(crate) namespace: String,
    pub(crate) picker_image: String,
    pub(crate) metrics: Arc<Metrics>,
    /// Last reported errors of the base set, with the UID of its ConfigMap.
    pub(crate) reported_base_set_errors: Mutex<Option<(String, Vec<String>)>>,
    status_writer: StatusWriter,
}

/// Runs the operator until `stop` is cancelled. With leader election, reconciles run only while this replica leads.
///
/// # Errors
/// Currently returns no error: requests that the API server rejects are retried.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), Error> {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        namespace = options.namespace,
        accelerator_aware = options.accelerator_aware,
        discovery = options.discovery,
        leader_election = options.leader_election.is_some(),
        webhook = options.webhook.is_some(),
        picker_image = options.picker_image,
        "starting the operator"
    );
    if let Some(webhook) = options.webhook.clone() {
        tokio::spawn(run_webhook(client.clone(), options.clock.clone(), webhook, stop.clone()));
    }
    match &options.leader_election {
        None => run_controller(client, &options, stop).await,
        Some(leader_election) => {
            let elector = leader_election.elector(client.clone(), options.clock.clone());
            let result = elector.run(stop, |stop| run_controller(client.clone(), &options, stop)).await;
            result.unwrap_or(Ok(()))
        }
    }
}

/// Runs the admission webhook. Every replica serves it, so it has its own stores. Without it, the operator still works,
/// and reports in conditions what the webhook would have rejected.
async fn run_webhook(client: Client, clock: Arc<dyn Clock>, options: WebhookOptions, stop: CancellationToken) {
    let stores = Stores::new(FIELD_MANAGER);
    let (mut watches, mut changes) = Watches::new(client.clone(), stores.clone(), stop.clone());
    for kind in [ACCELERATOR_CLASS, SERVING_RUNTIME, CLUSTER_SERVING_RUNTIME, FUSIONINFER_SERVICE] {
        watches.start(kind);
    }
    let discard_changes = async { while changes.recv().await.is_some() {} };
    let serve = webhook::run(client, stores, clock, options, stop.clone());
    let (result, ()) = tokio::join!(serve, discard_changes);
    if let Err(error) = result {
        tracing::error!(error = %error_chain(&error), "the admission webhook stopped");
    }
}

/// Runs the control loop and sends its events concurrently, so that a slow API server does not delay reconciles.
async fn run_controller(client: Client, options: &Options, stop: CancellationToken) -> Result<(), Error> {
    let (event_sender, event_receiver) = event_queue();
    let recorder = EventRecorder::new(client.clone(), options.clock.clone(), CONTROLLER_NAME);
    let control_loop = control_loop(client, options, event_sender, stop);
    let publish = event_receiver.publish(&recorder);
    tokio::pin!(control_loop, publish);
    let result = tokio::select! {
        biased;
        result = &mut control_loop => result,
        () = &mut publish => return control_loop.await,
    };
    // Shutdown must not wait for an API server that does not respond.
    tokio::time::timeout(EVENT_FLUSH_TIMEOUT, publish).await.ok();
    result
}

async fn control_loop(
    client: Client,
    options: &Options,
    event_sender: EventSender,
    stop: CancellationToken,
) -> Result<(), Error> {
    let stores = Stores::with_cache_policy(FIELD_MANAGER, cache_policy);
    let (mut watches, mut changes) = Watches::new(client.clone(), stores.clone(), stop.clone());
    watches.start(CUSTOM_RESOURCE_DEFINITION);
    for kind in BUILTIN {
        watches.start(*kind);
    }
    for kind in LABEL_FILTERED {
        watches.start(*kind);
    }
    if options.accelerator_aware {
        watches.start_named(BASE_SET_CONFIG_MAP, &NamespacedName::new(&options.namespace, base_set::CONFIG_MAP_NAME));
    }
    let operator = Operator::new(client, stores, options, event_sender);
    let (mut queue, mut in_flight) = (WorkQueue::default(), InFlight::default());
    while !stop.is_cancelled() {
        operator.handle_pending_changes(&mut watches, &mut changes, &mut queue);
        while let Some(result) = in_flight.try_next().await {
            operator.handle_result(result, &mut queue);
        }
        let can_start = watches.have_synced() && !in_flight.is_full();
        match if can_start { queue.pop(operator.clock.now()) } else { None } {
            Some(item) => operator.start_reconcile(item, &mut in_flight, &mut queue).await,
            None => operator.wait_for_work(&mut watches, &mut changes, &mut queue, &mut in_flight, &stop).await,
        }
    }
    while let Some(result) = in_flight.next().await {
        operator.handle_result(result, &mut queue);
    }
    Ok(())
}

// === impl Operator ===

impl Operator {
    fn new(client: Client, stores: Stores, options: &Options, event_sender: EventSender) -> Operator {
        Operator {
            applier: Applier::new(client.clone(), stores.clone(), OWNED, FIELD_MANAGER),
            status_writer: StatusWriter::new(client.clone(), stores.clone(), FIELD_MANAGER),
            event_recorder: EventRecorder::new(client, options.clock.clone(), CONTROLLER_NAME),
            event_sender,
            clock: options.clock.clone(),
            accelerator_aware: options.accelerator_aware,
            snapshot_cache: Mutex::default(),
            claims: Claims::default(),
            service_index: Mutex::default(),
            decision_cache: DecisionCache::default(),
            crash_tracker: CrashTracker::default(),
            invalid_objects: Mutex::default(),
            inventory: InventoryTracker::default(),
            discovery: options.discovery,
            known_classes: inventory::parse_known_classes(&options.known_classes),
            namespace: options.namespace.clone(),
            picker_image: options.picker_image.clone(),
            metrics: Arc::clone(&options.metrics),
            reported_base_set_errors: Mutex::default(),
            stores,
        }
    }

    /// Handles all changes that have arrived, so that a reconcile sees the latest state.
    fn handle_pending_changes(
        &self,
        watches: &mut Watches,
        changes: &mut mpsc::Receiver<Change>,
        queue: &mut WorkQueue<WorkItem>,
    ) {
        while let Ok(change) = changes.try_recv() {
            self.handle_change(&change, watches, queue);
        }
    }

    fn handle_change(&self, change: &Change, watches: &mut Watches, queue: &mut WorkQueue<WorkItem>) {
        if triggers::affects_selection(change) {
            self.invalidate_snapshot();
        } else if triggers::affects_inventory(change) {
            self.release_inventory();
        }
        match change {
            Change::Synced(CUSTOM_RESOURCE_DEFINITION) => self.log_missing_apis(),
            Change::Synced(kind) => self.handle_synced_kind(*kind, queue),
            Change::Object { kind: CUSTOM_RESOURCE_DEFINITION, .. } => {
                self.update_watches(watches, queue);
                if pod_group_schema::has_changed(change) {
                    self.invalidate_snapshot();
                    self.service_index().all().into_iter().for_each(|item| queue.add(item));
                }
            }
            Change::Object { kind, key, old, new } => {
                self.crash_tracker.observe(change, self.clock.now());
                if (*kind, new) == (OME_SERVICE, &None) {
                    self.decision_cache.remove(key);
                }
                self.observe_service(*kind, key);
                self.update_inventory(*kind, change, queue);
                if *kind == POD {
                    self.update_claims_of_pods(old.as_deref(), new.as_deref());
                }
                let enqueue = triggers::work_items(&self.service_index(), change);
                enqueue.normal_priority.into_iter().for_each(|item| queue.add(item));
                enqueue.low_priority.into_iter().for_each(|item| queue.add_low_priority(item));
            }
        }
    }

    fn service_index(&self) -> MutexGuard<'_, ServiceIndex> {
        self.service_index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates service index and claims after a service was changed, deleted or written by the operator.
    fn observe_service(&self, kind: Kind, key: &NamespacedName) {
        if ![OME_SERVICE, FUSIONINFER_SERVICE].contains(&kind) {
            return;
        }
        let service = self.stores.get(kind, key);
        self.service_index().observe(kind, key, service.as_deref());
        if kind == OME_SERVICE {
            self.claims.observe(key, service.as_deref(), &self.inventory.current());
        }
    }

    /// Updates the claims of the services of a Pod. The inventory must already contain the change.
    fn update_claims_of_pods(&self, old: Option<&Value>, new: Option<&Value>) {
        for item in [old, new].into_iter().flatten().filter_map(triggers::service_of_pod) {
            if let WorkItem::Service(OME_SERVICE, key) = item {
                self.claims.update_pending(&key, &self.inventory.current());
            }
        }
    }

    /// Updates the inventory; does nothing if the feature gate is off.
    fn update_inventory(&self, kind: Kind, change: &Change, queue: &mut WorkQueue<WorkItem>) {
        if !self.accelerator_aware {
            return;
        }
        let mut items = self.inventory.observe(change);
        if RESOURCE_FLAVORS.contains(&kind) {
            items.extend(self.linked_classes());
        }
        items.into_iter().for_each(|item| queue.add(item));
    }

    /// Enqueues the services that may have waited for the initial list of `kind`.
    fn handle_synced_kind(&self, kind: Kind, queue: &mut WorkQueue<WorkItem>) {
        if self.accelerator_aware {
            self.inventory.mark_synced(kind).into_iter().for_each(|item| queue.add(item));
        }
        if OWNED.contains(&kind) || SELECTION_KINDS.contains(&kind) || BUILTIN.contains(&kind) {
            self.service_index().all().into_iter().for_each(|item| queue.add(item));
        }
    }

    /// Logs the ostler APIs that are not installed. They may be installed at any time.
    fn log_missing_apis(&self) {
        let missing_apis: Vec<String> =
            OSTLER_APIS.iter().filter(|kind| !is_served(&self.stores, **kind)).map(Kind::group_resource).collect();
        if !missing_apis.is_empty() {
            tracing::warn!(
                resources = missing_apis.join(", "),
                "ostler CRDs are not installed; install them with: ostler crds | kubectl apply --server-side -f -"
            );
        }
    }

    /// Starts and stops watches according to the installed CustomResourceDefinitions.
    fn update_watches(&self, watches: &mut Watches, queue: &mut WorkQueue<WorkItem>) {
        for kind in CUSTOM_RESOURCES {
            if is_served(&self.stores, *kind) {
                if watches.start(*kind) && self.stores.has_synced(CUSTOM_RESOURCE_DEFINITION) {
                    tracing::info!(resource = kind.group_resource(), "API is installed, starting its watch");
                }
            } else if watches.is_running(*kind) {
                tracing::warn!(
                    resource = kind.group_resource(),
                    "API is no longer installed; services that need it are not ready"
                );
                self.invalidate_snapshot();
                self.inventory.mark_unsynced(*kind);
                for deletion in watches.stop(*kind) {
                    self.handle_change(&deletion, watches, queue);
                }
                // If the objects were deleted before their CustomResourceDefinition, there are no deletions to handle
                // here.
                if OWNED.contains(kind) {
                    self.service_index().all().into_iter().for_each(|item| queue.add(item));
                }
            }
        }
        if self.accelerator_aware {
            self.update_flavor_watch(watches, queue);
        }
    }

    /// Watches the preferred served version of Kueue's ResourceFlavor. Flavors that disappear with their
    /// CustomResourceDefinition were not deleted by a user, so the classes created from them are retained.
    fn update_flavor_watch(&self, watches: &mut Watches, queue: &mut WorkQueue<WorkItem>) {
        let preferred = RESOURCE_FLAVORS.into_iter().find(|kind| is_served(&self.stores, *kind));
        let mut has_changed = false;
        for kind in RESOURCE_FLAVORS {
            if Some(kind) == preferred {
                has_changed |= watches.start(kind);
            } else if watches.is_running(kind) {
                drop(watches.stop(kind));
                self.inventory.mark_unsynced(kind);
                has_changed = true;
            }
        }
        if has_changed {
            self.linked_classes().into_iter().for_each(|item| queue.add(item));
        }
    }

    async fn wait_for_work(
        &self,
        watches: &mut Watches,
        changes: &mut mpsc::Receiver<Change>,
        queue: &mut WorkQueue<WorkItem>,
        in_flight: &mut InFlight<'_>,
        stop: &CancellationToken,
    ) {
        let time_until = |time: jiff::Timestamp| time.duration_since(self.clock.now()).max(jiff::SignedDuration::ZERO);
        let delay = match queue.next_due() {
            _ if !watches.have_synced() => Some(SYNC_POLL_INTERVAL),
            // Due items start once a running reconcile completes.
            _ if in_flight.is_full() => None,
            due => due.and_then(|due| time_until(due).try_into().ok()),
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(delay) => {}
            Some(result) = in_flight.next() => self.handle_result(result, queue),
            Some(change) = changes.recv() => self.handle_change(&change, watches, queue),
        }
    }

    /// Starts a reconcile. An exclusive item starts once all other items are complete, and no other item starts before
    /// it is complete.
    async fn start_reconcile<'a>(
        &'a self,
        item: WorkItem,
        in_flight: &mut InFlight<'a>,
        queue: &mut WorkQueue<WorkItem>,
    ) {
        if item.is_exclusive() {
            while let Some(result) = in_flight.next().await {
                self.handle_result(result, queue);
            }
            self.handle_result(self.reconcile(item).await, queue);
        } else if let Some(result) = in_flight.start(self.reconcile(item).boxed()).await {
            self.handle_result(result, queue);
            // A series of reconciles that send no requests must not starve the other tasks of this thread.
            tokio::task::yield_now().await;
        }
    }

    async fn reconcile(&self, item: WorkItem) -> ReconcileResult {
        let no_requeue = |()| None;
        let result = match &item {
            WorkItem::Class(name) => self.reconcile_class(name).await.map(no_requeue),
            WorkItem::ClassDiscovery => self.reconcile_discovery().await.map(no_requeue),
            WorkItem::BaseSet => self.reconcile_base_set().await.map(no_requeue),
            WorkItem::ResourceFlavors => self.reconcile_flavors().await.map(no_requeue),
            WorkItem::InvalidObjects => self.report_invalid_objects().await.map(no_requeue),
            WorkItem::Service(kind, key) => self.reconcile_service(*kind, key).await,
        };
        (item, result)
    }

    fn handle_result(&self, (item, result): ReconcileResult, queue: &mut WorkQueue<WorkItem>) {
        if let WorkItem::Service(OME_SERVICE, key) = &item {
            let service = self.stores.get(OME_SERVICE, key);
            self.claims.unpin(key, service.as_deref(), &self.inventory.current());
        }
        match result {
            Ok(requeue_at) => {
                requeue_at.into_iter().for_each(|at| queue.add_at(item.clone(), at));
                queue.done(&item);
            }
            Err(error) => {
                if !error.is_conflict() {
                    tracing::warn!(?item, error = %error_chain(&error), "reconcile failed, retrying");
                }
                queue.retry(item, self.clock.now());
            }
        }
    }

    /// Writes the status if it differs, and then enqueues one event per condition transition.
    pub(crate) async fn publish_report(&self, kind: Kind, object: &Value, report: &StatusReport) -> Result<(), Error> {
        if !self.status_writer.publish(kind, object, &report.status).await? {
            return Ok(());
        }
        let key = NamespacedName::from_object(object);
        self.observe_service(kind, &key);
        log_ready_transition(kind, &key, object, &report.conditions);
        for event in report.all_events(object) {
            self.enqueue_event(object, &event);
        }
        Ok(())
    }

    /// Enqueues one event.
    pub(crate) fn enqueue_event(&self, object: &Value, transition: &Transition) {
        self.event_sender.enqueue(self.event_recorder.event(object, "Reconcile", transition));
    }
}

/// Logs a changed status or reason of condition `Ready` of a service.
fn log_ready_transition(kind: Kind, key: &NamespacedName, object: &Value, conditions: &[Condition]) {
    if ![OME_SERVICE, FUSIONINFER_SERVICE].contains(&kind) {
        return;
    }
    let Some(ready) = conditions.iter().find(|condition| condition.type_ == "Ready") else { return };
    let old = find_condition(&object["status"]["conditions"], "Ready");
    if old.is_some_and(|old| old["status"] == ready.status.as_str() && old["reason"] == *ready.reason) {
        return;
    }
    let (kind, namespace, name, reason) = (kind.kind, &key.namespace, &key.name, &ready.reason);
    match ready.status == ConditionStatus::True {
        true => tracing::info!(kind, namespace, name, "service is ready"),
        false => {
            tracing::info!(kind, namespace, name, reason, condition_message = ready.message, "service is not ready");
        }
    }
}

/// Sleeps for `delay`, or forever.
async fn sleep(delay: Option<Duration>) {
    match delay {
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::kinds::SCALED_OBJECT;

    /// A ScaledObject is deleted before its CustomResourceDefinition, and its service is reconciled in between: only
    /// the deletion of the definition shows that KEDA was uninstalled.
    // spec: RT-28
    #[tokio::test]
    async fn enqueues_services_when_a_definition_is_deleted_after_its_objects() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let (stores, options, stop) = (Stores::new(FIELD_MANAGER), Options::default(), CancellationToken::new());
        let (mut watches, _changes) = Watches::new(client.clone(), stores.clone(), stop.clone());
        let operator = Operator::new(client, stores.clone(), &options, event_queue().0);
        let mut queue = WorkQueue::default();
        let service = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "chat", "namespace": "n"}});
        let definition = json!({"metadata": {"name": SCALED_OBJECT.group_resource()},
            "spec": {"versions": [{"name": SCALED_OBJECT.version, "served": true}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}});
        let mut apply_event = |kind: Kind, event: Event<Value>, queue: &mut WorkQueue<WorkItem>| {
            for change in stores.apply_event(kind, event) {
                operator.handle_change(&change, &mut watches, queue);
            }
        };
        apply_event(OME_SERVICE, Event::Apply(service), &mut queue);
        apply_event(CUSTOM_RESOURCE_DEFINITION, Event::Apply(definition.clone()), &mut queue);
        while let Some(item) = queue.pop(jiff::Timestamp::MAX) {
            queue.done(&item);
        }
        apply_event(CUSTOM_RESOURCE_DEFINITION, Event::Delete(definition), &mut queue);
        let items = std::iter::from_fn(|| queue.pop(jiff::Timestamp::MAX));
        assert_eq!(items.collect::<Vec<_>>(), [WorkItem::Service(OME_SERVICE, NamespacedName::new("n", "chat"))]);
        stop.cancel();
    }
}
