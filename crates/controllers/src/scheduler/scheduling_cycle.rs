//! The main loop of the scheduler, which lists objects, schedules pending Pods and writes the decisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::condition::{self, Condition};
use apimachinery::{CaughtPanic, PanicBackOff, catch_panic, disruption_budget, object, persistent_volume, pod};
use apiserver::{Change, Server};
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;

use super::assign::schedule_pending;
use super::decision::{Decision, Outcome};
use super::pod_info::{bound_members, is_pending};
use super::snapshot::{SchedulingSnapshot, StorageObjects};
use super::{POD_GROUPS, gang, node_info};
use crate::due_time;

/// Reporting component of Events.
const COMPONENT: &str = "default-scheduler";

/// The scheduler and the objects whose processing panicked.
struct Scheduler {
    server: Server,
    panics: PanicBackOff<ObjectKey>,
}

/// Resource, namespace and name of a Pod or PodGroup.
type ObjectKey = (&'static str, String, String);

/// Runs the scheduler until `stop` is cancelled.
pub async fn run_scheduler(server: Server, stop: CancellationToken) {
    let mut changes = server.subscribe();
    server.cache_resources(&["pods", "nodes", POD_GROUPS]);
    let mut scheduler = Scheduler { server, panics: PanicBackOff::default() };
    loop {
        scheduler.server.before_write().await;
        scheduler.run_cycle();
        let retry_delay = scheduler.time_until_next_retry();
        let retry = tokio::time::sleep(retry_delay.unwrap_or_default());
        tokio::pin!(retry);
        loop {
            let change = tokio::select! {
                // The order is fixed, so that a run on a virtual clock is reproducible.
                biased;
                () = stop.cancelled() => return,
                () = &mut retry, if retry_delay.is_some() => break,
                change = changes.next() => change,
            };
            if change.as_ref().map_or(true, |change| catch_panic(|| may_unblock_pods(change)).unwrap_or(true)) {
                break;
            }
        }
        // The next cycle lists all objects, so it covers every change that is already queued.
        while changes.next().now_or_never().is_some() {}
    }
}

/// Whether a change can make a pending Pod schedulable, such as a new Pod or PodGroup, released resources or a changed
/// node.
fn may_unblock_pods(change: &Change) -> bool {
    let value = |object: &Option<Arc<Value>>, pointer: &str| object.as_ref().and_then(|o| o.pointer(pointer).cloned());
    let is_changed = |pointer: &str| value(&change.old, pointer) != value(&change.new, pointer);
    match change.resource.as_str() {
        "pods" => {
            let is_gone = |pod: &Option<Arc<Value>>| pod.as_ref().is_none_or(|pod| pod::is_finished(pod));
            change.old.is_none() || is_gone(&change.new) || is_changed("/spec") || is_changed("/metadata/labels")
        }
        "nodes" => {
            let allocatable = |node: &Option<Arc<Value>>| node.as_ref().map(|node| node_info::allocatable(node));
            is_changed("/spec")
                || is_changed("/metadata/labels")
                || allocatable(&change.old) != allocatable(&change.new)
        }
        "namespaces" => is_changed("/metadata/labels"),
        POD_GROUPS | persistent_volume::VOLUMES | persistent_volume::CLASSES => is_changed("/spec"),
        persistent_volume::CLAIMS => is_changed("/spec") || is_changed("/status/phase"),
        _ => false,
    }
}

/// Runs work that takes long while many Pods are pending. Meanwhile, another thread runs the other tasks of this worker.
fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

// === impl Scheduler ===

impl Scheduler {
    /// Runs one scheduling cycle. Objects that cause a panic are retried later, so that they do not stop the others.
    fn run_cycle(&mut self) {
        let server = &self.server;
        let snapshot = SchedulingSnapshot {
            pods: server.list("pods"),
            nodes: server.list("nodes"),
            groups: server.list(POD_GROUPS),
            namespaces: server.list("namespaces"),
            budgets: server.list(disruption_budget::RESOURCE),
            storage: Some(StorageObjects {
                claims: server.list(persistent_volume::CLAIMS),
                volumes: server.list(persistent_volume::VOLUMES),
                classes: server.list(persistent_volume::CLASSES),
            }),
        };
        self.forget_removed_objects(&snapshot);
        for group in &snapshot.groups {
            self.guard(POD_GROUPS, group, |server| update_group_phase(server, group, &snapshot.pods));
        }
        if snapshot.pods.iter().any(|pod| is_pending(pod)) {
            run_blocking(|| self.schedule(&snapshot));
        }
    }

    /// Schedules the pending Pods and writes the decisions.
    fn schedule(&mut self, snapshot: &SchedulingSnapshot) {
        let is_delayed = |pod: &&Arc<Value>| self.is_delayed("pods", pod);
        let delayed: BTreeSet<String> =
            snapshot.pods.iter().filter(is_delayed).map(|pod| object::uid(pod).to_owned()).collect();
        let schedule = schedule_pending(snapshot, &delayed);
        for failure in schedule.failures {
            for pod in failure.pods {
                self.delay("pods", &pod, &failure.panic);
            }
        }
        for decision in schedule.decisions {
            self.guard("pods", &decision.pod, |server| {
                let now = object::format_time(server.now());
                if let Err(status) = apply(server, &decision, &now) {
                    // If the Pod changed concurrently, that change starts the next cycle.
                    tracing::debug!(pod = object::name(&decision.pod), %status, "failed to write the scheduling decision");
                }
            });
        }
    }

    /// Processes an object unless it is delayed. After a panic, the object is retried later.
    fn guard(&mut self, resource: &'static str, object: &Value, process: impl FnOnce(&Server)) {
        if self.is_delayed(resource, object) {
            return;
        }
        match catch_panic(|| process(&self.server)) {
            Ok(()) => self.panics.reset(&object_key(resource, object)),
            Err(panic) => self.delay(resource, object, &panic),
        }
    }

    fn is_delayed(&self, resource: &'static str, object: &Value) -> bool {
        self.panics.retry_at(&object_key(resource, object), object::uid(object), due_time::monotonic_now()).is_some()
    }

    /// Reports a panic unless the object is already waiting for its retry.
    fn delay(&mut self, resource: &'static str, object: &Value, panic: &CaughtPanic) {
        if !self.is_delayed(resource, object) {
            self.panics.record(object_key(resource, object), object::uid(object), due_time::monotonic_now());
            self.server.report_panic(object, panic, COMPONENT);
        }
    }

    fn forget_removed_objects(&mut self, snapshot: &SchedulingSnapshot) {
        if self.panics.is_empty() {
            return;
        }
        let pods = snapshot.pods.iter().map(|pod| object_key("pods", pod));
        let groups = snapshot.groups.iter().map(|group| object_key(POD_GROUPS, group));
        let existing: BTreeSet<ObjectKey> = pods.chain(groups).collect();
        self.panics.retain(|key| existing.contains(key));
    }

    fn time_until_next_retry(&self) -> Option<std::time::Duration> {
        let now = due_time::monotonic_now();
        self.panics.next_retry(now).map(|at| at.saturating_duration_since(now))
    }
}

fn object_key(resource: &'static str, object: &Value) -> ObjectKey {
    (resource, object::namespace(object).to_owned(), object::name(object).to_owned())
}

/// Writes one decision.
fn apply(server: &Server, decision: &Decision, now: &str) -> Result<(), apimachinery::Status> {
    match &decision.outcome {
        Outcome::Bind { node } => bind(server, &decision.pod, node),
        Outcome::Wait { reason, message, retains_nomination } => {
            let nominated = object::text(&decision.pod, "/status/nominatedNodeName");
            mark_unschedulable(
                server,
                &decision.pod,
                reason,
                message,
                if *retains_nomination { nominated } else { "" },
                now,
            )
        }
        Outcome::Preempt { node, victims, message } => {
            victims.iter().for_each(|victim| evict_victim(server, victim, &decision.pod, node, now));
            mark_unschedulable(server, &decision.pod, "Unschedulable", message, node, now)
        }
    }
}

/// Updates `status.phase` of a PodGroup if it changed. PodGroups have no status subresource.
fn update_group_phase(server: &Server, group: &Value, pods: &[Arc<Value>]) {
    let key = (object::namespace(group).to_owned(), object::name(group).to_owned());
    let phase = gang::group_phase(group, &bound_members(&key, pods));
    if object::text(group, "/status/phase") == phase {
        return;
    }
    let mut updated = group.clone();
    let status = object::members(&mut updated).entry("status").or_insert_with(|| json!({}));
    object::members(status).insert("phase".to_owned(), json!(phase));
    if let Err(status) = server.update(POD_GROUPS, updated) {
        tracing::debug!(group = key.1, %status, "failed to update the phase of the PodGroup");
    }
}

/// Binds the Pod to the node and records the `Scheduled` Event.
fn bind(server: &Server, pod: &Value, node: &str) -> Result<(), apimachinery::Status> {
    let (namespace, name) = (object::namespace(pod), object::name(pod));
    let stored = server.bind(namespace, name, node)?;
    let message = format!("Successfully assigned {namespace}/{name} to {node}");
    server.record_event(&stored, "Normal", "Scheduled", &message, COMPONENT);
    Ok(())
}

/// Deletes a preemption victim. As in kube-scheduler, it first records an Event and sets the condition
/// `DisruptionTarget`.
fn evict_victim(server: &Server, victim: &Value, preemptor: &Value, node: &str, now: &str) {
    let (namespace, name) = (object::namespace(victim), object::name(victim));
    let message = format!("Preempted by pod {} on node {node}", object::uid(preemptor));
    server.record_event(victim, "Normal", "Preempted", &message, COMPONENT);
    let mut updated = victim.clone();
    let status = object::members(&mut updated).entry("status").or_insert_with(|| json!({}));
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    let target = Condition { type_: "DisruptionTarget", status: true, reason: "PreemptionByScheduler", message };
    condition::set(status, target, now);
    // A failure to set the condition does not prevent the deletion.
    let _ = server.update_status("pods", updated);
    if let Err(status) = server.delete("pods", namespace, name, Some(object::uid(victim))) {
        tracing::debug!(namespace, name, %status, "failed to delete a preemption victim");
    }
}

/// Updates the condition `PodScheduled` and the nominated node. If the status is unchanged, it writes nothing and
/// records no Event.
fn mark_unschedulable(
    server: &Server,
    pod: &Value,
    reason: &str,
    message: &str,
    nominated: &str,
    now: &str,
) -> Result<(), apimachinery::Status> {
    let mut updated = pod.clone();
    let status = object::members(&mut updated).entry("status").or_insert_with(|| json!({}));
    match nominated {
        "" => object::members(status).remove("nominatedNodeName"),
        node => object::members(status).insert("nominatedNodeName".to_owned(), json!(node)),
    };
    condition::set(status, Condition { type_: "PodScheduled", status: false, reason, message }, now);
    if updated == *pod {
        return Ok(());
    }
    let stored = server.update_status("pods", updated)?;
    if reason == "Unschedulable" {
        server.record_event(&stored, "Warning", "FailedScheduling", message, COMPONENT);
    }
    Ok(())
}
