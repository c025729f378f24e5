//! The router of a role-based service: an endpoint picker, the pool that it picks from, and a route that leads there.

mod route;
mod strategy;

use api::fusioninfer::{ComponentType, Role as ApiRole, RoutingStrategy};
use decide::reason::Warning;
use serde_json::Value;

use crate::code;
use crate::labels::{self, Labels};
use crate::roles::{Target, queue_name};
use crate::topology::{Owner, Refusal, Role};

/// The picker of a service and what leads requests to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Router {
    /// Name of the role.
    pub role: String,
    /// Labels of its objects.
    pub labels: Labels,
    /// Of these labels, those by which its Pods are found.
    pub selector: Labels,
    /// Labels of the Deployment alone.
    pub queue: Labels,
    /// The picker's image: that of this program.
    pub image: String,
    /// Content of the picker's configuration file.
    pub config: String,
    /// The Pods to pick from: leaders only, each on one port.
    pub pool: Target,
    /// Spec of the HTTPRoute; None: none is made.
    pub route: Option<Value>,
}

/// Key under which the Pods of one picker are known, as of every application.
const APP: &str = "app";

/// What `role` of a service with these engines becomes.
///
/// # Errors
/// No engine to route to, or a route that is none.
pub(crate) fn of(
    owner: &Owner,
    role: &ApiRole,
    engines: &[Role],
    image: &str,
    warnings: &mut Vec<Warning>,
) -> Result<Router, Refusal> {
    if engines.is_empty() {
        let message = format!(
            "role {}: a router needs engines to route to; add a worker, or a prefiller and a decoder",
            role.name
        );
        return Err(Refusal::new(code::refusal::NO_ENGINES, message));
    }
    let verbatim = role.endpoint_picker_config.as_deref().filter(|config| !config.is_empty());
    let strategy = applicable(role, engines, warnings);
    let pool = match verbatim {
        // Who writes a configuration says in it who may be picked.
        Some(_) => Target::of(owner, engines, None, warnings),
        None => pool(owner, engines, strategy, warnings),
    };
    let names = Names::of(owner);
    let selector = labels::of([(APP, names.picker.as_str()), (labels::SERVICE, owner.name.as_str())]);
    let more = [(labels::COMPONENT_TYPE, ComponentType::Router.as_str()), (labels::ROLE_NAME, role.name.as_str())];
    let mut all = selector.clone();
    all.extend(labels::of(more));
    Ok(Router {
        role: role.name.clone(),
        labels: all,
        selector,
        queue: queue_name(owner).into_iter().collect(),
        image: image.to_owned(),
        config: verbatim.map_or_else(|| strategy::config(strategy), str::to_owned),
        pool: pool.ok_or_else(|| Refusal::new(code::refusal::INVALID_TEMPLATE, "no role has a container"))?,
        route: role.httproute.as_ref().map(|stated| route(role, stated, &names.pool, warnings)).transpose()?,
    })
}

/// Names of the router's objects, as upstream has them. One service has one router, so they follow from the service's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// ServiceAccount, Role, RoleBinding, Deployment and Service.
    pub picker: String,
    /// ConfigMap.
    pub config: String,
    /// InferencePool.
    pub pool: String,
    /// HTTPRoute.
    pub route: String,
}

impl Names {
    /// Those of the service `owner`, each at most 63 characters.
    pub fn of(owner: &Owner) -> Self {
        let name = |suffix| crate::names::component(&owner.name, suffix);
        Self { picker: name("epp"), config: name("epp-config"), pool: name("pool"), route: name("httproute") }
    }
}

fn of_type(engines: &[Role], kind: ComponentType) -> usize {
    engines.iter().filter(|role| role.labels[labels::COMPONENT_TYPE] == kind.as_str()).count()
}

fn is_pair(engines: &[Role]) -> bool {
    of_type(engines, ComponentType::Prefiller) > 0 && of_type(engines, ComponentType::Decoder) > 0
}

/// The stated strategy, or the default where it has nothing to work with: without a pair nothing could be picked.
fn applicable(role: &ApiRole, engines: &[Role], warnings: &mut Vec<Warning>) -> RoutingStrategy {
    let stated = role.strategy.unwrap_or_default();
    if stated != RoutingStrategy::PdDisaggregation || is_pair(engines) {
        return stated;
    }
    let message = format!(
        "role {}: strategy pd-disaggregation needs a prefiller and a decoder; prefix-cache is used instead",
        role.name
    );
    warnings.push(Warning::new(code::warning::STRATEGY_NOT_APPLICABLE, message));
    RoutingStrategy::default()
}

/// Both halves of a pair where the picker tells them apart, and the half that answers where it does not.
fn pool(owner: &Owner, engines: &[Role], strategy: RoutingStrategy, warnings: &mut Vec<Warning>) -> Option<Target> {
    let decoders = Some(ComponentType::Decoder);
    if !is_pair(engines) {
        let only = (of_type(engines, ComponentType::Worker) == 1).then_some(ComponentType::Worker);
        return Target::of(owner, engines, only, warnings);
    }
    let one_port = engines.iter().all(|role| role.port == engines[0].port);
    // A pool has one port. Decoders can do a whole request by themselves.
    let of = if strategy == RoutingStrategy::PdDisaggregation && one_port { None } else { decoders };
    if !one_port {
        let message = "prefillers and decoders answer on different ports: a pool has one, so only decoders are picked";
        warnings.push(Warning::new(code::warning::PORTS_DIFFER, message));
    }
    Target::of(owner, engines, of, warnings)
}

fn route(role: &ApiRole, stated: &Value, pool: &str, warnings: &mut Vec<Warning>) -> Result<Value, Refusal> {
    if let Some((path, cause)) = api::lint::route_fault(stated) {
        let message = format!("role {}, httproute{path}: {cause}", role.name);
        return Err(Refusal::new(code::refusal::INVALID_ROUTE, message));
    }
    if stated["parentRefs"].as_array().is_none_or(Vec::is_empty) {
        let message = format!("role {}: httproute.parentRefs names no Gateway, so no request comes by it", role.name);
        warnings.push(Warning::new(code::warning::ROUTE_WITHOUT_GATEWAY, message));
    }
    Ok(route::completed(stated, pool))
}
