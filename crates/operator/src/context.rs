//! What every reconciler needs: caches, clients, settings, and the state derived from watch events.

use std::sync::Arc;

use cluster::{
    Applier, Clock, Condition, ConditionStatus, Error, EventRecorder, Health, Kind, NamespacedName, StatusWriter,
    Stores, find_condition,
};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use crate::FIELD_MANAGER;
use crate::cluster_state::ClusterState;
use crate::event_publisher::EventPublisher;
use crate::inventory;
use crate::kinds::{OWNED, SERVICES};
use crate::metrics::{ClusterGauges, Metrics};
use crate::options::Options;
use crate::selection_snapshot::SelectionSnapshot;
use crate::status_report::StatusReport;

/// Reporting controller of events.
const CONTROLLER_NAME: &str = "ostler.io/operator";

/// Shared by all reconciles.
pub(crate) struct Context {
    /// Caches of the watched objects.
    pub(crate) stores: Stores,
    /// Indexes and caches over the stores.
    pub(crate) state: ClusterState,
    /// Applies and deletes objects.
    pub(crate) applier: Applier,
    /// Publishes events.
    pub(crate) event_publisher: EventPublisher,
    /// Metrics of the operator.
    pub(crate) metrics: Arc<Metrics>,
    /// Gauges of the cluster, which disappear with this context.
    pub(crate) cluster_gauges: ClusterGauges,
    /// Liveness and readiness.
    pub(crate) health: Arc<Health>,
    /// Feature gate `AcceleratorAwareScheduling`.
    pub(crate) accelerator_aware: bool,
    /// Whether accelerator classes and ResourceFlavors are written.
    pub(crate) maintains_classes: bool,
    /// Whether accelerator classes are created from node labels.
    pub(crate) discovery: bool,
    /// Whether events about cluster-scoped objects are created, which are in the namespace `default`.
    pub(crate) reports_cluster_scoped_objects: bool,
    /// Shipped classes that discovery reads facts from.
    pub(crate) known_classes: Vec<(decide::Class, Value)>,
    /// Namespace of the operator.
    pub(crate) namespace: String,
    /// Image of the endpoint pickers of routers.
    pub(crate) picker_image: String,
    clock: Arc<dyn Clock>,
    status_writer: StatusWriter,
}

// === impl Context ===

impl Context {
    /// Returns a context with empty state.
    pub(crate) fn new(client: Client, stores: Stores, options: &Options) -> Context {
        let event_recorder = EventRecorder::new(client.clone(), options.clock.clone(), CONTROLLER_NAME);
        Context {
            applier: Applier::new(client.clone(), stores.clone(), OWNED, FIELD_MANAGER),
            status_writer: StatusWriter::new(client, stores.clone(), FIELD_MANAGER),
            event_publisher: EventPublisher::new(event_recorder),
            state: ClusterState::new(options.accelerator_aware),
            clock: options.clock.clone(),
            metrics: Arc::clone(&options.metrics),
            cluster_gauges: ClusterGauges::new(Arc::clone(&options.metrics)),
            health: Arc::clone(&options.health),
            accelerator_aware: options.accelerator_aware,
            maintains_classes: options.maintains_classes(),
            discovery: options.discovery,
            reports_cluster_scoped_objects: options.namespaces.is_empty(),
            known_classes: inventory::parse_known_classes(&options.known_classes),
            namespace: options.namespace.clone(),
            picker_image: options.picker_image.clone(),
            stores,
        }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the current snapshot of the objects that services select from, and its epoch.
    pub(crate) fn selection_snapshot(&self) -> (Arc<SelectionSnapshot>, u64) {
        self.state.snapshot_cache.current(&self.stores, &self.state.inventory, self.accelerator_aware)
    }

    /// Writes the status if it differs, after one event per transition that it records. The error about undeclared fields is
    /// returned after the others are written, so that the retries write them once the definition is replaced.
    pub(crate) async fn publish_report(&self, kind: Kind, object: &Value, report: &StatusReport) -> Result<(), Error> {
        if self.status_writer.is_published(kind, object, &report.status) {
            return Ok(());
        }
        let events = report.all_events(object);
        self.event_publisher.publish_transitions(object, &events).await?;
        let result = match self.status_writer.publish(kind, object, &report.status).await {
            Ok(false) => return Ok(()),
            Ok(true) => Ok(()),
            Err(error @ Error::UndeclaredFields { .. }) => Err(error),
            Err(error) => return Err(error),
        };
        self.event_publisher.note_recorded(object, &events);
        if SERVICES.contains(&kind) {
            let key = NamespacedName::from_object(object);
            self.state.apply_service(kind, &key, self.stores.get(kind, &key).as_deref());
            log_ready_transition(kind, &key, object, &report.conditions);
        }
        result
    }
}

/// Logs a changed status or reason of condition `Ready` of a service.
fn log_ready_transition(kind: Kind, key: &NamespacedName, service: &Value, conditions: &[Condition]) {
    let Some(ready) = conditions.iter().find(|condition| condition.type_ == "Ready") else { return };
    let old = find_condition(&service["status"]["conditions"], "Ready");
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
