//! Starts and stops the operator: webhook, leader election, watches and control loop.

use std::sync::Arc;
use std::time::Duration;

use cluster::{
    CUSTOM_RESOURCE_DEFINITION, Change, Clock, ControllerRunner, Health, NamespacedName, Part, Stores, Watches,
};
use kube::Client;
use supervisor::TaskFailure;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::FIELD_MANAGER;
use crate::admission::WebhookOptions;
use crate::admission::webhook::{self, ReviewContext};
use crate::base_set;
use crate::context::Context;
use crate::control_loop::ControlLoop;
use crate::kinds::{
    ACCELERATOR_CLASS, BASE_SET_CONFIG_MAP, BUILTIN, CLUSTER_SERVING_RUNTIME, FUSIONINFER_SERVICE, LABEL_FILTERED,
    SERVING_RUNTIME, cache_policy,
};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::reconcilers::Reconcilers;

/// Interval at which the webhook checks whether its caches are synced.
const CACHE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Why the webhook is not ready when it starts.
const NO_CERTIFICATE: &str = "the admission webhook has no certificate";

/// Runs the operator until `stop` is cancelled. With leader election, reconciles run only while this replica leads.
///
/// After `stop`, the running reconciles complete, and then the Lease is released, in at most 9 s together. Metrics must be served until `run` returns.
///
/// # Errors
/// A background task has panicked or ended repeatedly; the operator has stopped as after `stop`. Requests that the API server
/// rejects are retried.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), TaskFailure> {
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
    let stop = stop.child_token();
    if !options.namespaces.is_empty() {
        tracing::info!(
            namespaces = options.namespaces.join(","),
            "watching only these namespaces: the operator maintains no accelerator classes, and free capacity includes \
             accelerators that Pods of other namespaces use"
        );
    }
    if let Some(webhook) = options.webhook.clone() {
        let (clock, health, metrics) =
            (options.clock.clone(), Arc::clone(&options.health), Arc::clone(&options.metrics));
        // The operator is not ready before the task runs.
        health.set_not_ready(Part::WebhookServer, NO_CERTIFICATE);
        let (client, token) = (client.clone(), stop.clone());
        let start = move || {
            let (health, metrics) = (Arc::clone(&health), Arc::clone(&metrics));
            run_webhook(client.clone(), clock.clone(), webhook.clone(), health, metrics, token.clone())
        };
        tokio::spawn(options.health.supervisor.supervise("admission webhook", stop.clone(), start));
    }
    let runner = ControllerRunner {
        client,
        clock: Arc::clone(&options.clock),
        leader_election: options.leader_election.clone(),
        health: Arc::clone(&options.health),
    };
    runner.run(stop, |client, stop| run_control_loop(client, &options, stop)).await
}

/// Runs the admission webhook until `stop`. Every replica serves it, so it has its own stores. Without it, the operator still works,
/// and reports in conditions what the webhook would have rejected.
async fn run_webhook(
    client: Client,
    clock: Arc<dyn Clock>,
    options: WebhookOptions,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> Result<(), String> {
    health.set_not_ready(Part::WebhookServer, NO_CERTIFICATE);
    let (stores, supervisor) = (Stores::new(FIELD_MANAGER), health.supervisor.clone());
    let (mut watches, mut changes) = Watches::new(client.clone(), stores.clone(), supervisor, stop.clone());
    for kind in [ACCELERATOR_CLASS, SERVING_RUNTIME, CLUSTER_SERVING_RUNTIME, FUSIONINFER_SERVICE] {
        watches.start(kind);
    }
    let report_caches = async {
        loop {
            let unsynced = watches.unsynced();
            health.report_unsynced(Part::WebhookCaches, &unsynced);
            if unsynced.is_empty() {
                break;
            }
            tokio::time::timeout(CACHE_CHECK_INTERVAL, discard(&mut changes)).await.ok();
        }
        discard(&mut changes).await;
    };
    let context = ReviewContext { lister: Arc::new(stores), metrics };
    let serve = webhook::run(client, context, clock, options, &health, stop.clone());
    tokio::select! {
        result = serve => result.map_err(|error| cluster::error_chain(&error)),
        () = report_caches => Ok(()),
    }
}

/// Receives changes without handling them: reviews read the stores.
async fn discard(changes: &mut mpsc::Receiver<Change>) {
    while changes.recv().await.is_some() {}
}

/// Runs the control loop until `stop` is cancelled, and then completes the running reconciles.
async fn run_control_loop(client: Client, options: &Options, stop: CancellationToken) {
    let stores = Stores::with_cache_policy(FIELD_MANAGER, cache_policy);
    let (watches, changes) = start_watches(&client, &stores, options, &stop);
    let reconcilers = Reconcilers::new(Context::new(client, stores, options));
    let control_loop = ControlLoop::new(&reconcilers, watches, changes);
    options.health.observe_loop(control_loop.run(stop)).await;
}

/// Starts the watches of the kinds that every cluster serves; others follow as their definitions are listed.
fn start_watches(
    client: &Client,
    stores: &Stores,
    options: &Options,
    stop: &CancellationToken,
) -> (Watches, mpsc::Receiver<Change>) {
    let supervisor = options.health.supervisor.clone();
    let (mut watches, changes) = Watches::new(client.clone(), stores.clone(), supervisor, stop.clone());
    watches.restrict_to(&options.namespaces);
    for kind in [CUSTOM_RESOURCE_DEFINITION].iter().chain(BUILTIN).chain(LABEL_FILTERED) {
        watches.start(*kind);
    }
    if options.maintains_classes() {
        watches.start_named(BASE_SET_CONFIG_MAP, &NamespacedName::new(&options.namespace, base_set::CONFIG_MAP_NAME));
    }
    (watches, changes)
}
