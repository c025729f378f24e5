//! Launcher mode: selects the launcher in which an engine starts. Launchers are not created while one that exists can run it, if
//! necessary after one of its sleeping engines is deleted. A launcher has one engine per port.

use super::context::Context;
use super::outcome::Outcome;
use crate::container::ContainerPhase;
use crate::delete_purpose::DeletePurpose;
use crate::node::{Engine, LauncherState, NodeState};
use crate::nominal::NominalProvider;
use crate::requester::Requester;
use crate::write;

/// Returns what has to be done to start the engine in a launcher that exists; `None` in direct mode, and if no launcher is suitable.
pub(super) fn launch(context: &Context, requester: &Requester, nominal: &NominalProvider) -> Option<Outcome> {
    if candidates(context.node, nominal).any(|state| state.launcher.records.contains_key(&nominal.identity)) {
        // An engine of this identity is being deleted, since it is neither suitable nor busy.
        return Some(Outcome::wait());
    }
    if let Some(state) = launcher_with_room(context.node, nominal) {
        return Some(Outcome::write(write::bind_instance(requester, nominal, &state.launcher)));
    }
    let is_in_candidate = |engine: &&Engine| {
        let uid = &engine.provider.pod.uid;
        candidates(context.node, nominal)
            .any(|state| state.launcher.provider.pod.uid == *uid && !state.launcher.uses_port(nominal.port))
    };
    if context.node.engines.values().filter(is_in_candidate).any(Engine::will_be_gone) {
        return Some(Outcome::wait());
    }
    let victim = context.sleepers().iter().copied().find(is_in_candidate)?;
    Some(context.delete_engine(victim, DeletePurpose::Victim))
}

/// Returns the launcher that can start the engine without another one being deleted first; of several, the one whose engines were awake
/// last. `None` in direct mode.
pub(crate) fn launcher_with_room<'a>(node: &'a NodeState, nominal: &'a NominalProvider) -> Option<&'a LauncherState> {
    let has_room = |state: &&LauncherState| {
        state.launcher.records.len() < state.launcher.max_instances && !state.launcher.uses_port(nominal.port)
    };
    candidates(node, nominal).filter(has_room).max_by_key(|state| state.launcher.provider.last_used())
}

/// Returns the launchers that are not bound and could run the engine.
fn candidates<'a>(
    node: &'a NodeState,
    nominal: &'a NominalProvider,
) -> impl Iterator<Item = &'a LauncherState> + use<'a> {
    node.launchers.values().filter(move |state| {
        let provider = &state.launcher.provider;
        let needed = nominal.instance.as_ref().map(|instance| &instance.launcher);
        is_available(state) && needed == Some(&provider.identity) && provider.pod.namespace == nominal.namespace
    })
}

/// Returns whether a launcher can be bound.
fn is_available(state: &LauncherState) -> bool {
    let provider = &state.launcher.provider;
    let is_running = provider.container.phase != ContainerPhase::Terminated;
    provider.binding.is_none() && !provider.is_terminating && !state.is_deletion_sent && is_running
}
