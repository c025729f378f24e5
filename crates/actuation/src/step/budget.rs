//! Budget of sleeping engines: their number and memory per accelerator, and the memory of the host.
//!
//! Only a creation can exceed the number, since a wake does not change the sum, so it is enforced before a creation and at no
//! other time: while no engine is awake, one more than the limit may sleep. The memory of the host has no
//! ledger: a sleeper retains its memory request, so the scheduler reports when a provider does not fit.

use std::collections::BTreeSet;

use super::context::Context;
use super::outcome::Outcome;
use crate::call::Request;
use crate::delete_purpose::DeletePurpose;
use crate::facts::MemoryUsage;
use crate::node::{Engine, LauncherState, Server};
use crate::problem::Problem;
use crate::requester::Requester;

/// Resources of the host whose shortage the scheduler reports.
const HOST_RESOURCES: [&str; 2] = ["Insufficient memory", "Insufficient cpu"];

/// Seconds between two measurements of memory that is short.
const MEASURE_INTERVAL_SECONDS: i64 = 2;

/// Time after which the scheduler has tried again to schedule a Pod, since another one was removed. Its report does not change
/// before, nor if the message is the same.
const SCHEDULER_RETRY_SECONDS: i64 = 15;

/// Returns what has to be done before an engine is created on the accelerators; `None` if nothing has.
pub(super) fn enforce_limits(
    context: &Context,
    server: &Server,
    requester: &Requester,
    accelerators: &BTreeSet<String>,
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
    if let Some(victim) = context.sleepers().iter().find(is_on_exceeded) {
        return Some(context.delete_engine(victim, DeletePurpose::Victim));
    }
    if let Some(problem) = waiting {
        // A victim that is being deleted needs no report.
        return Some(if exceeded.is_empty() { Outcome::wait() } else { Outcome::blocked(problem) });
    }
    check_memory(context, server, requester, accelerators, limit.max(1))
}

/// Returns the number of engines on an accelerator, and how many of them are being or will be deleted without a further victim.
fn count(context: &Context, accelerator: &str) -> (usize, usize) {
    let on_accelerator = |engine: &&Engine| engine.provider.accelerators.contains(accelerator);
    let engines = context.node.engines.values().filter(on_accelerator);
    engines.fold((0, 0), |(engines, leaving), engine| (engines + 1, leaving + usize::from(engine.will_be_gone())))
}

/// Measures the memory of the accelerators, on which no engine is awake, and returns what prevents that another one becomes awake;
/// `None` if nothing does. `sleepers` engines may sleep on each accelerator now.
pub(super) fn check_memory(
    context: &Context,
    server: &Server,
    requester: &Requester,
    accelerators: &BTreeSet<String>,
    sleepers: usize,
) -> Option<Outcome> {
    let (usage, at) = match &server.facts.memory {
        None => return Some(context.call_requester(server, requester, Request::MemoryUsage)),
        Some(MemoryUsage::Unavailable) => return None,
        Some(MemoryUsage::Known { used_mib, at }) => (used_mib, *at),
    };
    let limit_mib = context.settings.residue_mib.saturating_mul(u64::try_from(sleepers).unwrap_or(u64::MAX));
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

/// Deletes the least recently used sleeper of the node if the scheduler misses CPU or memory for a provider; waits while one is
/// being deleted, and until the scheduler has had time to try again.
pub(super) fn free_host_resources(context: &Context, message: &str) -> Outcome {
    let is_short = HOST_RESOURCES.iter().any(|resource| message.contains(resource));
    if !is_short || context.node.engines.values().any(Engine::is_leaving) {
        return Outcome::wait();
    }
    let retried = context.node.freed_at.map(|at| apimachinery::time::add_seconds(at, SCHEDULER_RETRY_SECONDS));
    if let Some(retried) = retried.filter(|retried| *retried > context.now) {
        return Outcome::wait_until(retried);
    }
    // The host has the resources of a Pod again once the Pod is gone, not one of its engines.
    let is_free = |engine: &&&Engine| engine.provider.instance.as_ref().is_none_or(|it| !it.is_launcher_bound);
    let victim =
        context.sleepers().iter().find(is_free).map(|victim| context.delete_pod(victim, DeletePurpose::Victim));
    let unused = || {
        let is_unused =
            |state: &&LauncherState| state.launcher.provider.binding.is_none() && state.launcher.records.is_empty();
        let mut unused: Vec<_> = context.node.launchers.values().filter(is_unused).collect();
        unused.sort_by_key(|state| state.launcher.provider.last_used());
        unused.first().map(|state| context.delete_launcher(state, DeletePurpose::Victim))
    };
    unused().or(victim).unwrap_or_else(Outcome::wait)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::launcher::Launcher;
    use crate::node::NodeState;
    use crate::provider::Provider;
    use crate::settings::Settings;

    /// Engines of a launcher count like those in Pods of their own; one that ended makes room without a victim.
    // spec: DP-90
    #[test]
    fn engines_of_both_modes_are_counted() {
        let pod = |uid: &str, annotations: serde_json::Value| json!({"metadata": {"name": uid, "namespace": "n", "uid": uid, "annotations": annotations}});
        let record = |accelerator: &str| json!({"accelerators": [accelerator], "port": 8000, "lastAwake": "2026-01-01T00:00:00Z"});
        let records = json!({"i1": record("GPU-a"), "i2": record("GPU-a"), "i3": record("GPU-b")}).to_string();
        let launcher = Launcher::from_pod(&pod("l", json!({"dual-pods.llm-d.ai/instances": records}))).unwrap();
        let direct = Provider::from_pod(&pod("p", json!({"dual-pods.llm-d.ai/accelerators": "GPU-a"})));
        let mut node = NodeState::default();
        let providers = launcher.engines(std::iter::empty()).into_values().chain([direct]);
        node.engines = providers.map(|provider| (provider.engine_id(), Engine::new(provider))).collect();
        let settings = Settings::default();
        let counted = |node: &NodeState| count(&Context::new(node, &settings, Timestamp::UNIX_EPOCH), "GPU-a");
        assert_eq!(counted(&node), (3, 0));
        let ended = node.engines.values_mut().find(|engine| engine.provider.identity == "i2").unwrap();
        ended.facts.instance.process = Some(crate::facts::Process::Ended);
        assert_eq!(counted(&node), (3, 1));
    }
}
