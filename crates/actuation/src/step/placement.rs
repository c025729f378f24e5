//! Launcher mode: selects the launcher in which an engine starts. Launchers are not created while one that exists can run it, if
//! necessary after one of its sleeping engines is deleted. A launcher has one engine per port.

use super::context::Context;
use super::outcome::Outcome;
use crate::container::ContainerPhase;
use crate::delete_purpose::DeletePurpose;
use crate::node::{Engine, LauncherState};
use crate::nominal::NominalProvider;
use crate::requester::Requester;
use crate::write;

/// Returns what has to be done to start the engine in a launcher that exists; `None` in direct mode, and if no launcher is suitable.
pub(super) fn launch(context: &Context, requester: &Requester, nominal: &NominalProvider) -> Option<Outcome> {
    let instance = nominal.instance.as_ref()?;
    let candidates: Vec<&LauncherState> = context
        .node
        .launchers
        .values()
        .filter(|state| is_available(state) && state.launcher.provider.identity == instance.launcher)
        .filter(|state| state.launcher.provider.pod.namespace == nominal.namespace)
        .collect();
    let has_engine = |state: &&LauncherState| state.launcher.records.contains_key(&nominal.identity);
    if candidates.iter().any(has_engine) {
        // An engine of this identity is being deleted, since it is neither suitable nor busy.
        return Some(Outcome::wait());
    }
    let candidates: Vec<&LauncherState> =
        candidates.into_iter().filter(|state| !state.launcher.uses_port(nominal.port)).collect();
    let has_room = |state: &&&LauncherState| state.launcher.records.len() < state.launcher.max_instances;
    if let Some(state) = candidates.iter().filter(has_room).max_by_key(|state| state.launcher.provider.last_used()) {
        return Some(Outcome::write(write::bind_instance(requester, nominal, &state.launcher)));
    }
    let is_in_candidate =
        |engine: &&Engine| candidates.iter().any(|state| state.launcher.provider.pod.uid == engine.provider.pod.uid);
    if context.node.engines.values().filter(is_in_candidate).any(Engine::is_leaving) {
        return Some(Outcome::wait());
    }
    let victim = context.sleepers().iter().copied().find(is_in_candidate)?;
    Some(context.delete_engine(victim, DeletePurpose::Victim))
}

/// Returns whether a launcher can be bound.
fn is_available(state: &LauncherState) -> bool {
    let provider = &state.launcher.provider;
    let is_running = provider.container.phase != ContainerPhase::Terminated;
    provider.binding.is_none() && !provider.is_terminating && !state.is_deletion_sent && is_running
}
