//! The router of a role-based service: endpoint picker, InferencePool and HTTPRoute.

mod route;
mod strategy;

use api::fusioninfer::{ComponentType, Role as ApiRole, RoutingStrategy};
use decide::Warning;
use serde_json::Value;

use crate::code;
use crate::labels::{self, Labels};
use crate::names;
use crate::owner::Owner;
use crate::plan_error::PlanError;
use crate::pool_target::PoolTarget;
use crate::role::Role;

/// Endpoint picker of a service with its pool and route.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Router {
    /// Name of the role.
    pub role: String,
    /// Labels of the objects.
    pub labels: Labels,
    /// Labels that select the picker's Pods; a subset of `labels`.
    pub selector: Labels,
    /// Additional labels of the Deployment: the Kueue queue.
    pub queue_labels: Labels,
    /// Image of the picker.
    pub image: String,
    /// Content of the picker's configuration file.
    pub config: String,
    /// Pods that the picker selects from: leaders only, all with the same port.
    pub pool: PoolTarget,
    /// Spec of the HTTPRoute; `None` to create none.
    pub route: Option<Value>,
}

/// Names of the router's objects, the same as upstream. A service has one router, so they derive from the service's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouterNames {
    /// Name of the ServiceAccount, Role, RoleBinding, Deployment and Service.
    pub picker: String,
    /// Name of the ConfigMap.
    pub config: String,
    /// Name of the InferencePool.
    pub pool: String,
    /// Name of the HTTPRoute.
    pub route: String,
}

/// Label key of the picker's Pods.
const APP: &str = "app";

// === impl RouterNames ===

impl RouterNames {
    /// Returns the names for the service `owner`, each with at most 63 characters.
    pub(crate) fn for_owner(owner: &Owner) -> Self {
        let name = |suffix| names::component(&owner.name, suffix);
        Self { picker: name("epp"), config: name("epp-config"), pool: name("pool"), route: name("httproute") }
    }
}

/// Builds the router for `role` of a service with these engine roles.
///
/// # Errors
/// The service has no engine role, or the route is invalid.
pub(crate) fn build_router(
    owner: &Owner,
    role: &ApiRole,
    engines: &[Role],
    image: &str,
    warnings: &mut Vec<Warning>,
) -> Result<Router, PlanError> {
    if engines.is_empty() {
        let message = format!(
            "Role {} is a router, but no role runs an engine: add a worker, or a prefiller and a decoder",
            role.name
        );
        return Err(PlanError::new(code::error::NO_ENGINES, message));
    }
    let custom_config = role.endpoint_picker_config.as_deref().filter(|config| !config.is_empty());
    let strategy = effective_strategy(role, engines, warnings);
    let pool = match custom_config {
        // A custom configuration selects the endpoints itself.
        Some(_) => PoolTarget::select(owner, engines, None, warnings),
        None => {
            let pool = pool_target(owner, engines, strategy, warnings);
            warnings
                .extend(pool.as_ref().and_then(|pool| prefillers_not_routed_warning(role, engines, strategy, pool)));
            pool
        }
    };
    let names = RouterNames::for_owner(owner);
    let selector = labels::from_pairs([(APP, names.picker.as_str()), (labels::SERVICE, owner.name.as_str())]);
    let role_labels =
        [(labels::COMPONENT_TYPE, ComponentType::Router.as_str()), (labels::ROLE_NAME, role.name.as_str())];
    let mut object_labels = selector.clone();
    object_labels.extend(labels::from_pairs(role_labels));
    Ok(Router {
        role: role.name.clone(),
        labels: object_labels,
        selector,
        queue_labels: owner.queue_label().into_iter().collect(),
        image: image.to_owned(),
        config: custom_config.map_or_else(|| strategy::config(strategy), str::to_owned),
        pool: pool.ok_or_else(|| PlanError::new(code::error::INVALID_TEMPLATE, "No role has a container"))?,
        route: role.httproute.as_ref().map(|spec| http_route(role, spec, &names.pool, warnings)).transpose()?,
    })
}

/// Returns the number of engine roles of a component type.
fn count_type(engines: &[Role], kind: ComponentType) -> usize {
    engines.iter().filter(|role| role.labels[labels::COMPONENT_TYPE] == kind.as_str()).count()
}

fn has_pair(engines: &[Role]) -> bool {
    count_type(engines, ComponentType::Prefiller) > 0 && count_type(engines, ComponentType::Decoder) > 0
}

/// Returns the strategy of the role, or the default one if the service lacks the roles that the strategy requires.
fn effective_strategy(role: &ApiRole, engines: &[Role], warnings: &mut Vec<Warning>) -> RoutingStrategy {
    let strategy = role.strategy.unwrap_or_default();
    if strategy != RoutingStrategy::PdDisaggregation || has_pair(engines) {
        return strategy;
    }
    let message = format!(
        "Role {}: strategy pd-disaggregation requires a prefiller and a decoder; using prefix-cache",
        role.name
    );
    warnings.push(Warning::new(code::warning::STRATEGY_NOT_APPLICABLE, message));
    RoutingStrategy::default()
}

/// Returns the Pods of the pool: prefillers and decoders if the strategy distinguishes them, otherwise the Pods that
/// serve complete requests.
fn pool_target(
    owner: &Owner,
    engines: &[Role],
    strategy: RoutingStrategy,
    warnings: &mut Vec<Warning>,
) -> Option<PoolTarget> {
    if !has_pair(engines) {
        let component_type = (count_type(engines, ComponentType::Worker) == 1).then_some(ComponentType::Worker);
        return PoolTarget::select(owner, engines, component_type, warnings);
    }
    if strategy == RoutingStrategy::PdDisaggregation || !PoolTarget::have_equal_ports(engines) {
        return PoolTarget::select_pair(owner, engines, warnings);
    }
    PoolTarget::select(owner, engines, Some(ComponentType::Decoder), warnings)
}

/// Warns about prefillers that `pool` excludes because the strategy does not pair them with decoders. [`pool_target`] warns
/// about ports.
fn prefillers_not_routed_warning(
    role: &ApiRole,
    engines: &[Role],
    strategy: RoutingStrategy,
    pool: &PoolTarget,
) -> Option<Warning> {
    if strategy == RoutingStrategy::PdDisaggregation || !PoolTarget::have_equal_ports(engines) {
        return None;
    }
    let prefillers = PoolTarget::roles(engines, Some(ComponentType::Prefiller));
    let names: Vec<&str> =
        prefillers.filter(|prefiller| !pool.contains(prefiller)).map(|prefiller| prefiller.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let message = format!(
        "Role {}: the strategy does not pair prefillers with decoders, so requests are routed to decoders and never to {}; \
         set `strategy: pd-disaggregation`",
        role.name,
        names.join(", ")
    );
    Some(Warning::new(code::warning::PREFILLERS_NOT_ROUTED, message))
}

/// Validates the route and adds the pool as its default backend.
///
/// # Errors
/// The field of the route that is invalid.
fn http_route(role: &ApiRole, spec: &Value, pool: &str, warnings: &mut Vec<Warning>) -> Result<Value, PlanError> {
    if let Some((path, cause)) = api::http_route_spec_error(spec) {
        let message = format!("role {}, httproute{path}: {cause}", role.name);
        return Err(PlanError::new(code::error::INVALID_ROUTE, message));
    }
    if spec["parentRefs"].as_array().is_none_or(Vec::is_empty) {
        let message =
            format!("Role {}: httproute.parentRefs has no Gateway, so the route receives no requests", role.name);
        warnings.push(Warning::new(code::warning::ROUTE_WITHOUT_GATEWAY, message));
    }
    Ok(route::with_default_backend(spec, pool))
}
