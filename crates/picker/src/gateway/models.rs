//! `/v1/models`: the use cases of the pools, and what engines of pools that require none list.

use std::collections::BTreeMap;

use cluster::NamespacedName;
use serde_json::{Value, json};

use super::route::Destination;
use crate::{
    api_keys::Access,
    routing_error::RoutingError,
    snapshot::{Pool, Snapshot},
};

/// Maximum number of models of other namespaces that an error names.
const MAX_OTHER_NAMES: usize = 3;

/// Returns the models of the pools of `destination` to which the client has `access`. Without a pool, they are those of pools with
/// ready endpoints.
///
/// # Errors
/// [`RoutingError::PoolNotFound`].
pub(super) fn list_models(
    snapshot: &Snapshot,
    destination: &Destination,
    access: &Access,
) -> Result<Value, RoutingError> {
    let (mut models, pools) = (BTreeMap::new(), destination.pools());
    if let (Destination::Rule(rule), []) = (destination, &pools[..]) {
        return Err(RoutingError::UnresolvedBackend(rule.route.clone()));
    }
    for pool in pools {
        for (name, model) in models_of(snapshot, pool, access)? {
            models.entry(name).or_insert(model);
        }
    }
    Ok(json!({"object": "list", "data": models.into_values().collect::<Vec<_>>()}))
}

/// Returns the models of all pools with ready endpoints, or of one pool, by name.
fn models_of(
    snapshot: &Snapshot,
    pool: Option<&NamespacedName>,
    access: &Access,
) -> Result<BTreeMap<String, Value>, RoutingError> {
    if let Some(key) = pool.filter(|key| !snapshot.pools.contains_key(*key)) {
        return Err(RoutingError::PoolNotFound(key.clone()));
    }
    let names: Vec<&str> = match pool {
        Some(key) => snapshot.pools[key].use_cases.keys().map(String::as_str).collect(),
        None => snapshot.model_names.iter().map(|(name, _)| name).collect(),
    };
    let declared = names.into_iter().filter_map(|name| Some((name, find_declared(snapshot, pool, name)?)));
    let implicit = snapshot.implicit_models(pool);
    let implicit = implicit.iter().map(|(name, pool)| (name.as_str(), implicit_model(name, pool)));
    let mut models: BTreeMap<&str, Value> = implicit.collect();
    // A use case takes precedence, also if none of its pools has a ready endpoint.
    models.retain(|name, _| snapshot.declaring_pools(pool, name).next().is_none());
    models.extend(declared);
    models.retain(|name, _| allows(snapshot, pool, name, access));
    Ok(models.into_iter().map(|(name, model)| (name.to_owned(), model)).collect())
}

/// Returns one model.
///
/// # Errors
/// The model does not exist.
pub(super) fn get_model(
    snapshot: &Snapshot,
    destination: &Destination,
    name: &str,
    access: &Access,
) -> Result<Value, RoutingError> {
    let pools = destination.pools();
    if let (Destination::Rule(rule), []) = (destination, &pools[..]) {
        return Err(RoutingError::UnresolvedBackend(rule.route.clone()));
    }
    let model = pools.iter().find_map(|pool| find_model(snapshot, *pool, name, access));
    model.ok_or_else(|| model_not_found(snapshot, pools.first().copied().flatten(), name, access))
}

/// Returns the error about a model that does not exist, or to which the client has no access. It names models of other namespaces
/// only if the client has access to them.
pub(super) fn model_not_found(
    snapshot: &Snapshot,
    pool: Option<&NamespacedName>,
    model: &str,
    access: &Access,
) -> RoutingError {
    let names =
        snapshot.model_names.names_of(model).filter(|name| *name != model && allows(snapshot, None, name, access));
    let names: Vec<String> = names.take(MAX_OTHER_NAMES).map(|name| format!("`{name}`")).collect();
    match names.is_empty() || pool.is_some() {
        true => RoutingError::ModelNotFound(model.to_owned()),
        false => RoutingError::ModelInOtherNamespaces { model: model.to_owned(), names },
    }
}

/// Returns whether the client may use the model that a request names.
pub(super) fn allows(snapshot: &Snapshot, pool: Option<&NamespacedName>, name: &str, access: &Access) -> bool {
    access.is_unrestricted() || snapshot.aliases(pool, name).iter().any(|alias| access.allows(alias))
}

/// Returns the object of a model, if one of its pools has a ready endpoint and the client has access to it.
fn find_model(snapshot: &Snapshot, pool: Option<&NamespacedName>, name: &str, access: &Access) -> Option<Value> {
    let implicit = || {
        let is_declared = snapshot.declaring_pools(pool, name).next().is_some();
        let (pool, model) = snapshot.implicit_pool(pool, name).filter(|_| !is_declared)?;
        pool.lists(model).then(|| implicit_model(name, pool))
    };
    find_declared(snapshot, pool, name).or_else(implicit).filter(|_| allows(snapshot, pool, name, access))
}

/// Returns the object of a model with a use case, if one of its pools has a ready endpoint.
fn find_declared(snapshot: &Snapshot, pool: Option<&NamespacedName>, name: &str) -> Option<Value> {
    let (pool, use_case) = snapshot.declaring_pools(pool, name).find(|(candidate, _)| candidate.accepts_requests())?;
    Some(model_object(name, &pool.key, &use_case.creation_timestamp))
}

/// Returns the object of a model that an engine of `pool` lists.
fn implicit_model(name: &str, pool: &Pool) -> Value {
    model_object(name, &pool.key, &pool.creation_timestamp)
}

fn model_object(model: &str, pool: &NamespacedName, creation_timestamp: &str) -> Value {
    let created = creation_timestamp.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
    json!({"id": model, "object": "model", "created": created, "owned_by": pool.to_string()})
}
