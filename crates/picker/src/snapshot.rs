//! All pools at one point in time, and the pools that serve a model.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use api::inference::ScaleToZero;
use cluster::NamespacedName;
use rpds::RedBlackTreeMapSync;
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use crate::{
    endpoint::Endpoint,
    endpoint_facts::EndpointFacts,
    http_routes::RouteTable,
    model_names::ModelNames,
    objective::PoolObjectives,
    pool_scheduling::PoolScheduling,
    pool_usage::PoolUsage,
    queue_limits::QueueLimits,
    served_models::{ModelHashes, ServedModels},
    use_case::{IMPLICIT, UseCase},
};

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
    /// Priority of requests without a use case and without an InferenceObjective.
    pub default_priority: i32,
    /// Priorities of its InferenceObjectives by name.
    pub(crate) objective_priorities: Arc<BTreeMap<String, i32>>,
    /// Targets of all models without a use case, of an InferenceModelRewrite.
    pub(crate) default_rewrite: Option<Arc<UseCase>>,
    /// Limits of its queue.
    pub queue_limits: QueueLimits,
    /// Workload that has no replicas while the pool receives no requests.
    pub scale_to_zero: Option<ScaleToZero>,
    /// Creation timestamp of the pool (RFC 3339).
    pub creation_timestamp: String,
    /// How endpoints are selected.
    pub scheduling: Arc<PoolScheduling>,
    /// What the policy knows about the ready endpoints, in the same order.
    pub(crate) endpoint_facts: Vec<EndpointFacts>,
    /// Measured latencies of use cases with an objective.
    pub(crate) objectives: PoolObjectives,
    /// Its recent requests.
    pub(crate) usage: Arc<PoolUsage>,
}

/// All pools at one point in time.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Pools by namespace and name. A changed pool copies a part of the map only.
    pub pools: RedBlackTreeMapSync<Arc<NamespacedName>, Arc<Pool>>,
    /// Names of the models for requests that address no pool.
    pub(crate) model_names: Arc<ModelNames>,
    /// Pools that serve models without a use case, by namespace: first those with ready endpoints, then the oldest.
    implicit_pools: Arc<BTreeMap<String, Vec<NamespacedName>>>,
    /// HTTPRoutes of the native gateway.
    pub(crate) routes: Arc<RouteTable>,
}

// === impl Pool ===

impl Pool {
    /// Returns a pool without use cases. Its endpoints are ready.
    pub fn new(key: NamespacedName, scheduling: Arc<PoolScheduling>, mut ready_endpoints: Vec<Arc<Endpoint>>) -> Self {
        ready_endpoints.sort_by_key(|endpoint| endpoint.address);
        Self {
            key,
            endpoint_count: ready_endpoints.len(),
            endpoint_facts: ready_endpoints.iter().map(|endpoint| scheduling.endpoint_facts(endpoint)).collect(),
            ready_endpoints,
            use_cases: BTreeMap::new(),
            allows_implicit_use_cases: false,
            default_priority: IMPLICIT,
            objective_priorities: Arc::default(),
            default_rewrite: None,
            queue_limits: QueueLimits::default(),
            scale_to_zero: None,
            creation_timestamp: String::new(),
            objectives: PoolObjectives::default(),
            usage: Arc::default(),
            scheduling,
        }
    }

    /// Returns the pool with other endpoints: those that are ready, and the number of all.
    pub(crate) fn with_endpoints(&self, ready_endpoints: Vec<Arc<Endpoint>>, endpoint_count: usize) -> Self {
        let Self { ready_endpoints, endpoint_facts, .. } =
            Self::new(self.key.clone(), Arc::clone(&self.scheduling), ready_endpoints);
        Self { ready_endpoints, endpoint_facts, endpoint_count, ..self.clone() }
    }

    /// Returns the ready endpoint with this address.
    pub(crate) fn endpoint(&self, address: SocketAddr) -> Option<&Arc<Endpoint>> {
        self.find_endpoint(address).map(|(endpoint, _)| endpoint)
    }

    /// Returns the ready endpoint with this address, and what the policy knows about it.
    pub(crate) fn find_endpoint(&self, address: SocketAddr) -> Option<(&Arc<Endpoint>, &EndpointFacts)> {
        let index = self.ready_endpoints.binary_search_by_key(&address, |endpoint| endpoint.address).ok()?;
        Some((self.ready_endpoints.get(index)?, self.endpoint_facts.get(index)?))
    }

    /// Returns the ready endpoints, and what the policy knows about them.
    pub(crate) fn endpoints_with_facts(&self) -> impl Iterator<Item = (&Arc<Endpoint>, &EndpointFacts)> {
        self.ready_endpoints.iter().zip(&self.endpoint_facts)
    }

    /// Returns the ready endpoints to which requests are sent. Other endpoints only compute prompts.
    pub(crate) fn serving_endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.endpoints_with_facts().filter(|(_, facts)| facts.serves_requests).map(|(endpoint, _)| endpoint)
    }

    /// Returns whether an endpoint serves requests.
    pub(crate) fn is_serving(&self) -> bool {
        self.serving_endpoints().next().is_some()
    }

    /// Returns whether an endpoint serves requests, or a request starts one.
    pub(crate) fn accepts_requests(&self) -> bool {
        self.is_serving() || self.scale_to_zero.is_some()
    }

    /// Returns how long a request may wait now.
    pub(crate) fn queue_timeout(&self) -> Duration {
        let start_timeout =
            self.scale_to_zero.as_ref().filter(|_| !self.is_serving()).and_then(|scale| scale.start_timeout);
        start_timeout.map_or(self.queue_limits.timeout, |timeout| timeout.0)
    }

    /// Returns the models that the engines list.
    pub(crate) fn listed_models(&self) -> BTreeSet<String> {
        let names = self.serving_endpoints().map(|endpoint| endpoint.state.served_models.names());
        names.flat_map(|names| (*names).clone()).collect()
    }

    /// Returns the models that the engines listed last if the workload has been scaled to zero.
    fn models_at_zero(&self) -> Option<&ServedModels> {
        (self.scale_to_zero.is_some() && !self.is_serving()).then(|| self.scheduling.last_listed_models())
    }

    /// Returns whether an engine that serves requests does not sleep.
    pub(crate) fn has_awake_endpoint(&self, now: Instant) -> bool {
        self.serving_endpoints().any(|endpoint| !endpoint.state.health.is_asleep(now))
    }

    /// Returns whether an engine to which requests are sent can run another one: a healthy one, or any if there is none.
    pub(crate) fn has_capacity(&self, now: Instant) -> bool {
        let awake = || self.serving_endpoints().filter(|endpoint| !endpoint.state.health.is_asleep(now));
        let is_healthy = |endpoint: &&Arc<Endpoint>| endpoint.state.health.is_available(now);
        let has_healthy = awake().any(|endpoint| is_healthy(&endpoint));
        awake().filter(|endpoint| !has_healthy || is_healthy(endpoint)).any(|endpoint| !endpoint.state.is_saturated())
    }

    /// Returns the number of endpoints that are not ready.
    pub(crate) fn unready_endpoints(&self) -> usize {
        self.endpoint_count.saturating_sub(self.ready_endpoints.len())
    }

    /// Returns the requests in flight as a fraction of those that the engines run at the same time; `None` if no limit is known.
    pub(crate) fn saturation(&self) -> Option<f64> {
        let limits = self.serving_endpoints().filter_map(|one| Some((one, one.state.total_request_limit()?)));
        let add = |(requests, all): (f64, f64), (endpoint, limit): (&Arc<Endpoint>, usize)| {
            (requests + endpoint.state.requests() as f64, all + limit as f64)
        };
        let (requests, limit) = limits.fold((0.0, 0.0), add);
        (limit > 0.0).then(|| requests / limit)
    }

    /// Returns the number of endpoints that may serve `model`: their engines list it, or what they serve is unknown. A workload that
    /// has been scaled to zero counts as one endpoint.
    pub(crate) fn endpoints_serving(&self, model: &str) -> usize {
        let hashes = ModelHashes::new(model);
        let serving = self.serving_endpoints().filter(|endpoint| endpoint.state.served_models.may_contain(hashes));
        serving.count() + usize::from(self.models_at_zero().is_some_and(|models| models.may_contain(hashes)))
    }

    /// Returns whether an endpoint may serve `model`.
    pub(crate) fn may_serve(&self, model: &str) -> bool {
        self.endpoints_serving(model) > 0
    }

    /// Returns whether an endpoint lists `model`.
    pub(crate) fn lists(&self, model: &str) -> bool {
        self.serving_endpoints().any(|endpoint| endpoint.state.served_models.lists(model))
            || self.models_at_zero().is_some_and(|models| models.lists(model))
    }

    /// Returns whether requests may name `model` as their target: any one if the pool serves models without a use case,
    /// otherwise only targets of use cases.
    fn has_target(&self, model: &str) -> bool {
        self.allows_implicit_use_cases || self.use_cases.values().any(|use_case| use_case.has_target(model))
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// Returns the snapshot of `pools`. Models of `default_namespace` may be named without it.
    pub(crate) fn new(pools: Vec<Arc<Pool>>, default_namespace: &str) -> Self {
        let model_names = Arc::new(model_names(default_namespace, pools.iter().map(Arc::as_ref)));
        let pools: RedBlackTreeMapSync<_, _> =
            pools.into_iter().map(|pool| (Arc::new(pool.key.clone()), pool)).collect();
        Self { model_names, implicit_pools: Arc::new(implicit_pools(&pools)), pools, routes: Arc::default() }
    }

    /// Returns the snapshot with these routes.
    pub(crate) fn with_routes(self, routes: Arc<RouteTable>) -> Self {
        Self { routes, ..self }
    }

    /// Returns the snapshot with other endpoints of some pools.
    pub(crate) fn with_endpoints_of(&self, pools: &[Arc<Pool>]) -> Self {
        let (mut all, mut has_implicit_change) = (self.pools.clone(), false);
        for pool in pools {
            if let Some(slot) = all.get_mut(&pool.key) {
                has_implicit_change |= pool.allows_implicit_use_cases && pool.is_serving() != slot.is_serving();
                *slot = Arc::clone(pool);
            }
        }
        let implicit_pools = match has_implicit_change {
            true => Arc::new(implicit_pools(&all)),
            false => Arc::clone(&self.implicit_pools),
        };
        let (model_names, routes) = (Arc::clone(&self.model_names), Arc::clone(&self.routes));
        Self { model_names, implicit_pools, pools: all, routes }
    }

    /// Returns the pools that declare the model that a request names, with its use case; searches only `pool` if one is given.
    pub fn declaring_pools<'a: 'b, 'b>(
        &'a self,
        pool: Option<&'b NamespacedName>,
        name: &'b str,
    ) -> impl Iterator<Item = (&'a Arc<Pool>, &'a UseCase)> + use<'a, 'b> {
        let (model, keys) = match (pool, self.model_names.get(name)) {
            (Some(pool), _) => (name, std::slice::from_ref(pool)),
            (None, Some(named)) => (named.model.as_str(), named.pools.as_slice()),
            (None, None) => (name, &[][..]),
        };
        let pools = keys.iter().filter_map(|key| self.pools.get(key));
        pools.filter_map(move |pool| Some((pool, pool.use_cases.get(model)?)))
    }

    /// Returns the pool for a model without a use case, and its name there; only `pool` if one is given. A name begins with the
    /// namespace of the pool, unless it is the default namespace. Of the pools of a namespace, it is the first one with an engine that
    /// lists the model, or else that may serve it. A pool of the default namespace that lists the model precedes those of a namespace
    /// with which its name begins: `openai/gpt-oss-20b`.
    pub(crate) fn implicit_pool<'a>(
        &self,
        pool: Option<&NamespacedName>,
        name: &'a str,
    ) -> Option<(&Arc<Pool>, &'a str)> {
        if let Some(key) = pool {
            return self.pools.get(key).filter(|pool| pool.allows_implicit_use_cases).map(|pool| (pool, name));
        }
        let pools = |namespace: &str| self.implicit_pools.get(namespace).into_iter().flatten();
        let pools = |namespace: &str| pools(namespace).filter_map(|key| self.pools.get(key));
        let default_namespace = self.model_names.default_namespace();
        if let Some(listing) = pools(default_namespace).find(|pool| pool.lists(name)) {
            return Some((listing, name));
        }
        let best = |namespace: &str, model: &'a str| {
            let listing = pools(namespace).find(|pool| pool.lists(model));
            let pool = listing.or_else(|| pools(namespace).find(|pool| pool.may_serve(model)));
            Some((pool.or_else(|| pools(namespace).next())?, model))
        };
        let qualified = name.split_once('/').and_then(|(namespace, model)| best(namespace, model));
        qualified.or_else(|| best(default_namespace, name))
    }

    /// Returns the models that engines of pools without use cases for them list, each with its shortest name and its pool; only those of
    /// `pool` if one is given.
    pub(crate) fn implicit_models(&self, pool: Option<&NamespacedName>) -> BTreeMap<String, &Arc<Pool>> {
        let keys = self.implicit_pools.values().flatten().filter(|key| pool.is_none_or(|pool| pool == *key));
        let mut models = BTreeMap::new();
        for listed in keys.filter_map(|key| self.pools.get(key)) {
            let serving = listed.serving_endpoints().map(|endpoint| &endpoint.state.served_models);
            let names = serving.chain(listed.models_at_zero()).map(ServedModels::names);
            // The engines of a pool usually list the same models.
            for names in names.collect::<BTreeSet<_>>() {
                for model in names.iter() {
                    let name = match pool {
                        Some(_) => model.clone(),
                        None => self.model_names.shortest_name(&listed.key.namespace, model),
                    };
                    models.entry(name).or_insert(listed);
                }
            }
        }
        models
    }

    /// Returns all names of the model that a request names, which addresses `pool` or no pool.
    pub(crate) fn aliases(&self, pool: Option<&NamespacedName>, name: &str) -> SmallVec<[String; 2]> {
        let declared = self.model_names.get(name).and_then(|named| Some((named.pools.first()?, named.model.as_str())));
        let named = match pool {
            Some(pool) => Some((pool, name)),
            None => declared.or_else(|| self.implicit_pool(None, name).map(|(pool, model)| (&pool.key, model))),
        };
        match named {
            Some((pool, model)) => self.model_names.names_in(&pool.namespace, model),
            None => smallvec![name.to_owned()],
        }
    }

    /// Returns the pool with this name, if requests may name `target` as their target.
    pub(crate) fn find_target(&self, pool: &NamespacedName, target: &str) -> Option<&Arc<Pool>> {
        self.pools.get(pool).filter(|pool| pool.has_target(target))
    }
}

/// Returns the names of the models of `pools`.
pub(crate) fn model_names<'a>(default_namespace: &str, pools: impl Iterator<Item = &'a Pool>) -> ModelNames {
    let use_cases = pools.flat_map(|pool| pool.use_cases.values().map(|use_case| (&pool.key, use_case)));
    ModelNames::new(default_namespace, use_cases)
}

/// Returns the pools of each namespace that serve models without a use case: first those with ready endpoints, then the oldest.
fn implicit_pools(
    pools: &RedBlackTreeMapSync<Arc<NamespacedName>, Arc<Pool>>,
) -> BTreeMap<String, Vec<NamespacedName>> {
    let mut pools: Vec<&Arc<Pool>> = pools.values().filter(|pool| pool.allows_implicit_use_cases).collect();
    pools.sort_by_key(|pool| (!pool.is_serving(), pool.creation_timestamp.as_str()));
    let mut by_namespace: BTreeMap<String, Vec<NamespacedName>> = BTreeMap::new();
    for pool in pools {
        by_namespace.entry(pool.key.namespace.clone()).or_default().push(pool.key.clone());
    }
    by_namespace
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{endpoint::tests::endpoint, policy::tests::policy_without_metrics, use_case::TargetModel};

    /// Returns a pool without use cases, whose endpoints are not scraped.
    pub(crate) fn pool(key: NamespacedName, ready_endpoints: Vec<Arc<Endpoint>>) -> Pool {
        let scheduling = PoolScheduling::new(policy_without_metrics(), Arc::default());
        Pool::new(key, Arc::new(scheduling), ready_endpoints)
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

    #[test]
    fn aliases_contain_the_namespace() {
        let in_namespace = |namespace: &str| {
            Arc::new(Pool { key: NamespacedName::new(namespace, "p"), ..pool_of("p", "1", &["chat"]) })
        };
        let routing = Snapshot::new(vec![in_namespace("team-b"), in_namespace("default")], "default");
        let pool = NamespacedName::new("team-b", "p");
        assert_eq!(routing.aliases(None, "chat").as_slice(), ["default/chat", "chat"]);
        assert_eq!(routing.aliases(None, "team-b/chat").as_slice(), ["team-b/chat"]);
        assert_eq!(routing.aliases(Some(&pool), "chat").as_slice(), ["team-b/chat"]);
        assert_eq!(routing.aliases(None, "unknown").as_slice(), ["unknown"]);
    }

    // spec: GW-50
    #[test]
    fn oldest_use_case_wins_unless_a_pool_is_given() {
        let pools = [pool_of("a", "2026-02-01", &["m", "x"]), pool_of("b", "2026-01-01", &["m"])];
        let routing = Snapshot::new(pools.map(Arc::new).into(), "ns");
        let serving_pool = |pool: Option<&str>, model: &str| {
            let key = pool.map(|name| NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() });
            routing.declaring_pools(key.as_ref(), model).next().map(|(pool, _)| pool.key.name.clone())
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
        let routing = Snapshot::new([denying, allowing].map(Arc::new).into(), "ns");
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
        let implicit = |name, created| Pool { allows_implicit_use_cases: true, ..pool_of(name, created, &[]) };
        let pools = [pool_of("a", "1", &["m"]), implicit("b", "2"), implicit("c", "3")];
        let routing = Snapshot::new(pools.map(Arc::new).into(), "ns");
        let serving_pool = |routing: &Snapshot| {
            assert_eq!(routing.declaring_pools(None, "free").count(), 0);
            routing.implicit_pool(None, "free").unwrap().0.key.name.clone()
        };
        assert_eq!(serving_pool(&routing), "b");
        let ready = implicit("c", "3").with_endpoints(vec![Arc::new(endpoint(1))], 1);
        let with_endpoint = routing.with_endpoints_of(&[Arc::new(ready)]);
        assert_eq!(serving_pool(&with_endpoint), "c");
        assert_eq!(serving_pool(&with_endpoint.with_endpoints_of(&[Arc::new(implicit("c", "3"))])), "b");
    }

    /// The engine of the newer pool lists the model, or its adapter for SGLang.
    #[test]
    fn pool_with_an_engine_that_lists_the_model_is_first() {
        let with_models = |name: &str, created: &str, number: u8, models: Option<&[&str]>| {
            let endpoint = Arc::new(endpoint(number));
            let models = models.map(|models| models.iter().map(|model| (*model).to_owned()).collect());
            endpoint.state.served_models.record(models, tokio::time::Instant::now());
            let pool = pool(NamespacedName::new("default", name), vec![endpoint]);
            Arc::new(Pool { allows_implicit_use_cases: true, creation_timestamp: created.to_owned(), ..pool })
        };
        let pools = vec![
            with_models("a", "1", 1, Some(&["x"])),
            with_models("b", "2", 2, Some(&["org/y"])),
            with_models("unknown", "3", 3, None),
        ];
        let routing = Snapshot::new(pools, "default");
        let target = |name: &str| routing.implicit_pool(None, name).map(|(pool, _)| pool.key.name.as_str());
        assert_eq!(["x", "org/y", "x:adapter", "z"].map(target), [Some("a"), Some("b"), Some("a"), Some("unknown")]);
        assert_eq!(routing.implicit_models(None).keys().collect::<Vec<_>>(), ["org/y", "x"]);
        let b = NamespacedName::new("default", "b");
        assert_eq!(routing.implicit_models(Some(&b)).keys().collect::<Vec<_>>(), ["org/y"]);
    }

    /// A pool of another namespace does not receive requests for a model whose name begins like that namespace.
    #[test]
    fn pool_of_the_default_namespace_that_lists_the_model_precedes_others() {
        let with_models = |namespace: &str, number: u8, models: &[&str]| {
            let endpoint = Arc::new(endpoint(number));
            let models = models.iter().map(|model| (*model).to_owned()).collect();
            endpoint.state.served_models.record(Some(models), tokio::time::Instant::now());
            let pool = pool(NamespacedName::new(namespace, "p"), vec![endpoint]);
            Arc::new(Pool { allows_implicit_use_cases: true, ..pool })
        };
        let pools =
            vec![with_models("default", 1, &["openai/gpt-oss-20b"]), with_models("openai", 2, &["gpt-oss-20b", "x"])];
        let routing = Snapshot::new(pools, "default");
        let namespace = |name| routing.implicit_pool(None, name).map(|(pool, _)| pool.key.namespace.as_str());
        assert_eq!(["openai/gpt-oss-20b", "openai/x"].map(namespace), [Some("default"), Some("openai")]);
        assert_eq!(
            routing.aliases(None, "openai/gpt-oss-20b").as_slice(),
            ["default/openai/gpt-oss-20b", "openai/gpt-oss-20b"]
        );
        assert_eq!(routing.aliases(None, "openai/x").as_slice(), ["openai/x"]);
        assert_eq!(
            routing.aliases(None, "default/openai/gpt-oss-20b").as_slice(),
            routing.aliases(None, "openai/gpt-oss-20b").as_slice()
        );
    }

    // spec: GW-72
    #[test]
    fn undeclared_model_of_another_namespace_is_named_with_it() {
        let implicit = |namespace| {
            let pool = pool(NamespacedName::new(namespace, "p"), Vec::new());
            Arc::new(Pool { allows_implicit_use_cases: true, ..pool })
        };
        let target = |routing: &Snapshot, name: &str| {
            let (pool, model) = routing.implicit_pool(None, name)?;
            Some(format!("{} {model}", pool.key))
        };
        let routing = Snapshot::new(vec![implicit("default"), implicit("team-b")], "default");
        assert_eq!(target(&routing, "m").as_deref(), Some("default/p m"));
        assert_eq!(target(&routing, "team-b/m").as_deref(), Some("team-b/p m"));
        assert_eq!(target(&routing, "org/m").as_deref(), Some("default/p org/m"));
        assert_eq!(target(&Snapshot::new(vec![implicit("team-b")], "default"), "m"), None);
    }
}
