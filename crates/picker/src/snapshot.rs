//! All pools at one point in time, and the pool that serves a model.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use cluster::NamespacedName;

use crate::{endpoint::Endpoint, pool_scheduling::PoolScheduling, use_case::UseCase};

/// A pool with its ready endpoints and active use cases.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Namespace and name.
    pub key: NamespacedName,
    /// Ready endpoints, sorted by address.
    pub ready_endpoints: Vec<Arc<Endpoint>>,
    /// Number of endpoints, ready or not.
    pub endpoint_count: usize,
    /// Use cases by model name.
    pub use_cases: BTreeMap<String, UseCase>,
    /// Whether the pool serves models without a use case.
    pub allows_implicit_use_cases: bool,
    /// Creation timestamp of the pool (RFC 3339).
    pub creation_timestamp: String,
    /// How endpoints are selected.
    pub scheduling: Arc<PoolScheduling>,
}

/// All pools at one point in time.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Pools by namespace and name.
    pub pools: BTreeMap<NamespacedName, Arc<Pool>>,
    /// Pool that serves a model name: the pool of the oldest use case.
    pub by_model: BTreeMap<String, NamespacedName>,
}

// === impl Pool ===

impl Pool {
    /// Returns the ready endpoint with this address.
    pub(crate) fn endpoint(&self, address: SocketAddr) -> Option<&Arc<Endpoint>> {
        let index = self.ready_endpoints.binary_search_by_key(&address, |endpoint| endpoint.address).ok()?;
        self.ready_endpoints.get(index)
    }

    /// Returns the ready endpoints to which requests are sent. Other endpoints only compute prompts.
    pub(crate) fn serving_endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.ready_endpoints.iter().filter(|endpoint| self.scheduling.policy().serves_requests(&endpoint.labels))
    }

    /// Returns whether an endpoint serves requests.
    pub(crate) fn is_serving(&self) -> bool {
        self.serving_endpoints().next().is_some()
    }

    /// Returns whether requests may name `model` as their target: any one if the pool serves models without a use case,
    /// otherwise only targets of use cases.
    fn has_target(&self, model: &str) -> bool {
        self.allows_implicit_use_cases || self.use_cases.values().any(|use_case| use_case.has_target(model))
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// Returns the snapshot of `pools`.
    pub(crate) fn new(pools: Vec<Pool>) -> Self {
        let mut oldest: BTreeMap<&str, (&str, &NamespacedName)> = BTreeMap::new();
        for pool in &pools {
            for (model, use_case) in &pool.use_cases {
                let candidate = (use_case.creation_timestamp.as_str(), &pool.key);
                oldest.entry(model).and_modify(|oldest| *oldest = candidate.min(*oldest)).or_insert(candidate);
            }
        }
        let by_model = oldest.into_iter().map(|(model, (_, key))| (model.to_owned(), key.clone())).collect();
        Self { by_model, pools: pools.into_iter().map(|pool| (pool.key.clone(), Arc::new(pool))).collect() }
    }

    /// Returns the pool and the use case that serve `model`; searches only `pool` if one is given.
    pub fn find(&self, pool: Option<&NamespacedName>, model: &str) -> Option<(&Arc<Pool>, UseCase)> {
        let declaring_pool = pool.or_else(|| self.by_model.get(model)).and_then(|key| self.pools.get(key));
        if let Some(found) = declaring_pool.and_then(|pool| Some((pool, pool.use_cases.get(model)?.clone()))) {
            return Some(found);
        }
        let mut candidates: Vec<&Arc<Pool>> = match pool {
            Some(key) => self.pools.get(key).into_iter().collect(),
            None => self.pools.values().collect(),
        };
        candidates.retain(|pool| pool.allows_implicit_use_cases);
        // The models of these pools are unknown: prefer a pool with ready endpoints, then the oldest.
        candidates.sort_by_key(|pool| (!pool.is_serving(), pool.creation_timestamp.as_str()));
        candidates.first().map(|pool| (*pool, UseCase::implicit(model)))
    }

    /// Returns the pool with this name, if requests may name `target` as their target.
    pub(crate) fn find_target(&self, pool: &NamespacedName, target: &str) -> Option<&Arc<Pool>> {
        self.pools.get(pool).filter(|pool| pool.has_target(target))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{policy::tests::policy_without_metrics, use_case::TargetModel};
    use fastrand::Rng;

    /// Returns a pool without use cases, whose endpoints are not scraped.
    pub(crate) fn pool(key: NamespacedName, ready_endpoints: Vec<Arc<Endpoint>>) -> Pool {
        Pool {
            key,
            endpoint_count: ready_endpoints.len(),
            ready_endpoints,
            use_cases: BTreeMap::new(),
            allows_implicit_use_cases: false,
            creation_timestamp: String::new(),
            scheduling: Arc::new(PoolScheduling::new(policy_without_metrics())),
        }
    }

    fn pool_of(name: &str, created: &str, models: &[&str]) -> Pool {
        let use_case = |model: &&str| {
            ((*model).to_owned(), UseCase { creation_timestamp: created.to_owned(), ..UseCase::implicit(model) })
        };
        let key = NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() };
        Pool {
            use_cases: models.iter().map(use_case).collect(),
            creation_timestamp: created.to_owned(),
            ..pool(key, Vec::new())
        }
    }

    // spec: GW-50
    #[test]
    fn oldest_use_case_wins_unless_a_pool_is_given() {
        let routing = Snapshot::new(vec![pool_of("a", "2026-02-01", &["m", "x"]), pool_of("b", "2026-01-01", &["m"])]);
        let serving_pool = |pool: Option<&str>, model: &str| {
            let key = pool.map(|name| NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() });
            routing.find(key.as_ref(), model).map(|(pool, _)| pool.key.name.clone())
        };
        assert_eq!(serving_pool(None, "m").as_deref(), Some("b"));
        assert_eq!(serving_pool(Some("a"), "m").as_deref(), Some("a"));
        assert_eq!(serving_pool(Some("b"), "x"), None);
        assert_eq!(serving_pool(None, "nope"), None);
    }

    #[test]
    fn stated_target_must_be_declared_unless_implicit_use_cases_are_allowed() {
        let targets = ["v1", "v2"].map(|model| TargetModel { model: model.to_owned(), weight: 0 }).to_vec();
        let mut denying = pool_of("deny", "1", &["m", "chat"]);
        denying.use_cases.get_mut("chat").unwrap().targets = targets;
        let allowing = Pool { allows_implicit_use_cases: true, ..pool_of("allow", "2", &[]) };
        let routing = Snapshot::new(vec![denying, allowing]);
        let accepts = |pool: &str, target| routing.find_target(&NamespacedName::new("ns", pool), target).is_some();
        assert_eq!(
            ["m", "v1", "v2", "chat", "x"].map(|target| accepts("deny", target)),
            [true, true, true, false, false]
        );
        assert!(accepts("allow", "x") && !accepts("missing", "m"));
    }

    // spec: GW-72
    #[test]
    fn undeclared_model_requires_pool_with_implicit_use_cases() {
        let routing = Snapshot::new(vec![
            pool_of("a", "1", &["m"]),
            Pool { allows_implicit_use_cases: true, ..pool_of("b", "2", &[]) },
        ]);
        let (pool, use_case) = routing.find(None, "free").unwrap();
        assert_eq!((pool.key.name.as_str(), use_case.draw_target(&mut Rng::with_seed(0))), ("b", "free"));
    }
}
