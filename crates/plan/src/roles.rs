//! A role-based service (`fusioninfer.io`, seed 002) becomes a topology.

use std::collections::BTreeSet;

use api::fusioninfer::{ComponentType, InferenceService, Role as ApiRole};
use api::lint::reserved_keys;
use decide::reason::Warning;
use serde_json::Value;

use crate::code;
use crate::gang::{self, PodGroupSchema, VOLCANO, schedule};
use crate::labels;
use crate::launch;
use crate::multinode;
use crate::names::ReplicaSets;
use crate::pod;
use crate::router;
use crate::topology::{Owner, Refusal, Replicas, Role, Routing, Topology, Workload};

/// Port of an engine whose template names none (topology.md).
const PORT: u16 = 8000;

/// Pods of one service at most: two for each node of the largest cluster that Kubernetes supports.
const MOST_PODS: u64 = 10_000;

/// The layout of `service`, with remarks. Behaviour follows the component type, never the role's name. `picker_image` is
/// what a router runs.
///
/// # Errors
/// The first thing that keeps the service from being laid out.
pub fn topology(
    owner: Owner,
    service: &InferenceService,
    schema: PodGroupSchema,
    picker_image: &str,
) -> Result<(Topology, Vec<Warning>), Refusal> {
    let spec = &service.spec;
    check_names(&spec.roles)?;
    check_composed_names(&owner.name, &spec.roles)?;
    check_size(&spec.roles)?;
    let mut warnings: Vec<Warning> = half_a_pair(&spec.roles).into_iter().collect();
    let strategy = spec.scheduling_strategy.clone().unwrap_or_default();
    let disaggregated = is_disaggregated(&spec.roles);
    let mut roles = Vec::new();
    for role in &spec.roles {
        warnings.extend(ignored_fields(role));
        if role.component_type != ComponentType::Router {
            roles.push(engine(&owner, role, gang_member(role, disaggregated), strategy.scheduler_name.as_deref())?);
        }
    }
    let (gang, weaker) = gang::of(&roles, strategy.gang_policy, schema);
    warnings.extend(weaker);
    let stated = spec.roles.iter().find(|role| role.component_type == ComponentType::Router);
    let router = stated.map(|role| router::of(&owner, role, &roles, picker_image, &mut warnings)).transpose()?;
    let routing = routing(&owner, &roles, disaggregated, &mut warnings);
    let labels = labels::of([(labels::SERVICE, owner.name.as_str())]);
    Ok((Topology { owner, labels, roles, gang, routing, router }, warnings))
}

/// Whether prefill and decode are roles of their own.
fn is_disaggregated(roles: &[ApiRole]) -> bool {
    let has = |kind| roles.iter().any(|role| role.component_type == kind);
    has(ComponentType::Prefiller) && has(ComponentType::Decoder)
}

/// Prefill and decode need each other, and a replica over several nodes needs all of them.
fn gang_member(role: &ApiRole, disaggregated: bool) -> bool {
    let half = matches!(role.component_type, ComponentType::Prefiller | ComponentType::Decoder);
    disaggregated && half || role.node_count() > 1
}

fn check_names(roles: &[ApiRole]) -> Result<(), Refusal> {
    if roles.is_empty() {
        return Err(Refusal::new(code::refusal::NO_ROLES, "spec.roles is empty: state at least one role"));
    }
    let mut seen = BTreeSet::new();
    for (at, role) in roles.iter().enumerate() {
        if !seen.insert(&role.name) {
            return Err(Refusal::new(
                code::refusal::DUPLICATE_ROLE,
                format!("spec.roles[{at}].name: there are two roles named {}", role.name),
            ));
        }
    }
    let routers = roles.iter().enumerate().filter(|(_, role)| role.component_type == ComponentType::Router);
    match routers.map(|(at, _)| at).nth(1) {
        None => Ok(()),
        Some(at) => Err(Refusal::new(
            code::refusal::TWO_ROUTERS,
            format!("spec.roles[{at}].componentType: there is a router already, and one service has one"),
        )),
    }
}

/// Each role has names of its own; those of two may still compose to one.
fn check_composed_names(service: &str, roles: &[ApiRole]) -> Result<(), Refusal> {
    let engines = roles.iter().filter(|role| role.component_type != ComponentType::Router);
    let mut before: Vec<(&str, ReplicaSets)> = Vec::new();
    for role in engines {
        let sets = ReplicaSets::of(service, role);
        if let Some((other, name)) = before.iter().find_map(|(other, known)| Some((*other, sets.clash(known)?))) {
            let message = format!("spec.roles: {name} would be made for role {other} and for role {}", role.name);
            return Err(Refusal::new(code::refusal::NAME_CLASH, message));
        }
        before.push((&role.name, sets));
    }
    Ok(())
}

/// Half a pair serves, but not as its name says.
fn half_a_pair(roles: &[ApiRole]) -> Option<Warning> {
    let first = |kind| roles.iter().find(|role| role.component_type == kind);
    let (role, missing) = match (first(ComponentType::Prefiller), first(ComponentType::Decoder)) {
        (Some(role), None) => (role, ComponentType::Decoder),
        (None, Some(role)) => (role, ComponentType::Prefiller),
        _ => return None,
    };
    let (kind, missing) = (role.component_type.as_str(), missing.as_str());
    let message =
        format!("role {}: a {kind} without a {missing}; add a role of type {missing}, or make it a worker", role.name);
    Some(Warning::new(code::warning::PAIR_INCOMPLETE, message))
}

/// Every replica is an object of its own, so their number bounds the time that a plan takes.
fn check_size(roles: &[ApiRole]) -> Result<(), Refusal> {
    let count = |number: i32| u64::from(number.max(0).unsigned_abs());
    let pods = roles.iter().map(|role| count(role.replica_count()).saturating_mul(count(role.node_count())));
    let pods = pods.fold(0, u64::saturating_add);
    if pods > MOST_PODS {
        return Err(Refusal::new(
            code::refusal::TOO_MANY_PODS,
            format!(
                "spec.roles: replicas × nodeCount are {pods} Pods, at most {MOST_PODS} are laid out for one service; split it"
            ),
        ));
    }
    Ok(())
}

/// One role that runs engines.
fn engine(owner: &Owner, role: &ApiRole, gang: bool, scheduler: Option<&str>) -> Result<Role, Refusal> {
    let (mut template, port) = stated_template(role)?;
    schedule(&mut template, scheduler.or(gang.then_some(VOLCANO))).map_err(|other| {
        let message = format!(
            "role {}, template.spec.schedulerName: {other} contradicts {}, which schedulingStrategy.schedulerName or the gang asks for; remove it",
            role.name,
            scheduler.unwrap_or(VOLCANO)
        );
        Refusal::new(code::refusal::SCHEDULER_CONFLICT, message)
    })?;
    let own = labels::of([(labels::SERVICE, owner.name.as_str()), (labels::ROLE_NAME, role.name.as_str())]);
    let mut object_labels = own.clone();
    object_labels.insert(labels::COMPONENT_TYPE.to_owned(), role.component_type.as_str().to_owned());
    labels::onto_template(&mut template, "labels", &object_labels);
    object_labels.extend(queue_name(owner));
    let nodes = role.node_count().max(1).unsigned_abs();
    let (template, worker) = over_nodes(template, nodes, role, port)?;
    let stated_spread = role.multinode.as_ref().and_then(|multinode| multinode.spread);
    Ok(Role {
        name: role.name.clone(),
        component: role.name.clone(),
        workload: Workload::LeaderWorkerSetPerReplica,
        replicas: Replicas::fixed(role.replica_count().max(0).unsigned_abs()),
        nodes,
        template,
        worker,
        gang,
        spread: nodes > 1 && stated_spread == Some(true),
        selector: own,
        labels: object_labels,
        service: None,
        disruption: None,
        port,
        strategy: None,
        settings: Vec::new(),
    })
}

/// The template as the user wrote it, and the port on which its engine answers.
fn stated_template(role: &ApiRole) -> Result<(Value, u16), Refusal> {
    let invalid = |cause: &str| Refusal::new(code::refusal::INVALID_TEMPLATE, format!("role {}, {cause}", role.name));
    let template = role.template.clone().ok_or_else(|| invalid("template: a worker needs one"))?;
    let container = pod::engine_container(&template)
        .ok_or_else(|| invalid("template.spec.containers: needs at least one container"))?;
    if container["image"].as_str().is_none_or(str::is_empty) {
        let containers = template.pointer("/spec/containers").and_then(Value::as_array);
        let at = containers.and_then(|all| all.iter().position(|one| one == container)).unwrap_or_default();
        return Err(invalid(&format!("template.spec.containers[{at}].image: needs an image")));
    }
    let port = launch::port(container, PORT);
    if let Some((field, key)) = reserved_keys(&template).next() {
        let message =
            format!("role {}, template.metadata.{field}[{key}]: the prefix is reserved; use another key", role.name);
        return Err(Refusal::new(code::refusal::RESERVED_METADATA, message));
    }
    Ok((template, port))
}

/// The template of a replica's first Pod, and that of all others where it has several.
fn over_nodes(template: Value, nodes: u32, role: &ApiRole, port: u16) -> Result<(Value, Option<Value>), Refusal> {
    if nodes == 1 {
        return Ok((template, None));
    }
    let backend = role.multinode.as_ref().and_then(|multinode| multinode.backend);
    let templates = multinode::spread(&template, nodes, backend, port)
        .map_err(|refusal| Refusal { message: format!("role {}, {}", role.name, refusal.message), ..refusal })?;
    Ok((templates.leader, Some(templates.worker)))
}

/// The service's Kueue queue is its workloads' queue.
pub(crate) fn queue_name(owner: &Owner) -> Option<(String, String)> {
    let queue = owner.labels.get(labels::KUEUE_QUEUE)?;
    Some((labels::KUEUE_QUEUE.to_owned(), queue.clone()))
}

/// Fields on a role that they are not for (TOP-10).
fn ignored_fields(role: &ApiRole) -> Vec<Warning> {
    let kind = role.component_type.as_str();
    let told = |field: &str, cause: &str| {
        Warning::new(code::warning::FIELD_IGNORED, format!("role {}: {field} has no effect{cause}", role.name))
    };
    if role.component_type != ComponentType::Router {
        let fields = [
            ("strategy", role.strategy.is_some()),
            ("httproute", role.httproute.is_some()),
            ("gateway", role.gateway.is_some()),
            ("endpointPickerConfig", role.endpoint_picker_config.is_some()),
        ];
        let ignored = fields.into_iter().filter(|(_, stated)| *stated);
        return ignored.map(|(field, _)| told(field, &format!(" on a {kind}; it belongs to a router role"))).collect();
    }
    let fields = [
        ("replicas", role.replicas.is_some()),
        ("multinode", role.multinode.is_some()),
        ("template", role.template.is_some()),
        ("maxUnavailable", role.max_unavailable.is_some()),
    ];
    let ignored = fields.into_iter().filter(|(_, stated)| *stated);
    let gateway =
        role.gateway.is_some().then(|| told("gateway", ": no Gateway is made; name one in httproute.parentRefs"));
    ignored
        .map(|(field, _)| told(field, " on a router; it belongs to the roles that run engines"))
        .chain(gateway)
        .collect()
}

/// Leaders answer; of a pair the decoders do, which can do a whole request by themselves.
fn routing(owner: &Owner, roles: &[Role], disaggregated: bool, warnings: &mut Vec<Warning>) -> Option<Routing> {
    let only = disaggregated.then_some(ComponentType::Decoder);
    let Target { selector, port } = Target::of(owner, roles, only, warnings)?;
    let launch = launch::read(pod::engine_container(&Target::roles(roles, only).next()?.template)?);
    Some(Routing {
        selector,
        ports: vec![port],
        model_server: launch.engine.unwrap_or("vllm"),
        model_name: owner.name.clone(),
        target_model: launch.served_model.filter(|served| *served != owner.name),
    })
}

/// Pods that requests go to, and where they answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Picks leaders only.
    pub selector: labels::Labels,
    pub port: u16,
}

impl Target {
    fn roles(roles: &[Role], only: Option<ComponentType>) -> impl Iterator<Item = &Role> {
        roles.iter().filter(move |role| only.is_none_or(|only| role.labels[labels::COMPONENT_TYPE] == only.as_str()))
    }

    /// The leaders of `roles`, of `only` this type if one is given. Roles on another port than the first one's are left out: a
    /// pool has one set of ports for all its Pods. None without any role.
    pub(crate) fn of(
        owner: &Owner,
        roles: &[Role],
        only: Option<ComponentType>,
        warnings: &mut Vec<Warning>,
    ) -> Option<Self> {
        let first = Self::roles(roles, only).next()?;
        let mut selector = labels::of([(labels::SERVICE, owner.name.as_str()), (labels::WORKER_INDEX, "0")]);
        if let Some(only) = only {
            selector.insert(labels::COMPONENT_TYPE.to_owned(), only.as_str().to_owned());
        }
        if Self::roles(roles, only).any(|role| role.port != first.port) {
            selector.insert(labels::ROLE_NAME.to_owned(), first.name.clone());
            let message = format!(
                "roles answer on different ports: requests go to role {} (port {}) only",
                first.name, first.port
            );
            warnings.push(Warning::new(code::warning::PORTS_DIFFER, message));
        }
        Some(Self { selector, port: first.port })
    }
}
