//! What runtimes, or the service's choice of one, could allow.

use super::case::Case;
use super::change::{Change, Field};
use super::lift;
use crate::compatibility::{self, DEFAULT_PROTOCOL};
use crate::decision::{Candidate, Decision};
use crate::demand::{Demand, Model};
use crate::nearest::nearest;
use crate::reason::Rejection;
use crate::supply::{Format, Runtime, SizeRange, Supply};
use crate::visible;

/// The runtime that the service names is another one, or none.
pub(super) fn named(case: &Case<'_>) -> Vec<Change> {
    let Some(name) = &case.demand.runtime else { return Vec::new() };
    let mut changes = Vec::new();
    if case.now.reason == "RuntimeNotFound" {
        let known = case.supply.runtimes.iter().filter(|runtime| visible(case.demand, runtime));
        let near = nearest(name, known.map(|runtime| runtime.name.as_str()));
        changes.extend(near.map(|to| Change::RuntimeName { from: name.clone(), to: to.to_owned() }));
    }
    if case.demand.model.known().is_some() {
        changes.push(Change::DropRuntimeName(name.clone()));
    }
    changes
}

/// Runtimes that match but are disabled or not chosen by themselves.
pub(super) fn switched_off(case: &Case<'_>) -> Vec<Change> {
    let disabled = winner_with(case, |runtime| {
        let off = runtime.disabled;
        runtime.disabled = false;
        off
    });
    let unselected = winner_with(case, |runtime| {
        let mut off = false;
        for entry in &mut runtime.formats {
            off |= !entry.auto_select;
            entry.auto_select = true;
        }
        off
    });
    let unselected = unselected.filter(|_| case.demand.runtime.is_none());
    disabled.map(Change::EnableRuntime).into_iter().chain(unselected.map(Change::NameRuntime)).collect()
}

/// Runtimes that are disabled or not chosen by themselves, nearest first, whether or not they would then serve.
pub(super) fn forbidden(case: &Case<'_>) -> Vec<Change> {
    let change = |candidate: &Candidate| match candidate.rejected.as_ref()? {
        Rejection::Disabled => Some(Change::EnableRuntime(candidate.runtime.clone())),
        Rejection::AutoSelectDisabled => Some(Change::NameRuntime(candidate.runtime.clone())),
        _ => None,
    };
    case.now.candidates.iter().filter_map(change).take(ENTRIES).collect()
}

/// The runtime that would win if all were edited, if it is one that the edit changes.
fn winner_with(case: &Case<'_>, edit: impl Fn(&mut Runtime) -> bool) -> Option<String> {
    let changes = |name: &str, scope| {
        let mut named = case.supply.runtimes.iter().filter(|one| one.name == name && one.scope == scope);
        named.any(|one| edit(&mut Runtime::clone(one)))
    };
    let outcome = case.try_with(|demand, supply| {
        edit_all(demand, supply, |runtime| {
            edit(runtime);
        });
    })?;
    let winner = outcome.runtime?;
    changes(&winner.name, winner.scope).then_some(winner.name)
}

fn edit_all(demand: &Demand, supply: &mut Supply, edit: impl Fn(&mut Runtime)) {
    for runtime in supply.runtimes.iter_mut().filter(|runtime| visible(demand, runtime)) {
        edit(std::sync::Arc::make_mut(runtime));
    }
}

/// The nearest check lifted for all runtimes that fail it: the one that then wins is the one to adapt, or to copy.
pub(super) fn adapted(case: &Case<'_>, nearest: &Rejection) -> Vec<Change> {
    let Some(model) = case.demand.model.known() else { return protocol(case, nearest) };
    if let Rejection::Unstated { .. } = nearest {
        return unstated(case, model);
    }
    let failing: Vec<&Candidate> = case.now.candidates.iter().filter(|one| code(one) == nearest.code()).collect();
    let mut changes = protocol(case, nearest);
    for several_nodes in [false, true] {
        let outcome = case.try_with(|demand, supply| {
            for candidate in &failing {
                lift::each_runtime(demand, supply, &candidate.runtime, |runtime| {
                    if let Some(field) = field(runtime, model, demand, nearest, several_nodes) {
                        lift::adapt(runtime, model, &field);
                    }
                });
            }
        });
        changes.extend(outcome.and_then(|outcome| adapt(case, model, nearest, &outcome, several_nodes)));
        if !changes.is_empty() || !matches!(nearest, Rejection::SizeOutOfRange { .. }) {
            break;
        }
    }
    changes
}

fn code(candidate: &Candidate) -> &str {
    candidate.rejected.as_ref().map_or("", Rejection::code)
}

fn adapt(case: &Case<'_>, model: &Model, nearest: &Rejection, outcome: &Decision, more: bool) -> Option<Change> {
    let winner = outcome.runtime.as_ref()?;
    let known = case.supply.runtimes.iter().find(|one| one.name == winner.name && one.scope == winner.scope)?;
    let field = field(known, model, case.demand, nearest, more)?;
    Some(Change::Adapt { runtime: winner.name.clone(), named: case.demand.runtime.is_some(), field })
}

/// The value that lifts `rejection` for this runtime; `None` where the model states nothing to write.
fn field(runtime: &Runtime, model: &Model, demand: &Demand, rejection: &Rejection, more: bool) -> Option<Field> {
    let version = |named: &Option<crate::demand::Named>| Some(named.as_ref()?.version.as_ref()?.to_string());
    Some(match rejection {
        Rejection::FormatMismatch { .. } => Field::Format(model.format.as_ref()?.name.clone()),
        Rejection::FormatVersionMismatch { .. } => Field::FormatVersion(version(&model.format)?),
        Rejection::FrameworkMismatch { .. } => Field::Framework(model.framework.as_ref()?.name.clone()),
        Rejection::FrameworkVersionMismatch { .. } => Field::FrameworkVersion(version(&model.framework)?),
        Rejection::ArchitectureMismatch { .. } => Field::Architecture(model.architecture.clone()?),
        Rejection::QuantizationMismatch { .. } => Field::Quantization(model.quantization.clone()),
        Rejection::PipelineMismatch { .. } => Field::Pipeline,
        Rejection::SizeOutOfRange { parameters, .. } => Field::Size {
            parameters: *parameters,
            range: SizeRange {
                min: runtime.size.min.map(|min| min.min(*parameters)),
                max: runtime.size.max.map(|max| max.max(*parameters)),
            },
            several_nodes: more,
        },
        // A stated range counts before the name.
        Rejection::NamedForAnotherSize { parameters, .. } => Field::Size {
            parameters: *parameters,
            range: SizeRange { min: None, max: Some(*parameters) },
            several_nodes: more,
        },
        Rejection::ProtocolUnsupported { .. } => Field::Protocol(demand.protocol.clone()),
        _ => return None,
    })
}

/// What the model leaves unstated and the nearest runtime asks for, entry by entry.
fn unstated(case: &Case<'_>, model: &Model) -> Vec<Change> {
    let nearest = case.now.candidates.first();
    let is_it = |runtime: &&Runtime| {
        visible(case.demand, runtime)
            && nearest.is_some_and(|one| one.runtime == runtime.name && one.scope == runtime.scope)
    };
    let runtime = case.supply.runtimes.iter().map(AsRef::as_ref).find(is_it);
    let fields = |entry: &Format| match compatibility::mismatch(model, entry)? {
        Rejection::Unstated { fields, .. } => Some(fields),
        _ => None,
    };
    let of = |runtime: &Runtime| {
        let change = |fields| Change::StateInModel { model: model.name.clone(), fields, runtime: runtime.name.clone() };
        runtime.formats.iter().filter_map(fields).take(ENTRIES).map(change).collect()
    };
    runtime.map(of).unwrap_or_default()
}

/// Entries of one runtime that are tried; nobody chooses from more.
const ENTRIES: usize = 8;

/// A protocol that the nearest runtime speaks.
fn protocol(case: &Case<'_>, nearest: &Rejection) -> Vec<Change> {
    let Rejection::ProtocolUnsupported { offered, .. } = nearest else { return Vec::new() };
    let usual = offered.iter().find(|protocol| *protocol == DEFAULT_PROTOCOL).or(offered.first());
    usual
        .filter(|protocol| **protocol != case.demand.protocol)
        .cloned()
        .map(Change::SpeakProtocol)
        .into_iter()
        .collect()
}
