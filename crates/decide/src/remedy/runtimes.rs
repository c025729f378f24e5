//! Changes to runtimes, and to the runtime name in the service.

use std::sync::Arc;

use super::apply;
use super::change::{ProposedChange, RuntimeField};
use super::what_if::WhatIf;
use crate::code;
use crate::compatibility::{self, DEFAULT_PROTOCOL};
use crate::decision::{Decision, RuntimeCandidate};
use crate::demand::{Demand, Model, NamedVersion};
use crate::is_visible;
use crate::reason::RuntimeRejection;
use crate::size::SizeRange;
use crate::suggestion::nearest_name;
use crate::supply::{Runtime, Scope, Supply, SupportedFormat};

/// Returns corrections of the runtime name of the service.
pub(super) fn runtime_name_changes(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let Some(name) = &what_if.demand.runtime else { return Vec::new() };
    let mut changes = Vec::new();
    if what_if.current.reason == code::outcome::RUNTIME_NOT_FOUND.as_str() {
        let visible = what_if.supply.runtimes.iter().filter(|runtime| is_visible(what_if.demand, runtime));
        let nearest = nearest_name(name, visible.map(|runtime| runtime.name.as_str()));
        let correct_name = |to: &str| ProposedChange::CorrectRuntimeName { from: name.clone(), to: to.to_owned() };
        changes.extend(nearest.map(correct_name));
    }
    if what_if.demand.model.resolved().is_some() {
        changes.push(ProposedChange::RemoveRuntimeName(name.clone()));
    }
    changes
}

/// Returns changes that use a runtime which is disabled or not selected automatically.
pub(super) fn enable_runtime_changes(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let disabled = selected_runtime_after(what_if, |runtime| {
        let is_changed = runtime.disabled;
        runtime.disabled = false;
        is_changed
    });
    let not_selectable = selected_runtime_after(what_if, |runtime| {
        let mut is_changed = false;
        for format in &mut runtime.formats {
            is_changed |= !format.auto_select;
            format.auto_select = true;
        }
        is_changed
    });
    let not_selectable = not_selectable.filter(|_| what_if.demand.runtime.is_none());
    let enable_runtime = disabled.map(ProposedChange::EnableRuntime);
    enable_runtime.into_iter().chain(not_selectable.map(ProposedChange::SetRuntimeName)).collect()
}

/// Returns changes that allow runtimes which are disabled or not selected automatically, the closest first, even if none is
/// sufficient alone.
pub(super) fn excluded_runtime_changes(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let change = |candidate: &RuntimeCandidate| match candidate.rejected.as_ref()? {
        RuntimeRejection::Disabled => Some(ProposedChange::EnableRuntime(candidate.runtime.clone())),
        RuntimeRejection::AutoSelectDisabled => Some(ProposedChange::SetRuntimeName(candidate.runtime.clone())),
        _ => None,
    };
    what_if.current.candidates.iter().filter_map(change).take(MAX_ENTRIES).collect()
}

/// Applies `edit` to all runtimes and returns the one that is then selected, if `edit` changed it. `edit` returns
/// whether it changed the runtime.
fn selected_runtime_after(what_if: &WhatIf<'_>, edit: impl Fn(&mut Runtime) -> bool) -> Option<String> {
    let is_changed = |name: &str, scope: Scope| {
        let mut runtimes =
            what_if.supply.runtimes.iter().filter(|runtime| runtime.name == name && runtime.scope == scope);
        runtimes.any(|runtime| edit(&mut Runtime::clone(runtime)))
    };
    let outcome = what_if.try_edit(|demand, supply| {
        edit_visible_runtimes(demand, supply, |runtime| {
            edit(runtime);
        });
    })?;
    let selected = outcome.runtime?;
    is_changed(&selected.name, selected.scope).then_some(selected.name)
}

fn edit_visible_runtimes(demand: &Demand, supply: &mut Supply, edit: impl Fn(&mut Runtime)) {
    for runtime in supply.runtimes.iter_mut().filter(|runtime| is_visible(demand, runtime)) {
        edit(Arc::make_mut(runtime));
    }
}

/// Adapts every runtime that has the same rejection as the closest one, and returns the change for the one that is then
/// selected.
pub(super) fn runtime_adaptations(what_if: &WhatIf<'_>, closest: &RuntimeRejection) -> Vec<ProposedChange> {
    let Some(model) = what_if.demand.model.resolved() else { return protocol_change(what_if, closest) };
    if let RuntimeRejection::MissingFields { .. } = closest {
        return missing_field_changes(what_if, model);
    }
    let has_same_rejection = |candidate: &&RuntimeCandidate| {
        candidate.rejected.as_ref().is_some_and(|rejection| rejection.code() == closest.code())
    };
    let rejected: Vec<&RuntimeCandidate> = what_if.current.candidates.iter().filter(has_same_rejection).collect();
    let mut changes = protocol_change(what_if, closest);
    for multi_node in [false, true] {
        let outcome = what_if.try_edit(|demand, supply| {
            for candidate in &rejected {
                apply::edit_runtime(demand, supply, &candidate.runtime, |runtime| {
                    if let Some(field) = matching_field(runtime, model, demand, closest, multi_node) {
                        apply::adapt_runtime(runtime, model, &field);
                    }
                });
            }
        });
        changes.extend(outcome.and_then(|outcome| adaptation(what_if, model, closest, &outcome, multi_node)));
        if !changes.is_empty() || !matches!(closest, RuntimeRejection::SizeOutOfRange { .. }) {
            break;
        }
    }
    changes
}

fn adaptation(
    what_if: &WhatIf<'_>,
    model: &Model,
    closest: &RuntimeRejection,
    outcome: &Decision,
    multi_node: bool,
) -> Option<ProposedChange> {
    let selected = outcome.runtime.as_ref()?;
    let mut runtimes = what_if.supply.runtimes.iter();
    let runtime = runtimes.find(|runtime| runtime.name == selected.name && runtime.scope == selected.scope)?;
    let field = matching_field(runtime, model, what_if.demand, closest, multi_node)?;
    let is_named = what_if.demand.runtime.is_some();
    Some(ProposedChange::AdaptRuntime { runtime: selected.name.clone(), is_named, field })
}

/// Returns the field value that resolves `rejection`; `None` if the model does not set the field.
fn matching_field(
    runtime: &Runtime,
    model: &Model,
    demand: &Demand,
    rejection: &RuntimeRejection,
    multi_node: bool,
) -> Option<RuntimeField> {
    let version = |named: &Option<NamedVersion>| Some(named.as_ref()?.version.as_ref()?.to_string());
    Some(match rejection {
        RuntimeRejection::FormatMismatch { .. } => RuntimeField::Format(model.format.as_ref()?.name.clone()),
        RuntimeRejection::FormatVersionMismatch { .. } => RuntimeField::FormatVersion(version(&model.format)?),
        RuntimeRejection::FrameworkMismatch { .. } => RuntimeField::Framework(model.framework.as_ref()?.name.clone()),
        RuntimeRejection::FrameworkVersionMismatch { .. } => RuntimeField::FrameworkVersion(version(&model.framework)?),
        RuntimeRejection::ArchitectureMismatch { .. } => RuntimeField::Architecture(model.architecture.clone()?),
        RuntimeRejection::QuantizationMismatch { .. } => RuntimeField::Quantization(model.quantization.clone()),
        RuntimeRejection::PipelineMismatch { .. } => RuntimeField::Pipeline,
        RuntimeRejection::SizeOutOfRange { parameters, .. } => RuntimeField::Size {
            parameters: *parameters,
            range: SizeRange {
                min: runtime.size.min.map(|min| min.min(*parameters)),
                max: runtime.size.max.map(|max| max.max(*parameters)),
            },
            multi_node,
        },
        RuntimeRejection::ProtocolUnsupported { .. } => RuntimeField::Protocol(demand.protocol.clone()),
        _ => return None,
    })
}

/// Returns, per format entry of the closest runtime, the fields that the entry requires and the model does not set.
fn missing_field_changes(what_if: &WhatIf<'_>, model: &Model) -> Vec<ProposedChange> {
    let closest = what_if.current.candidates.first();
    let is_closest = |runtime: &&Runtime| {
        is_visible(what_if.demand, runtime)
            && closest.is_some_and(|closest| closest.runtime == runtime.name && closest.scope == runtime.scope)
    };
    let runtime = what_if.supply.runtimes.iter().map(AsRef::as_ref).find(is_closest);
    let missing_fields = |format: &SupportedFormat| match compatibility::format_mismatch(model, format)? {
        RuntimeRejection::MissingFields { fields, .. } => Some(fields),
        _ => None,
    };
    let changes = |runtime: &Runtime| {
        let change = |fields| ProposedChange::SetModelFields {
            model: model.name.clone(),
            fields,
            runtime: runtime.name.clone(),
        };
        runtime.formats.iter().filter_map(missing_fields).take(MAX_ENTRIES).map(change).collect()
    };
    runtime.map(changes).unwrap_or_default()
}

/// Maximum number of runtimes or format entries that are proposed.
const MAX_ENTRIES: usize = 8;

/// Returns the change to a protocol that the closest runtime supports.
fn protocol_change(what_if: &WhatIf<'_>, closest: &RuntimeRejection) -> Vec<ProposedChange> {
    let RuntimeRejection::ProtocolUnsupported { offered, .. } = closest else { return Vec::new() };
    let supported = offered.iter().find(|protocol| *protocol == DEFAULT_PROTOCOL).or(offered.first());
    supported
        .filter(|protocol| **protocol != what_if.demand.protocol)
        .cloned()
        .map(ProposedChange::SetProtocol)
        .into_iter()
        .collect()
}
