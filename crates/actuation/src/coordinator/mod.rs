//! [`Coordinator`]: the state of all nodes, and which node is decided about next.
//!
//! The owner reports changes of the caches ([`Coordinator::observe`]), carries out the [`Decision`]s of [`Coordinator::next`] and
//! reports their results. Decisions are made one at a time per node; calls stay outstanding meanwhile.

mod kinds;
mod node_table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::{Change, NamespacedName, Stores, WorkQueue};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::action::{Action, PatchPurpose, StatusUpdate, Write};
use crate::answer::{
    CallResult, finish_engine_call, finish_launcher_call, finish_requester_call, retry_at, start_engine_call,
    start_requester_call,
};
use crate::call::{Answer, Call, Request, Target};
use crate::names::provider_name;
use crate::node::{NodeState, Rejection, Server};
use crate::pod_ref::PodRef;
use crate::problem::Problem;
use crate::settings::Settings;
use crate::step::step;
pub(crate) use kinds::{CONFIG_MAP, NODE, POD};
pub use kinds::{cache_policy, watched_kinds};
use node_table::{NodeTable, refresh_instances};

/// Delay after a write that conflicts with another client's, or whose object does not exist: the watch usually delivers that
/// change meanwhile.
const CONFLICT_DELAY: Duration = Duration::from_millis(100);
/// Delay after the creation of a Pod that exists already: the watch delivers it.
const EXISTING_DELAY: Duration = Duration::from_secs(1);
/// Delay after a rejected write. An edit of the requester ends that of a creation.
const REJECTED_DELAY: Duration = Duration::from_secs(20);

/// The state of all nodes.
#[derive(Debug)]
pub struct Coordinator {
    settings: Settings,
    nodes: NodeTable,
    queue: WorkQueue<String>,
    /// Consecutive failed writes by node.
    write_failures: BTreeMap<String, u32>,
}

/// The current time, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Time of day, which is recorded in objects.
    pub wall: Timestamp,
    /// Monotonic time, by which delays are measured.
    pub monotonic: Instant,
}

/// What to do for one node. The node is not decided about again before a write, or a status, is reported as done; a call is
/// outstanding until its answer is reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Name of the Node.
    pub node: String,
    /// The action.
    pub action: Option<Action>,
    /// Status annotations to write.
    pub statuses: Vec<StatusUpdate>,
}

/// Results of the writes of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteResults {
    /// UIDs of the requesters whose status annotation the API server rejected, or that do not exist.
    pub rejected_statuses: Vec<String>,
    /// Result of the action; that of the status annotations if one of them failed for another reason.
    pub action: Result<(), WriteError>,
}

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object changed in the meantime (409).
    #[error("the object has changed")]
    Conflict,
    /// An object of the name of the created one exists (409).
    #[error("the object exists already")]
    AlreadyExists,
    /// The object does not exist (404).
    #[error("the object does not exist")]
    NotFound,
    /// The API server rejected the write for a reason that a user has to remove (400, 403, 422).
    #[error("{0}")]
    Rejected(String),
    /// The API server did not respond, or is overloaded.
    #[error("{0}")]
    Failed(String),
}

// === impl Coordinator ===

impl Coordinator {
    /// Returns the coordinator of one term of leadership, in which nothing was observed over HTTP yet. Its controller runs in
    /// `namespace` and reads from `stores`, which cache
    /// [`watched_kinds`] according to [`cache_policy`].
    #[must_use]
    pub fn new(settings: Settings, stores: Stores, namespace: String) -> Coordinator {
        Coordinator {
            nodes: NodeTable::new(stores, settings.clone(), namespace),
            settings,
            queue: WorkQueue::default(),
            write_failures: BTreeMap::new(),
        }
    }

    /// Returns the state of a node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    /// Returns the states of all nodes that have a requester or a provider.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.nodes.iter()
    }

    /// Updates the state after a change of the caches.
    pub fn observe(&mut self, change: &Change) {
        self.nodes.observe(change);
        self.queue_changed();
    }

    fn queue_changed(&mut self) {
        self.nodes.take_changed().into_iter().for_each(|node| self.queue.add(node));
    }

    /// Returns the next decision; `None` if no node needs one now.
    pub fn next(&mut self, time: Time) -> Option<Decision> {
        while let Some(name) = self.queue.pop(time.monotonic) {
            let Some(node) = self.nodes.get_mut(&name) else {
                self.write_failures.remove(&name);
                self.queue.done(&name);
                continue;
            };
            if std::mem::take(&mut node.has_removed_engine) {
                node.freed_at = Some(time.wall);
            }
            let next = step(node, &self.settings, time.wall);
            let (is_call, is_write) = match &next.action {
                Some(Action::Call(call)) => {
                    start_call(node, call, time.wall);
                    (true, false)
                }
                Some(Action::Write(_)) => (false, true),
                None => (false, false),
            };
            if let Some(again) = next.again {
                self.queue.add_at(name.clone(), due(again, time));
            }
            if is_call {
                self.queue.add(name.clone());
            }
            if !is_write && next.statuses.is_empty() {
                self.queue.done(&name);
            }
            if next.action.is_some() || !next.statuses.is_empty() {
                return Some(Decision { node: name, action: next.action, statuses: next.statuses });
            }
        }
        None
    }

    /// Returns when [`Self::next`] has to be called again if nothing changes.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.queue.next_due()
    }

    /// Records the result of the writes of a decision. The owner has reported the responses to `Stores` before. Decisions that
    /// consist of a call only need not be reported.
    pub fn done(&mut self, decision: &Decision, results: WriteResults, time: Time) {
        let (name, result) = (&decision.node, results.action);
        for status in &decision.statuses {
            self.nodes.refresh_pod(&key_of(&status.requester));
        }
        for uid in &results.rejected_statuses {
            if let Some(server) = self.server_mut(name, uid) {
                server.status_retry_at = after(REJECTED_DELAY, time);
            }
        }
        if let Some(Action::Write(write)) = &decision.action {
            self.finish_write(name, write, &result, time);
        }
        match result {
            Ok(()) | Err(WriteError::AlreadyExists | WriteError::Rejected(_)) => {
                self.write_failures.remove(name);
                self.queue.add(name.clone());
            }
            Err(WriteError::Conflict | WriteError::NotFound) => {
                let due = time.monotonic.checked_add(CONFLICT_DELAY).unwrap_or(time.monotonic);
                self.queue.add_at(name.clone(), due);
            }
            Err(WriteError::Failed(_)) => {
                let failures = self.write_failures.entry(name.clone()).or_default();
                *failures = failures.saturating_add(1);
                self.queue.add_at(name.clone(), due(retry_at(*failures, time.wall), time));
            }
        }
        self.queue_changed();
        self.queue.done(name);
    }

    /// Records the answer to a call.
    pub fn answer(&mut self, call: &Call, result: &CallResult, time: Time) {
        let Some(node) = self.nodes.get_mut(&call.node) else { return };
        match &call.target {
            Target::Requester(uid) => {
                let Some(server) = node.servers.get_mut(uid) else { return };
                // An answer to a container that has ended since, or of the former term, is ignored.
                if server.facts.outstanding.as_ref() != Some(&call.request) {
                    return;
                }
                finish_requester_call(&mut server.facts, call, result, time.wall);
                if call.request == Request::Accelerators {
                    let uid = uid.clone();
                    self.nodes.derive(&call.node, &uid);
                }
            }
            Target::Launcher(uid) => {
                let Some(state) = node.launchers.get_mut(uid) else { return };
                if state.facts.outstanding.as_ref() != Some(&call.request) {
                    return;
                }
                let engines = node.engines.iter_mut().filter(|(id, _)| id.pod == *uid);
                let instances = engines.filter_map(|(id, engine)| {
                    let was_ready = engine.provider.last_awake.is_some();
                    Some((id.instance.as_deref()?, &mut engine.facts, was_ready))
                });
                finish_launcher_call(&mut state.facts, instances, result, time.wall);
                refresh_instances(node, uid);
            }
            Target::Engine(id) => {
                let Some(engine) = node.engines.get_mut(id) else { return };
                if engine.facts.outstanding.as_ref() != Some(&call.request) {
                    return;
                }
                finish_engine_call(&mut engine.facts, call, result, time.wall);
                if let (Ok(Answer::InstanceDeleted { .. }), Some(instance)) = (result, &id.instance) {
                    forget_instance(node, &id.pod, instance);
                }
            }
        }
        self.queue.add(call.node.clone());
    }

    fn finish_write(&mut self, node: &str, write: &Write, result: &Result<(), WriteError>, time: Time) {
        match write {
            Write::Create { requester, .. } => {
                if let Some(server) = self.server_mut(node, &requester.uid) {
                    server.rejection = rejection("create server-providing Pod", result, time);
                }
                self.forget_memory(node);
                let name = provider_name(&requester.name, &requester.uid);
                self.nodes.refresh_pod(&NamespacedName::new(&requester.namespace, &name));
            }
            Write::Patch { pod, purpose, .. } => {
                if matches!(purpose, PatchPurpose::Bind | PatchPurpose::Launch) {
                    self.forget_memory(node);
                }
                self.finish_observed(node, pod, rejection(&format!("patch Pod {}", pod.name), result, time), result);
            }
            Write::Delete { pod, .. } => {
                if matches!(result, Ok(()) | Err(WriteError::NotFound)) {
                    self.record_deletion(node, &pod.uid);
                }
                self.finish_observed(node, pod, rejection(&format!("delete Pod {}", pod.name), result, time), result);
            }
        }
    }

    fn finish_observed(
        &mut self,
        node: &str,
        pod: &PodRef,
        rejection: Option<Rejection>,
        result: &Result<(), WriteError>,
    ) {
        if let Some(node) = self.nodes.get_mut(node) {
            match rejection {
                Some(rejection) => drop(node.rejections.insert(pod.uid.clone(), rejection)),
                None => drop(node.rejections.remove(&pod.uid)),
            }
        }
        match result {
            Err(WriteError::NotFound) => self.nodes.observe_absence(&key_of(pod)),
            _ => self.nodes.refresh_pod(&key_of(pod)),
        }
    }

    /// Remembers that the controller deleted a Pod, so that its deletion is not taken for that of another client.
    fn record_deletion(&mut self, node: &str, uid: &str) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        let engines = node.engines.iter_mut().filter(|(id, _)| id.pod == uid);
        engines.for_each(|(_, engine)| engine.is_deletion_sent = true);
        if let Some(state) = node.launchers.get_mut(uid) {
            state.is_deletion_sent = true;
        }
        if let Some(server) = node.servers.get_mut(uid) {
            server.is_deletion_sent = true;
        }
    }

    fn server_mut(&mut self, node: &str, uid: &str) -> Option<&mut Server> {
        self.nodes.get_mut(node)?.servers.get_mut(uid)
    }

    fn forget_memory(&mut self, node: &str) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.forget_memory();
        }
    }
}

/// Removes an instance that was deleted from the last response of its launcher.
fn forget_instance(node: &mut NodeState, launcher: &str, instance: &str) {
    if let Some(state) = node.launchers.get_mut(launcher) {
        state.facts.instances.remove(instance);
    }
    refresh_instances(node, launcher);
}

fn start_call(node: &mut NodeState, call: &Call, now: Timestamp) {
    if matches!(call.request, Request::WakeUp | Request::CreateInstance { .. } | Request::DeleteInstance { .. }) {
        node.forget_memory();
    }
    match &call.target {
        Target::Requester(uid) => {
            if let Some(server) = node.servers.get_mut(uid) {
                start_requester_call(&mut server.facts, &call.request);
            }
        }
        Target::Launcher(uid) => {
            if let Some(state) = node.launchers.get_mut(uid) {
                (state.facts.outstanding, state.facts.retry_at) = (Some(call.request.clone()), None);
            }
        }
        Target::Engine(id) => {
            if let Some(engine) = node.engines.get_mut(id) {
                start_engine_call(&mut engine.facts, &call.request, now);
            }
        }
    }
}

/// Returns when to repeat a write that was rejected. `action` names the write.
fn rejection(action: &str, result: &Result<(), WriteError>, time: Time) -> Option<Rejection> {
    let (problem, delay) = match result {
        Err(WriteError::AlreadyExists) => (None, EXISTING_DELAY),
        Err(WriteError::Rejected(message)) => {
            (Some(Problem::Rejected(format!("failed to {action}: {message}"))), REJECTED_DELAY)
        }
        _ => return None,
    };
    Some(Rejection { problem, retry_at: after(delay, time)? })
}

fn after(delay: Duration, time: Time) -> Option<Timestamp> {
    time.wall.checked_add(delay).ok()
}

fn due(at: Timestamp, time: Time) -> Instant {
    let delay = apimachinery::time::duration_until(at, time.wall);
    time.monotonic.checked_add(delay).unwrap_or(time.monotonic)
}

fn key_of(pod: &PodRef) -> NamespacedName {
    NamespacedName::new(&pod.namespace, &pod.name)
}
