//! Builds the pools from the watched objects: which Pods are endpoints, which use case owns a model name, and the status
//! conditions.

mod conditions;
mod inference_extension;
mod inference_pool;
mod picker_config;
mod pod_selection;
mod pool_states;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::inference::{
    BackendPool, ImplicitUseCases, LLMUseCase, LLMUseCaseSet, ModelServer, PoolRef, QueueLimits as ApiQueueLimits,
    ScaleToZero, UseCase as ApiUseCase,
};
use cluster::{Condition, ConditionStatus, Kind, NamespacedName, metadata_field};
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    http_routes::{GatewayObjects, RouteStatuses, RouteTable, build_routes},
    kinds::{BACKEND_POOL, INFERENCE_POOL, USE_CASE, USE_CASE_SET},
    policy::SchedulingPolicy,
    projection::is_projection,
    queue_limits::QueueLimits,
    snapshot::{Pool, model_names},
    use_case::{CRITICAL, IMPLICIT, NONCRITICAL, TargetModel, UseCase},
};
use conditions::Activation;
pub use conditions::{ENDPOINTS_SHARED, MODEL_NAME_SHARED};
use pod_selection::{PodSelection, PoolSelector};

pub(crate) use inference_extension::ExtensionObjects;
pub(crate) use picker_config::ParsedConfigs;
pub(crate) use pool_states::PoolStates;

/// The watched objects that the index is built from.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchedObjects {
    /// BackendPools.
    pub(crate) backend_pools: Vec<Arc<Value>>,
    /// InferencePools.
    pub(crate) inference_pools: Vec<Arc<Value>>,
    /// BackendPools that state which models the InferencePools of the same name serve.
    pub(crate) pool_settings: Vec<Arc<Value>>,
    /// LLMUseCaseSets.
    pub(crate) use_case_sets: Vec<Arc<Value>>,
    /// LLMUseCases.
    pub(crate) use_cases: Vec<Arc<Value>>,
    /// Pods.
    pub(crate) pods: Vec<Arc<Value>>,
    /// ConfigMaps with an EndpointPickerConfig; `None` until they are listed.
    pub(crate) picker_configs: Option<Vec<Arc<Value>>>,
    /// InferenceObjectives and InferenceModelRewrites.
    pub(crate) extension_objects: ExtensionObjects,
    /// Objects of the Gateway API.
    pub(crate) gateway_objects: GatewayObjects,
}

/// Pools and status conditions, built from the watched objects and kept up to date with every change of a Pod.
#[derive(Debug, Default)]
pub(crate) struct PoolIndex {
    /// Pools with their active use cases, sorted by namespace and name.
    pub(crate) pools: Vec<Arc<Pool>>,
    /// Pods of the pools, in the same order.
    pods: PodSelection,
    /// Conditions of the EndpointPickerConfigs of the pools, in the same order.
    config_conditions: Vec<Option<Condition>>,
    /// Conditions of LLMUseCaseSets and LLMUseCases.
    pub(crate) use_case_conditions: BTreeMap<(Kind, NamespacedName), Vec<Condition>>,
    /// HTTPRoutes to the pools.
    pub(crate) routes: Arc<RouteTable>,
    /// Statuses of the objects of the Gateway API.
    pub(crate) route_statuses: RouteStatuses,
}

/// What a pool object states.
struct PoolDefinition {
    selector: PoolSelector,
    allows_implicit_use_cases: bool,
    default_priority: i32,
    queue_limits: QueueLimits,
    scale_to_zero: Option<ScaleToZero>,
    creation_timestamp: String,
    /// Policy of an EndpointPickerConfig, if the pool states a valid one.
    policy: Option<SchedulingPolicy>,
    config_condition: Option<Condition>,
}

/// An LLMUseCaseSet, or an LLMUseCase, which is a set of one (GW-2).
struct UseCaseSource {
    kind: Kind,
    key: NamespacedName,
    creation_timestamp: String,
    pool_refs: Vec<PoolRef>,
    use_cases: Vec<ApiUseCase>,
}

/// Builds the index from `objects`. `configs` contains those of the last index.
pub(crate) fn build_index(
    objects: &WatchedObjects,
    states: &impl PoolStates,
    configs: &mut ParsedConfigs,
) -> PoolIndex {
    let definitions = pool_definitions(objects, configs);
    let selectors = definitions.values().map(|definition| definition.selector.clone());
    let pods = PodSelection::new(selectors, &objects.pods, states);
    let config_conditions = definitions.values().map(|definition| definition.config_condition.clone()).collect();
    let new_pool = |(position, (key, definition)): (usize, (NamespacedName, PoolDefinition))| {
        let endpoints = pods.endpoints(position);
        let pool = Pool {
            endpoint_count: endpoints.count,
            allows_implicit_use_cases: definition.allows_implicit_use_cases,
            default_priority: definition.default_priority,
            queue_limits: definition.queue_limits,
            scale_to_zero: definition.scale_to_zero,
            creation_timestamp: definition.creation_timestamp,
            ..Pool::new(key.clone(), states.scheduling(definition.policy), endpoints.ready)
        };
        (key, pool)
    };
    let mut pools: BTreeMap<NamespacedName, Pool> = definitions.into_iter().enumerate().map(new_pool).collect();
    let mut sources: Vec<UseCaseSource> =
        objects.use_case_sets.iter().filter_map(|object| use_case_set_source(object)).collect();
    sources.extend(objects.use_cases.iter().filter_map(|object| use_case_source(object)));
    // The oldest object owns a model name. Namespace and name break ties, so that all replicas agree.
    sources.sort_by(|a, b| (&a.creation_timestamp, &a.key).cmp(&(&b.creation_timestamp, &b.key)));
    let activations: Vec<Activation> = sources.iter().map(|source| activate_use_cases(&mut pools, source)).collect();
    inference_extension::add_to_pools(&mut pools, &objects.extension_objects);
    let model_names = model_names(states.default_namespace(), pools.values());
    let conditions = activations.iter().map(|activation| conditions::use_case_conditions(activation, &model_names));
    let use_case_conditions = sources.into_iter().map(|source| (source.kind, source.key)).zip(conditions).collect();
    let (routes, route_statuses) = build_routes(&objects.gateway_objects, &pools.keys().cloned().collect());
    let pools = pools.into_values().map(Arc::new).collect();
    PoolIndex { pools, pods, config_conditions, use_case_conditions, routes: Arc::new(routes), route_statuses }
}

/// Returns the pools by namespace and name. A BackendPool replaces an InferencePool of the same name.
fn pool_definitions(objects: &WatchedObjects, configs: &mut ParsedConfigs) -> BTreeMap<NamespacedName, PoolDefinition> {
    configs.begin_index();
    let mut definitions = BTreeMap::new();
    for object in &objects.inference_pools {
        let key = NamespacedName::from_object(object);
        let settings = objects.pool_settings.iter().find(|settings| NamespacedName::from_object(settings) == key);
        let definition = inference_pool(object, settings.map(|settings| &**settings));
        definitions.insert(key, with_configuration(definition, object, objects, configs));
    }
    for object in &objects.backend_pools {
        let Some(definition) = backend_pool(object) else { continue };
        let definition = with_configuration(definition, object, objects, configs);
        definitions.insert(NamespacedName::from_object(object), definition);
    }
    definitions
}

/// Adds the policy of the EndpointPickerConfig that the pool states, if any.
fn with_configuration(
    definition: PoolDefinition,
    pool: &Value,
    objects: &WatchedObjects,
    configs: &mut ParsedConfigs,
) -> PoolDefinition {
    let policy = picker_config::policy(pool, objects.picker_configs.as_deref(), configs);
    let config_condition = policy.as_ref().map(conditions::picker_config_condition);
    PoolDefinition { policy: policy.and_then(Result::ok), config_condition, ..definition }
}

fn backend_pool(object: &Value) -> Option<PoolDefinition> {
    let BackendPool { spec, .. } = parse_object(object)?;
    let selector = PoolSelector {
        namespace: metadata_field(object, "namespace").to_owned(),
        labels: spec.selector,
        ports: spec.target_ports.iter().copied().collect(),
        model_server: spec.model_server.unwrap_or_default(),
    };
    let allows_implicit_use_cases = spec.implicit_use_cases == Some(ImplicitUseCases::Allow);
    let definition = new_definition(object, selector, allows_implicit_use_cases, spec.queue);
    Some(PoolDefinition { scale_to_zero: spec.scale_to_zero, ..definition })
}

/// Clients of an InferencePool may use any model, unless `settings`, the BackendPool of the same name, denies it. That pool also
/// states the model server and the queue.
fn inference_pool(object: &Value, settings: Option<&Value>) -> PoolDefinition {
    // The projection of a BackendPool outlives it for a moment, and must not serve more models than the pool did.
    let allows_implicit_use_cases = match settings {
        Some(settings) => settings["spec"]["implicitUseCases"] == "Allow",
        None => !is_projection(object),
    };
    let spec = &object["spec"];
    let model_server = settings
        .and_then(|settings| ModelServer::deserialize(&settings["spec"]["modelServer"]).ok())
        .unwrap_or_default();
    let selector = PoolSelector {
        namespace: metadata_field(object, "namespace").to_owned(),
        labels: inference_pool::selector(spec),
        ports: inference_pool::ports(spec),
        model_server,
    };
    let queue = settings.and_then(|settings| Option::deserialize(&settings["spec"]["queue"]).ok()).flatten();
    // As for other endpoint pickers, if the pool has no use cases of higher priorities.
    let default_priority = if settings.is_none() { NONCRITICAL } else { IMPLICIT };
    PoolDefinition { default_priority, ..new_definition(object, selector, allows_implicit_use_cases, queue) }
}

fn new_definition(
    object: &Value,
    selector: PoolSelector,
    allows_implicit_use_cases: bool,
    queue: Option<ApiQueueLimits>,
) -> PoolDefinition {
    PoolDefinition {
        selector,
        allows_implicit_use_cases,
        default_priority: IMPLICIT,
        queue_limits: queue.map(QueueLimits::from).unwrap_or_default(),
        scale_to_zero: None,
        creation_timestamp: metadata_field(object, "creationTimestamp").to_owned(),
        policy: None,
        config_condition: None,
    }
}

fn use_case_set_source(object: &Value) -> Option<UseCaseSource> {
    let parsed: LLMUseCaseSet = parse_object(object)?;
    Some(new_source(USE_CASE_SET, object, parsed.spec.pool_ref, parsed.spec.use_cases))
}

fn use_case_source(object: &Value) -> Option<UseCaseSource> {
    let parsed: LLMUseCase = parse_object(object)?;
    let use_case = parsed.spec.use_case();
    Some(new_source(USE_CASE, object, parsed.spec.pool_ref, vec![use_case]))
}

fn new_source(kind: Kind, object: &Value, pool_refs: Vec<PoolRef>, use_cases: Vec<ApiUseCase>) -> UseCaseSource {
    UseCaseSource {
        kind,
        key: NamespacedName::from_object(object),
        creation_timestamp: metadata_field(object, "creationTimestamp").to_owned(),
        pool_refs,
        use_cases,
    }
}

/// Adds the use cases of one object to its pools, and returns which of them are active.
fn activate_use_cases(pools: &mut BTreeMap<NamespacedName, Pool>, source: &UseCaseSource) -> Activation {
    let mut activation = Activation::default();
    for reference in &source.pool_refs {
        if let Some(namespace) = reference.namespace.as_ref().filter(|namespace| **namespace != source.key.namespace) {
            activation.foreign_pools.insert(format!("{namespace}/{}", reference.name));
            continue;
        }
        let kind = reference.kind.as_deref().unwrap_or(BACKEND_POOL.kind);
        let key = NamespacedName { namespace: source.key.namespace.clone(), name: reference.name.clone() };
        // A BackendPool and an InferencePool of the same name are the same pool.
        let Some(pool) = pools.get_mut(&key).filter(|_| [BACKEND_POOL.kind, INFERENCE_POOL].contains(&kind)) else {
            let unresolved = match kind {
                INFERENCE_POOL => &mut activation.unknown_inference_pools,
                _ => &mut activation.missing_pools,
            };
            unresolved.insert(reference.name.clone());
            continue;
        };
        activation.found_pools.insert(reference.name.clone());
        for use_case in &source.use_cases {
            if !use_case.target_models.is_empty()
                && use_case.target_models.iter().all(|target| target.weight == Some(0))
            {
                activation.zero_weight_use_cases.insert(use_case.model_name.clone());
            } else if pool.use_cases.contains_key(&use_case.model_name) {
                let conflict = format!("{} on pool {}", use_case.model_name, pool.key.name);
                activation.conflicting_use_cases.insert(conflict);
            } else {
                activation.active_pools.entry(use_case.model_name.clone()).or_default().insert(key.clone());
                pool.use_cases.insert(use_case.model_name.clone(), active_use_case(use_case, source));
            }
        }
    }
    activation
}

fn active_use_case(use_case: &ApiUseCase, source: &UseCaseSource) -> UseCase {
    let target = |target: &api::inference::TargetModel| TargetModel {
        model: target.target_model_name.clone(),
        weight: target.weight.unwrap_or(1),
    };
    UseCase {
        model_name: use_case.model_name.clone(),
        priority: if use_case.objective.is_some() { CRITICAL } else { NONCRITICAL },
        is_rewrite: false,
        objective: use_case.objective.as_ref().and_then(|objective| Some(objective.latency_per_output_token?.0)),
        targets: use_case.target_models.iter().map(target).collect(),
        creation_timestamp: source.creation_timestamp.clone(),
        declared_by: format!("{} {}", source.kind.kind, source.key),
    }
}

// === impl PoolIndex ===

impl PoolIndex {
    /// Replaces a Pod, or removes it if `pod` is `None`. Returns the positions of the pools that were built again.
    pub(crate) fn update_pod(
        &mut self,
        key: &NamespacedName,
        pod: Option<&Value>,
        states: &impl PoolStates,
    ) -> BTreeSet<usize> {
        let changed = self.pods.update(key, pod, states);
        for position in &changed {
            if let Some(pool) = self.pools.get_mut(*position) {
                let endpoints = self.pods.endpoints(*position);
                *pool = Arc::new(pool.with_endpoints(endpoints.ready, endpoints.count));
            }
        }
        changed
    }

    /// Returns the position of a pool.
    pub(crate) fn position(&self, key: &NamespacedName) -> Option<usize> {
        self.pools.binary_search_by(|pool| pool.key.cmp(key)).ok()
    }

    /// Returns the pools whose EndpointPickerConfig has no effect, with the reason.
    pub(crate) fn rejected_configs(&self) -> BTreeMap<NamespacedName, String> {
        let conditions = self.pools.iter().zip(&self.config_conditions);
        let rejected = conditions.filter_map(|(pool, condition)| {
            let condition = condition.as_ref().filter(|condition| condition.status != ConditionStatus::True)?;
            Some((pool.key.clone(), condition.message.clone()))
        });
        rejected.collect()
    }

    /// Returns the conditions of the pool at a position.
    pub(crate) fn pool_conditions(&self, position: usize) -> Vec<Condition> {
        let ready = self.pools.get(position).map(|pool| conditions::ready_condition(pool));
        let sharing = self.pods.sharing_pools(position);
        let sharing = sharing.into_iter().filter_map(|other| Some(self.pools.get(other)?.key.name.clone())).collect();
        let shared = conditions::endpoints_shared_condition(&sharing);
        let config = self.config_conditions.get(position).cloned().flatten();
        ready.into_iter().chain(config).chain(shared).collect()
    }
}

/// Parses an object; returns `None` if it does not match the schema (possible if the API server accepted it without a
/// schema).
fn parse_object<T: serde::de::DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(object)
        .inspect_err(
            |error| tracing::warn!(kind = object["kind"].as_str(), namespace = metadata_field(object, "namespace"), name = metadata_field(object, "name"), %error, "ignoring invalid object"),
        )
        .ok()
}
