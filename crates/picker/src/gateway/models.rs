//! `/v1/models`: the use cases of the pools.

use std::collections::BTreeMap;

use cluster::NamespacedName;
use serde_json::{Value, json};

use crate::{api_keys::Access, routing_error::RoutingError, snapshot::Snapshot};

/// Returns the models of all pools with ready endpoints, or of one pool, to which the client has `access`.
///
/// # Errors
/// [`RoutingError::PoolNotFound`].
pub(super) fn list_models(
    snapshot: &Snapshot,
    pool: Option<&NamespacedName>,
    access: &Access,
) -> Result<Value, RoutingError> {
    if let Some(key) = pool.filter(|key| !snapshot.pools.contains_key(*key)) {
        return Err(RoutingError::PoolNotFound(key.clone()));
    }
    let data: Vec<Value> =
        visible_models(snapshot, pool, access).map(|(model, key, created)| model_object(model, key, created)).collect();
    Ok(json!({"object": "list", "data": data}))
}

/// Returns one model.
///
/// # Errors
/// [`RoutingError::ModelNotFound`].
pub(super) fn get_model(
    snapshot: &Snapshot,
    pool: Option<&NamespacedName>,
    name: &str,
    access: &Access,
) -> Result<Value, RoutingError> {
    let found = visible_models(snapshot, pool, access).find(|(model, ..)| *model == name);
    let (model, key, created) = found.ok_or_else(|| RoutingError::ModelNotFound(name.to_owned()))?;
    Ok(model_object(model, key, created))
}

/// Returns model name, pool and creation timestamp, ordered by model name.
fn visible_models<'a>(
    snapshot: &'a Snapshot,
    pool: Option<&NamespacedName>,
    access: &Access,
) -> impl Iterator<Item = (&'a str, &'a NamespacedName, &'a str)> {
    let mut models = BTreeMap::new();
    let pools = snapshot.pools.values().filter(|candidate| pool.is_none_or(|key| candidate.key == *key));
    for candidate in pools.filter(|candidate| candidate.is_serving()) {
        for (model, use_case) in candidate.use_cases.iter().filter(|(model, _)| access.allows(model)) {
            // The pools of the oldest use case serve the model, whether they are ready or not.
            if pool.is_some() || snapshot.by_model.get(model).is_some_and(|keys| keys.contains(&candidate.key)) {
                let model = models.entry(model.as_str());
                model.or_insert((&candidate.key, use_case.creation_timestamp.as_str()));
            }
        }
    }
    models.into_iter().map(|(model, (key, created))| (model, key, created))
}

fn model_object(model: &str, pool: &NamespacedName, creation_timestamp: &str) -> Value {
    let created = creation_timestamp.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
    json!({"id": model, "object": "model", "created": created, "owned_by": pool.to_string()})
}
