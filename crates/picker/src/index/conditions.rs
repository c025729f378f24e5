//! Status conditions of pools and use cases.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Condition, NamespacedName};

use super::picker_config::PickerConfigError;
use crate::{
    code,
    model_names::{ModelNames, qualified_name},
    policy::SchedulingPolicy,
    snapshot::Pool,
};

/// Condition type of use cases whose model name an older use case of another pool of the namespace declares; it exists only while it
/// is true.
pub const MODEL_NAME_SHARED: &str = "ModelNameShared";

/// Condition type of pools that have an endpoint of another pool; it exists only while it is true.
pub const ENDPOINTS_SHARED: &str = "EndpointsShared";

/// Maximum number of model names that a message lists.
const MAX_NAMES: usize = 3;

/// Which use cases of one object are active, and why the others are not.
#[derive(Debug, Default)]
pub(super) struct Activation {
    /// Names of the referenced pools that exist.
    pub(super) found_pools: BTreeSet<String>,
    /// Names of the referenced pools that do not exist.
    pub(super) missing_pools: BTreeSet<String>,
    /// `NAMESPACE/NAME` of the referenced pools of other namespaces.
    pub(super) foreign_pools: BTreeSet<String>,
    /// Names of the referenced InferencePools that are not watched: only their endpoint pickers know whether they exist.
    pub(super) unknown_inference_pools: BTreeSet<String>,
    /// Pools on which the use case of a model name is active.
    pub(super) active_pools: BTreeMap<String, BTreeSet<NamespacedName>>,
    /// `MODEL on pool POOL` for each model name that an older object declares.
    pub(super) conflicting_use_cases: BTreeSet<String>,
    /// Model names of use cases whose target weights are all 0.
    pub(super) zero_weight_use_cases: BTreeSet<String>,
}

/// Returns the conditions of an LLMUseCaseSet or LLMUseCase.
pub(super) fn use_case_conditions(activation: &Activation, model_names: &ModelNames) -> Vec<Condition> {
    let shared = model_name_shared_condition(activation, model_names);
    [accepted_condition(activation, model_names), resolved_refs_condition(activation)]
        .into_iter()
        .chain(shared)
        .collect()
}

/// Returns the pool to which requests that address no pool are sent instead of `pools`, because its use case of the model is older.
fn older_pool<'a>(
    model: &str,
    pools: &BTreeSet<NamespacedName>,
    model_names: &'a ModelNames,
) -> Option<&'a NamespacedName> {
    let name = qualified_name(&pools.first()?.namespace, model);
    model_names.get(&name)?.pools.first().filter(|serving| !pools.contains(*serving))
}

/// Returns a condition with the paths of active use cases whose model names an older use case of another pool declares.
fn model_name_shared_condition(activation: &Activation, model_names: &ModelNames) -> Option<Condition> {
    let path = |(model, pools): (&String, &BTreeSet<NamespacedName>)| {
        let serving = older_pool(model, pools, model_names)?;
        let paths: Vec<String> =
            pools.iter().map(|NamespacedName { namespace, name }| format!("`/{namespace}/{name}/v1`")).collect();
        Some(format!(
            "`/v1` routes model {} to pool {serving}, whose use case is older; send requests for this one to {}",
            model_names.shortest_name(&serving.namespace, model),
            paths.join(" or ")
        ))
    };
    let mut paths: Vec<String> = activation.active_pools.iter().filter_map(path).collect();
    let omitted = paths.len().saturating_sub(MAX_NAMES);
    paths.truncate(MAX_NAMES);
    let omitted = if omitted > 0 { format!("; the same applies to {omitted} more models") } else { String::new() };
    let message = || format!("{}{omitted}.", paths.join("; "));
    (!paths.is_empty()).then(|| Condition::new(MODEL_NAME_SHARED, true, code::OLDER_USE_CASE, message()))
}

/// Returns a clause with the names by which requests that address no pool reach the active use cases; empty if there are none.
fn reachable_names(activation: &Activation, model_names: &ModelNames) -> String {
    let name = |(model, pools): (&String, &BTreeSet<NamespacedName>)| {
        let is_reachable = older_pool(model, pools, model_names).is_none();
        let namespace = &pools.first().filter(|_| is_reachable)?.namespace;
        Some(format!("`{}`", model_names.shortest_name(namespace, model)))
    };
    let mut names: Vec<String> = activation.active_pools.iter().filter_map(name).collect();
    let omitted = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let more = if omitted > 0 { format!(" and {omitted} more") } else { String::new() };
    if names.is_empty() { String::new() } else { format!("; `/v1` serves them as {}{more}", names.join(", ")) }
}

/// Returns the condition `Ready` of a BackendPool.
pub(super) fn ready_condition(pool: &Pool) -> Condition {
    match pool.ready_endpoints.len() {
        0 if pool.endpoint_count == 0 && pool.scale_to_zero.is_some() => {
            Condition::new("Ready", false, code::SCALED_TO_ZERO, "No Pod runs; a request starts one and waits for it.")
        }
        0 if pool.endpoint_count == 0 => {
            Condition::new("Ready", false, code::NO_ENDPOINTS, "The selector matches no running Pod.")
        }
        0 => Condition::new("Ready", false, code::NO_READY_ENDPOINTS, "No selected Pod is ready."),
        ready if !pool.is_serving() => {
            let verb = if ready == 1 { "computes" } else { "compute" };
            let message = format!(
                "No selected Pod that serves requests is ready; {ready} of {} endpoints only {verb} prompts.",
                pool.endpoint_count
            );
            Condition::new("Ready", false, code::NO_READY_ENDPOINTS, message)
        }
        ready => Condition::new(
            "Ready",
            true,
            code::ENDPOINTS_READY,
            format!("{ready} of {} endpoints are ready.", pool.endpoint_count),
        ),
    }
}

/// Returns the condition of a pool that has endpoints of these other pools of its namespace.
pub(super) fn endpoints_shared_condition(pools: &BTreeSet<String>) -> Option<Condition> {
    let omitted = pools.len().saturating_sub(MAX_NAMES);
    let more = if omitted > 0 { format!(" and {omitted} more") } else { String::new() };
    let listed: Vec<&str> = pools.iter().take(MAX_NAMES).map(String::as_str).collect();
    let message = || {
        let names = listed.join(", ");
        format!(
            "Pool {names}{more} selects Pods of this pool; the requests of all of them share the limits of these engines."
        )
    };
    (!pools.is_empty()).then(|| Condition::new(ENDPOINTS_SHARED, true, code::PODS_OF_SEVERAL_POOLS, message()))
}

/// Returns the condition `PickerConfigAccepted` of a BackendPool that states an EndpointPickerConfig.
pub(super) fn picker_config_condition(policy: &Result<SchedulingPolicy, PickerConfigError>) -> Condition {
    let name = "PickerConfigAccepted";
    match policy {
        Ok(_) => Condition::new(name, true, code::ACCEPTED, "The configuration selects endpoints."),
        Err(error) => {
            let reason = match error {
                PickerConfigError::NotListed | PickerConfigError::NotFound(_) => code::PICKER_CONFIG_NOT_FOUND,
                PickerConfigError::NoData(_) | PickerConfigError::Invalid { .. } => code::INVALID_PICKER_CONFIG,
            };
            Condition::new(name, false, reason, format!("{error} Requests go to the least loaded endpoints."))
        }
    }
}

fn accepted_condition(activation: &Activation, model_names: &ModelNames) -> Condition {
    let Activation { found_pools, missing_pools, foreign_pools, unknown_inference_pools, .. } = activation;
    let Activation { conflicting_use_cases, zero_weight_use_cases, .. } = activation;
    if !conflicting_use_cases.is_empty() {
        let message = format!(
            "Use cases are inactive because an older object declares the same model name: {}.",
            join_names(conflicting_use_cases)
        );
        return Condition::new("Accepted", false, code::MODEL_NAME_CONFLICT, message);
    }
    if !zero_weight_use_cases.is_empty() {
        let message = format!(
            "All target weights of {} are 0; set at least one positive weight.",
            join_names(zero_weight_use_cases)
        );
        return Condition::new("Accepted", false, code::INVALID_WEIGHTS, message);
    }
    if found_pools.is_empty() && missing_pools.is_empty() && !foreign_pools.is_empty() {
        let message = format!("No use case is active: pool {} is in another namespace.", join_names(foreign_pools));
        return Condition::new("Accepted", false, code::REF_NOT_PERMITTED, message);
    }
    match (found_pools.is_empty(), missing_pools.is_empty()) {
        (true, true) if !unknown_inference_pools.is_empty() => {
            let pools = join_names(unknown_inference_pools);
            let message = format!("The endpoint picker of InferencePool {pools} applies the use cases.");
            Condition::new("Accepted", true, code::ACCEPTED, message)
        }
        (_, true) => {
            let message = format!("All use cases are active{}.", reachable_names(activation, model_names));
            Condition::new("Accepted", true, code::ACCEPTED, message)
        }
        (false, false) => {
            let message = format!(
                "All use cases are active on {}{}; other referenced pools do not exist.",
                join_names(found_pools),
                reachable_names(activation, model_names)
            );
            Condition::new("Accepted", true, code::ACCEPTED, message)
        }
        (true, false) => {
            let message = format!("No use case is active: waiting for BackendPool {}.", join_names(missing_pools));
            Condition::new("Accepted", false, code::POOL_NOT_FOUND, message)
        }
    }
}

fn resolved_refs_condition(activation: &Activation) -> Condition {
    let Activation { missing_pools, foreign_pools, unknown_inference_pools, .. } = activation;
    if !foreign_pools.is_empty() {
        let message = format!(
            "Pool {} is in another namespace; use cases apply to pools of their own namespace.",
            join_names(foreign_pools)
        );
        return Condition::new("ResolvedRefs", false, code::REF_NOT_PERMITTED, message);
    }
    match missing_pools.is_empty() {
        true if unknown_inference_pools.is_empty() => {
            Condition::new("ResolvedRefs", true, code::RESOLVED_REFS, "All referenced pools exist.")
        }
        true => {
            let pools = join_names(unknown_inference_pools);
            let message =
                format!("All referenced BackendPools exist; InferencePool {pools} is known to its endpoint picker.");
            Condition::new("ResolvedRefs", true, code::RESOLVED_REFS, message)
        }
        false => Condition::new(
            "ResolvedRefs",
            false,
            code::POOL_NOT_FOUND,
            format!("BackendPool {} not found in this namespace.", join_names(missing_pools)),
        ),
    }
}

fn join_names(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}
