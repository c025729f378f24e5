//! Budget of sleeping engines: their number and memory per accelerator, and the memory of the host.
//!
//! Only a creation can exceed the number, since a wake does not change the sum, so it is enforced before a creation and at no
//! other time. The memory of the host has no ledger: a sleeper retains its memory request, so the scheduler reports when a
//! provider does not fit.

use std::collections::BTreeSet;

use super::context::Context;
use super::outcome::Outcome;
use crate::action::DeletePurpose;
use crate::call::Request;
use crate::facts::MemoryUsage;
use crate::node::{Engine, Server};
use crate::problem::Problem;
use crate::requester::Requester;

/// Resources of the host whose shortage the scheduler reports.
const HOST_RESOURCES: [&str; 2] = ["Insufficient memory", "Insufficient cpu"];

/// Seconds between two measurements of memory that is short.
const MEASURE_INTERVAL_SECONDS: i64 = 2;

/// Returns what has to be done before an engine is created on the accelerators; `None` if nothing has. `sleepers` are those that
/// may be deleted, least recently used first.
pub(super) fn make_room(
    context: &Context,
    server: &Server,
    requester: &Requester,
    accelerators: &BTreeSet<String>,
    sleepers: &[&Engine],
) -> Option<Outcome> {
    let limit = context.settings.sleeper_limit;
    let mut exceeded = BTreeSet::new();
    let mut waiting = None;
    for accelerator in accelerators {
        let (engines, leaving) = count(context, accelerator);
        if engines <= limit {
            continue;
        }
        // Those that are being deleted are counted until they are gone.
        waiting.get_or_insert_with(|| Problem::BudgetExhausted { accelerator: accelerator.clone(), engines, limit });
        if engines.saturating_sub(leaving) > limit {
            exceeded.insert(accelerator);
        }
    }
    let is_on_exceeded =
        |engine: &&&Engine| engine.provider.accelerators.iter().any(|accelerator| exceeded.contains(accelerator));
    if let Some(victim) = sleepers.iter().find(is_on_exceeded) {
        return Some(context.delete_engine(victim, DeletePurpose::Victim));
    }
    if let Some(problem) = waiting {
        // A victim that is being deleted needs no report.
        return Some(if exceeded.is_empty() { Outcome::wait() } else { Outcome::blocked(problem) });
    }
    check_memory(context, server, requester, accelerators)
}

/// Returns the number of engines on an accelerator, and how many of them are being deleted.
fn count(context: &Context, accelerator: &str) -> (usize, usize) {
    let on_accelerator = |engine: &&Engine| engine.provider.accelerators.contains(accelerator);
    let engines = context.node.engines.values().filter(on_accelerator);
    engines.fold((0, 0), |(engines, leaving), engine| {
        let is_leaving = engine.provider.is_terminating || engine.is_deletion_sent;
        (engines + 1, leaving + usize::from(is_leaving))
    })
}

/// Measures the memory of the accelerators, on which no engine is awake, and returns what prevents that another one becomes awake;
/// `None` if nothing does.
pub(super) fn check_memory(
    context: &Context,
    server: &Server,
    requester: &Requester,
    accelerators: &BTreeSet<String>,
) -> Option<Outcome> {
    let (usage, at) = match &server.facts.memory {
        None => return Some(context.call_requester(server, requester, Request::MemoryUsage)),
        Some(MemoryUsage::Unavailable) => return None,
        Some(MemoryUsage::Known { used_mib, at }) => (used_mib, *at),
    };
    let limit_mib = reserved_mib(context);
    let exceeded = accelerators.iter().find_map(|accelerator| {
        let used_mib = usage.get(accelerator).copied().filter(|used| *used > limit_mib)?;
        Some(Problem::MemoryShort { accelerator: accelerator.clone(), used_mib, limit_mib })
    });
    exceeded.map(|problem| {
        // The measurement is repeated: other processes do not report when they end.
        let again = apimachinery::time::add_seconds(at, MEASURE_INTERVAL_SECONDS);
        let outcome = match again > context.now {
            true => Outcome::wait_until(again),
            false => context.call_requester(server, requester, Request::MemoryUsage),
        };
        outcome.with_problem(Some(problem))
    })
}

/// Returns the memory in MiB that the sleeping engines of one accelerator may retain.
fn reserved_mib(context: &Context) -> u64 {
    let residue = known_residue(context).unwrap_or(context.settings.assumed_residue_mib);
    let sleepers = u64::try_from(context.settings.sleeper_limit.max(1)).unwrap_or(u64::MAX);
    residue.saturating_mul(sleepers)
}

/// Returns the largest residue of a sleeping engine in MiB on this node: measured, or recorded on a provider. `None` if it is
/// not known.
pub(super) fn known_residue(context: &Context) -> Option<u64> {
    *context.residue_mib.get_or_init(|| find_residue(context))
}

fn find_residue(context: &Context) -> Option<u64> {
    let recorded = context.node.engines.values().filter_map(|engine| engine.provider.residue_mib);
    let measured = context.node.servers.values().filter_map(|server| measured_residue(context, server));
    recorded.chain(measured).max()
}

/// Returns the used memory per sleeping engine, from the last measurement.
fn measured_residue(context: &Context, server: &Server) -> Option<u64> {
    let Some(MemoryUsage::Known { used_mib: usage, .. }) = &server.facts.memory else { return None };
    let residue = |(accelerator, used): (&String, &u64)| {
        let (engines, _) = count(context, accelerator);
        used.checked_div(u64::try_from(engines).unwrap_or(u64::MAX))
    };
    usage.iter().filter_map(residue).max()
}

/// Deletes the least recently used sleeper of the node if the scheduler misses CPU or memory for a provider; waits while one is
/// being deleted.
pub(super) fn make_node_room(context: &Context, message: &str) -> Outcome {
    let is_leaving = |engine: &Engine| engine.provider.is_terminating || engine.is_deletion_sent;
    let is_short = HOST_RESOURCES.iter().any(|resource| message.contains(resource));
    if !is_short || context.node.engines.values().any(is_leaving) {
        return Outcome::wait();
    }
    context.sleepers().first().map_or_else(Outcome::wait, |victim| context.delete_engine(victim, DeletePurpose::Victim))
}
