//! Pools, and the pool that serves a model.

use std::collections::BTreeMap;

use cluster::NamespacedName;

use crate::{endpoint::Endpoint, use_case::UseCase};

/// A pool with its ready endpoints and active use cases.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Namespace and name.
    pub key: NamespacedName,
    /// Ready endpoints, sorted by address.
    pub ready_endpoints: Vec<Endpoint>,
    /// Number of endpoints, ready or not.
    pub endpoint_count: usize,
    /// Use cases by model name.
    pub use_cases: BTreeMap<String, UseCase>,
    /// Whether the pool serves models without a use case.
    pub allows_implicit_use_cases: bool,
    /// Creation timestamp of the BackendPool (RFC 3339).
    pub creation_timestamp: String,
}

/// All pools at one point in time.
#[derive(Debug, Default)]
pub struct RoutingTable {
    /// Pools by namespace and name.
    pub pools: BTreeMap<NamespacedName, Pool>,
    /// Pool that serves a model name: the pool of the oldest use case.
    pub by_model: BTreeMap<String, NamespacedName>,
}

// === impl RoutingTable ===

impl RoutingTable {
    /// Returns the table of `pools`.
    pub(crate) fn new(pools: Vec<Pool>) -> Self {
        let mut oldest: BTreeMap<&str, (&str, &NamespacedName)> = BTreeMap::new();
        for pool in &pools {
            for (model, use_case) in &pool.use_cases {
                let candidate = (use_case.creation_timestamp.as_str(), &pool.key);
                oldest.entry(model).and_modify(|oldest| *oldest = candidate.min(*oldest)).or_insert(candidate);
            }
        }
        let by_model = oldest.into_iter().map(|(model, (_, key))| (model.to_owned(), key.clone())).collect();
        Self { by_model, pools: pools.into_iter().map(|pool| (pool.key.clone(), pool)).collect() }
    }

    /// Returns the pool and the use case that serve `model`; searches only `pool` if one is given.
    pub fn find(&self, pool: Option<&NamespacedName>, model: &str) -> Option<(&Pool, UseCase)> {
        let declaring_pool = pool.or_else(|| self.by_model.get(model)).and_then(|key| self.pools.get(key));
        if let Some(found) = declaring_pool.and_then(|pool| Some((pool, pool.use_cases.get(model)?.clone()))) {
            return Some(found);
        }
        let mut candidates: Vec<&Pool> = match pool {
            Some(key) => self.pools.get(key).into_iter().collect(),
            None => self.pools.values().collect(),
        };
        candidates.retain(|pool| pool.allows_implicit_use_cases);
        // The models of these pools are unknown: prefer a pool with ready endpoints, then the oldest.
        candidates.sort_by_key(|pool| (pool.ready_endpoints.is_empty(), pool.creation_timestamp.as_str()));
        candidates.first().map(|pool| (*pool, UseCase::implicit(model)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn pool(name: &str, created: &str, models: &[&str]) -> Pool {
        let use_case = |model: &&str| {
            ((*model).to_owned(), UseCase { creation_timestamp: created.to_owned(), ..UseCase::implicit(model) })
        };
        Pool {
            key: NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() },
            ready_endpoints: Vec::new(),
            endpoint_count: 0,
            use_cases: models.iter().map(use_case).collect(),
            allows_implicit_use_cases: false,
            creation_timestamp: created.to_owned(),
        }
    }

    // spec: GW-50
    #[test]
    fn oldest_use_case_wins_unless_a_pool_is_given() {
        let routing = RoutingTable::new(vec![pool("a", "2026-02-01", &["m", "x"]), pool("b", "2026-01-01", &["m"])]);
        let serving_pool = |pool: Option<&str>, model: &str| {
            let key = pool.map(|name| NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() });
            routing.find(key.as_ref(), model).map(|(pool, _)| pool.key.name.clone())
        };
        assert_eq!(serving_pool(None, "m").as_deref(), Some("b"));
        assert_eq!(serving_pool(Some("a"), "m").as_deref(), Some("a"));
        assert_eq!(serving_pool(Some("b"), "x"), None);
        assert_eq!(serving_pool(None, "nope"), None);
    }

    // spec: GW-72
    #[test]
    fn undeclared_model_requires_pool_with_implicit_use_cases() {
        let routing = RoutingTable::new(vec![
            pool("a", "1", &["m"]),
            Pool { allows_implicit_use_cases: true, ..pool("b", "2", &[]) },
        ]);
        let (pool, use_case) = routing.find(None, "free").unwrap();
        assert_eq!((pool.key.name.as_str(), use_case.draw_target(&mut Rng::with_seed(0))), ("b", "free"));
    }
}
