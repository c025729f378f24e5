//! The scheduler's turns: what there is, read; what was decided about it, written.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::assign::assign;
use super::world::{Storage, World};
use super::{Outcome, POD_GROUPS, Verdict, bound_of, candidate, gang, is_finished};
use crate::Server;
use crate::object;
use crate::ports::Ports;
use crate::watch::Change;
use crate::workloads::condition::{self, Condition};
use crate::workloads::disruption::BUDGETS;
use crate::workloads::volume_claim;

/// Runs the scheduler until `stop`.
pub async fn run(server: Server, ports: Ports, stop: CancellationToken) {
    let mut changes = server.subscribe();
    server.keep_ready(&["pods", "nodes", POD_GROUPS]);
    loop {
        turn(&server, &ports);
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                change = changes.next() => change,
            };
            if change.as_ref().map_or(true, matters) {
                break;
            }
        }
        // One turn looks at all that has changed by now.
        while changes.next().now_or_never().is_some() {}
    }
}

/// Whether a change could let a Pod be placed: a new Pod or group, room that came free, a node that is different.
fn matters(change: &Change) -> bool {
    let of = |object: &Option<Arc<Value>>, pointer: &str| object.as_ref().and_then(|o| o.pointer(pointer).cloned());
    let differs = |pointer: &str| of(&change.old, pointer) != of(&change.new, pointer);
    match change.resource.as_str() {
        "pods" => {
            let finished = |pod: &Option<Arc<Value>>| pod.as_ref().is_none_or(|pod| is_finished(pod));
            change.old.is_none() || finished(&change.new) || differs("/spec") || differs("/metadata/labels")
        }
        "nodes" => {
            let room = |node: &Option<Arc<Value>>| node.as_ref().map(|node| candidate::allocatable(node));
            differs("/spec") || differs("/metadata/labels") || room(&change.old) != room(&change.new)
        }
        "namespaces" => differs("/metadata/labels"),
        POD_GROUPS | volume_claim::VOLUMES | volume_claim::CLASSES => differs("/spec"),
        volume_claim::CLAIMS => differs("/spec") || differs("/status/phase"),
        _ => false,
    }
}

fn turn(server: &Server, ports: &Ports) {
    let world = World {
        pods: server.list("pods"),
        nodes: server.list("nodes"),
        groups: server.list(POD_GROUPS),
        namespaces: server.list("namespaces"),
        budgets: server.list(BUDGETS),
        storage: Some(Storage {
            claims: server.list(volume_claim::CLAIMS),
            volumes: server.list(volume_claim::VOLUMES),
            classes: server.list(volume_claim::CLASSES),
        }),
    };
    for group in &world.groups {
        show_phase(server, group, &world.pods);
    }
    for verdict in assign(&world) {
        let now = object::time(ports.clock.now());
        if let Err(status) = carry_out(server, &verdict, &now) {
            // Somebody changed the Pod meanwhile; that change starts the next turn.
            tracing::debug!(pod = object::name(&verdict.pod), %status, "not scheduled");
        }
    }
}

fn carry_out(server: &Server, verdict: &Verdict, now: &str) -> Result<(), apimachinery::status::Status> {
    match &verdict.outcome {
        Outcome::Bind { node } => bind(server, &verdict.pod, node),
        Outcome::Wait { reason, message, keeps_nomination } => {
            let nominated = object::text(&verdict.pod, "/status/nominatedNodeName");
            refuse(server, &verdict.pod, reason, message, if *keeps_nomination { nominated } else { "" }, now)
        }
        Outcome::Preempt { node, victims, message } => {
            victims.iter().for_each(|victim| make_room(server, victim, &verdict.pod, node, now));
            refuse(server, &verdict.pod, "Unschedulable", message, node, now)
        }
    }
}

/// Writes the phase of a group where it is new. PodGroups have no status face.
fn show_phase(server: &Server, group: &Value, pods: &[Arc<Value>]) {
    let key = (object::namespace(group).to_owned(), object::name(group).to_owned());
    let phase = gang::phase(group, &bound_of(&key, pods));
    if object::text(group, "/status/phase") == phase {
        return;
    }
    let mut shown = group.clone();
    let status = object::members(&mut shown).entry("status").or_insert_with(|| json!({}));
    object::members(status).insert("phase".to_owned(), json!(phase));
    if let Err(status) = server.update(POD_GROUPS, shown) {
        tracing::debug!(group = key.1, %status, "the phase was not written");
    }
}

fn bind(server: &Server, pod: &Value, node: &str) -> Result<(), apimachinery::status::Status> {
    let (namespace, name) = (object::namespace(pod), object::name(pod));
    let stored = server.bind(namespace, name, node)?;
    let message = format!("Successfully assigned {namespace}/{name} to {node}");
    server.event(&stored, "Normal", "Scheduled", &message, "default-scheduler");
    Ok(())
}

/// Sends a Pod of lower priority away.
fn make_room(server: &Server, victim: &Value, winner: &Value, node: &str, now: &str) {
    let (namespace, name) = (object::namespace(victim), object::name(victim));
    let message = format!("Preempted by pod {} on node {node}", object::uid(winner));
    server.event(victim, "Normal", "Preempted", &message, "default-scheduler");
    let mut marked = victim.clone();
    let status = object::members(&mut marked).entry("status").or_insert_with(|| json!({}));
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    let target = Condition { kind: "DisruptionTarget", status: true, reason: "PreemptionByScheduler", message };
    condition::set(status, target, now);
    // The deletion does not depend on it.
    let _ = server.update_status("pods", marked);
    if let Err(status) = server.delete("pods", namespace, name, Some(object::uid(victim))) {
        tracing::debug!(namespace, name, %status, "a victim was not deleted");
    }
}

/// Writes the reason and the promised node where they are new; the same again writes nothing and tells nobody.
fn refuse(
    server: &Server,
    pod: &Value,
    reason: &str,
    message: &str,
    nominated: &str,
    now: &str,
) -> Result<(), apimachinery::status::Status> {
    let mut refused = pod.clone();
    let status = object::members(&mut refused).entry("status").or_insert_with(|| json!({}));
    match nominated {
        "" => object::members(status).remove("nominatedNodeName"),
        node => object::members(status).insert("nominatedNodeName".to_owned(), json!(node)),
    };
    condition::set(status, Condition { kind: "PodScheduled", status: false, reason, message }, now);
    if refused == *pod {
        return Ok(());
    }
    let stored = server.update_status("pods", refused)?;
    if reason == "Unschedulable" {
        server.event(&stored, "Warning", "FailedScheduling", message, "default-scheduler");
    }
    Ok(())
}
