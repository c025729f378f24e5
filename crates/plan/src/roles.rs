//! Converts a role-based service (`fusioninfer.io`, seed 002) into a topology.

use std::collections::BTreeSet;

use api::dual_pods::FUSIONINFER_ACTUATION;
use api::fusioninfer::{ComponentType, InferenceService, Role as ApiRole};
use api::reserved_template_keys;
use decide::Warning;
use serde_json::Value;

use crate::code;
use crate::container_ports::{DuplicatePortName, duplicate_port_name, invalid_port};
use crate::dual_pods::DualPods;
use crate::engine_container::{engine_container, engine_container_index};
use crate::gang::{self, PodGroupSchema, VOLCANO, set_scheduler};
use crate::labels;
use crate::launch;
use crate::multinode;
use crate::names::LeaderWorkerSetNames;
use crate::owner::Owner;
use crate::plan_error::PlanError;
use crate::pool_target::PoolTarget;
use crate::replicas::ReplicaRange;
use crate::role::{Role, Workload};
use crate::router;
use crate::serving_port::DEFAULT_PORT;
use crate::topology::{RoutedModel, Routing, Topology};

/// Maximum number of Pods of one service: two per Node of the largest cluster that Kubernetes supports.
const MAX_PODS: u64 = 10_000;

/// Validates the roles of `service` by planning them without a cluster, and returns the warnings. `object` is the same service
/// as JSON.
///
/// # Errors
/// The first reason why the service cannot be planned.
pub fn validate_roles(object: &Value, service: &InferenceService) -> Result<Vec<Warning>, PlanError> {
    let result = topology(Owner::from_object(object), service, PodGroupSchema::default(), crate::DEFAULT_PICKER_IMAGE);
    result.map(|(_, warnings)| warnings)
}

/// Returns the topology of `service`, with warnings. Behavior depends on the component type, never on the role's name.
/// `image` is that of ostler, for endpoint pickers and the requesters of dual pods.
///
/// # Errors
/// The first reason why the service cannot be planned.
pub(crate) fn topology(
    owner: Owner,
    service: &InferenceService,
    schema: PodGroupSchema,
    image: &str,
) -> Result<(Topology, Vec<Warning>), PlanError> {
    let spec = &service.spec;
    validate_names(&spec.roles)?;
    validate_composed_names(&owner.name, &spec.roles)?;
    validate_size(&spec.roles)?;
    let mut warnings: Vec<Warning> = incomplete_pair_warning(&spec.roles).into_iter().collect();
    let strategy = spec.scheduling_strategy.clone().unwrap_or_default();
    let disaggregated = is_disaggregated(&spec.roles);
    let mut roles = Vec::new();
    for role in &spec.roles {
        warnings.extend(ignored_field_warnings(role));
        if role.component_type != ComponentType::Router {
            roles.push(engine_role(
                &owner,
                role,
                is_gang_member(role, disaggregated),
                strategy.scheduler_name.as_deref(),
            )?);
        }
    }
    let dual_pods = DualPods { key: FUSIONINFER_ACTUATION, image, engine_index: engine_container_index };
    dual_pods.add_requesters(&owner, &mut roles)?;
    let (gang, gang_warning) = gang::build_gang(&roles, strategy.gang_policy, schema);
    warnings.extend(gang_warning);
    let router_role = spec.roles.iter().find(|role| role.component_type == ComponentType::Router);
    let router =
        router_role.map(|role| router::build_router(&owner, role, &roles, image, &mut warnings)).transpose()?;
    // A router has a pool of its own.
    let routing = match router {
        Some(_) => None,
        None => routing(&owner, &roles, disaggregated, &mut warnings),
    };
    let labels = labels::from_pairs([(labels::SERVICE, owner.name.as_str())]);
    Ok((Topology { owner, labels, roles, gang, routing, router }, warnings))
}

/// Returns whether the service has separate roles for prefill and decode.
fn is_disaggregated(roles: &[ApiRole]) -> bool {
    let has_type = |kind| roles.iter().any(|role| role.component_type == kind);
    has_type(ComponentType::Prefiller) && has_type(ComponentType::Decoder)
}

/// Returns whether a role is scheduled as a gang: prefill and decode need each other, and multi-node replicas need all nodes.
fn is_gang_member(role: &ApiRole, disaggregated: bool) -> bool {
    let is_disaggregated_role = matches!(role.component_type, ComponentType::Prefiller | ComponentType::Decoder);
    disaggregated && is_disaggregated_role || role.node_count() > 1
}

fn validate_names(roles: &[ApiRole]) -> Result<(), PlanError> {
    if roles.is_empty() {
        return Err(PlanError::new(code::error::NO_ROLES, "spec.roles is empty: add at least one role"));
    }
    let mut names = BTreeSet::new();
    for (index, role) in roles.iter().enumerate() {
        if !names.insert(&role.name) {
            return Err(PlanError::new(
                code::error::DUPLICATE_ROLE,
                format!("spec.roles[{index}].name: duplicate role name {}", role.name),
            ));
        }
    }
    let routers = roles.iter().enumerate().filter(|(_, role)| role.component_type == ComponentType::Router);
    match routers.map(|(index, _)| index).nth(1) {
        None => Ok(()),
        Some(index) => Err(PlanError::new(
            code::error::TWO_ROUTERS,
            format!("spec.roles[{index}].componentType: a service can have only one router"),
        )),
    }
}

/// Checks that the object names of different roles do not collide.
fn validate_composed_names(service: &str, roles: &[ApiRole]) -> Result<(), PlanError> {
    let engines = roles.iter().filter(|role| role.component_type != ComponentType::Router);
    let mut previous: Vec<(&str, LeaderWorkerSetNames)> = Vec::new();
    for role in engines {
        let own_names = LeaderWorkerSetNames::new(service, role);
        if let Some((other, name)) =
            previous.iter().find_map(|(other, names)| Some((*other, own_names.conflict(names)?)))
        {
            let message = format!("spec.roles: roles {other} and {} would both create {name}", role.name);
            return Err(PlanError::new(code::error::NAME_CLASH, message));
        }
        previous.push((&role.name, own_names));
    }
    Ok(())
}

/// Warns about a prefiller without a decoder, or a decoder without a prefiller, which serves requests like a worker.
fn incomplete_pair_warning(roles: &[ApiRole]) -> Option<Warning> {
    let find = |kind| roles.iter().find(|role| role.component_type == kind);
    let (role, missing) = match (find(ComponentType::Prefiller), find(ComponentType::Decoder)) {
        (Some(role), None) => (role, ComponentType::Decoder),
        (None, Some(role)) => (role, ComponentType::Prefiller),
        _ => return None,
    };
    let (kind, missing) = (role.component_type.as_str(), missing.as_str());
    let message = format!(
        "Role {} is a {kind} without a {missing}: add a role of type {missing}, or change the type to worker",
        role.name
    );
    Some(Warning::new(code::warning::PAIR_INCOMPLETE, message))
}

/// Limits the number of Pods. Every replica is a separate object, so the number of replicas determines the cost of
/// planning.
fn validate_size(roles: &[ApiRole]) -> Result<(), PlanError> {
    let count = |number: i32| u64::from(number.max(0).unsigned_abs());
    let pods = roles.iter().map(|role| count(role.replica_count()).saturating_mul(count(role.node_count())));
    let pods = pods.fold(0, u64::saturating_add);
    if pods > MAX_PODS {
        return Err(PlanError::new(
            code::error::TOO_MANY_PODS,
            format!(
                "spec.roles: replicas × nodeCount is {pods} Pods, more than the limit of {MAX_PODS}; split the service"
            ),
        ));
    }
    Ok(())
}

/// Returns a role that runs engines.
fn engine_role(owner: &Owner, role: &ApiRole, gang: bool, scheduler: Option<&str>) -> Result<Role, PlanError> {
    let (mut template, port) = validated_template(role)?;
    set_scheduler(&mut template, scheduler.or(gang.then_some(VOLCANO))).map_err(|other| {
        let message = format!(
            "role {}, template.spec.schedulerName: {other} conflicts with {}, which schedulingStrategy.schedulerName or the gang requires; remove the field",
            role.name,
            scheduler.unwrap_or(VOLCANO)
        );
        PlanError::new(code::error::SCHEDULER_CONFLICT, message)
    })?;
    let selector =
        labels::from_pairs([(labels::SERVICE, owner.name.as_str()), (labels::ROLE_NAME, role.name.as_str())]);
    let mut object_labels = selector.clone();
    object_labels.insert(labels::COMPONENT_TYPE.to_owned(), role.component_type.as_str().to_owned());
    labels::set_on_template(&mut template, "labels", &object_labels);
    object_labels.extend(owner.queue_label());
    let nodes = role.node_count().max(1).unsigned_abs();
    let (template, worker) = leader_and_worker_templates(template, nodes, role, port)?;
    let spread = role.multinode.as_ref().and_then(|multinode| multinode.spread);
    Ok(Role {
        name: role.name.clone(),
        component: role.name.clone(),
        workload: Workload::LeaderWorkerSetPerReplica,
        replicas: ReplicaRange::fixed(role.replica_count().max(0).unsigned_abs()),
        nodes,
        template,
        worker_template: worker,
        in_gang: gang,
        spread_over_hosts: nodes > 1 && spread == Some(true),
        selector,
        labels: object_labels,
        service_selector: None,
        disruption: None,
        port,
        strategy: None,
        settings: Vec::new(),
        requesters: None,
    })
}

/// Validates the Pod template of a role and returns it with the port of its engine.
fn validated_template(role: &ApiRole) -> Result<(Value, u16), PlanError> {
    let invalid = |cause: &str| PlanError::new(code::error::INVALID_TEMPLATE, format!("role {}, {cause}", role.name));
    let template = role.template.clone().ok_or_else(|| invalid("template: required for roles that run engines"))?;
    let container = engine_container(&template)
        .ok_or_else(|| invalid("template.spec.containers: at least one container is required"))?;
    if container["image"].as_str().is_none_or(str::is_empty) {
        let containers = template.pointer("/spec/containers").and_then(Value::as_array);
        let index = containers
            .and_then(|containers| containers.iter().position(|other| other == container))
            .unwrap_or_default();
        return Err(invalid(&format!("template.spec.containers[{index}].image: required")));
    }
    if let Some(message) = invalid_port(&template["spec"]) {
        return Err(invalid(&format!("template: {message}")));
    }
    if let Some(DuplicatePortName { container, name, ports: [first, second] }) = duplicate_port_name(&template["spec"])
    {
        return Err(invalid(&format!(
            "template.spec.containers[{container}].ports: ports {first} and {second} have the same name {name}; rename one"
        )));
    }
    if let Some(name) = launch::variables::undefined_variable(container) {
        let message = format!(
            "role {}, template.spec.containers: the command refers to $({name}), which is not defined; define {name} in env",
            role.name
        );
        return Err(PlanError::new(code::error::UNDEFINED_VARIABLE, message));
    }
    let port = launch::port(container, DEFAULT_PORT);
    if let Some((field, key)) = reserved_template_keys(&template).next() {
        let message = format!(
            "role {}, template.metadata.{field}[{key}]: the prefix of this key is reserved for the operator; use a key with another prefix",
            role.name
        );
        return Err(PlanError::new(code::error::RESERVED_METADATA, message));
    }
    Ok((template, port))
}

/// Returns the template of the leader and, for multi-node replicas, of the workers.
fn leader_and_worker_templates(
    template: Value,
    nodes: u32,
    role: &ApiRole,
    port: u16,
) -> Result<(Value, Option<Value>), PlanError> {
    if nodes == 1 {
        return Ok((template, None));
    }
    let backend = role.multinode.as_ref().and_then(|multinode| multinode.backend);
    let templates = multinode::expand_template(&template, nodes, backend, port)
        .map_err(|error| PlanError { message: format!("role {}, {}", role.name, error.message), ..error })?;
    Ok((templates.leader, Some(templates.worker)))
}

/// Warns about fields that have no effect on a role of this type (TOP-10).
fn ignored_field_warnings(role: &ApiRole) -> Vec<Warning> {
    let kind = role.component_type.as_str();
    let warning = |field: &str, details: &str| {
        Warning::new(code::warning::FIELD_IGNORED, format!("Role {}: {field} has no effect{details}", role.name))
    };
    if role.component_type != ComponentType::Router {
        let fields = [
            ("strategy", role.strategy.is_some()),
            ("httproute", role.httproute.is_some()),
            ("gateway", role.gateway.is_some()),
            ("endpointPickerConfig", role.endpoint_picker_config.is_some()),
        ];
        let ignored = fields.into_iter().filter(|(_, is_set)| *is_set);
        return ignored.map(|(field, _)| warning(field, &format!(" on a {kind}; set it on a router role"))).collect();
    }
    let fields = [
        ("replicas", role.replicas.is_some()),
        ("multinode", role.multinode.is_some()),
        ("template", role.template.is_some()),
        ("maxUnavailable", role.max_unavailable.is_some()),
    ];
    let ignored = fields.into_iter().filter(|(_, is_set)| *is_set);
    let gateway = role
        .gateway
        .is_some()
        .then(|| warning("gateway", ": the operator does not create Gateways; add a Gateway to httproute.parentRefs"));
    ignored
        .map(|(field, _)| warning(field, " on a router; set it on the roles that run engines"))
        .chain(gateway)
        .collect()
}

/// Returns whether all roles are prefillers or decoders. By default the gateway selects by role, and workers would receive
/// requests as decoders do.
fn is_only_pair(roles: &[Role]) -> bool {
    let component_types = [ComponentType::Prefiller, ComponentType::Decoder].map(ComponentType::as_str);
    roles.iter().all(|role| component_types.contains(&role.labels[labels::COMPONENT_TYPE].as_str()))
}

/// Returns the routing of a service without a router to its leaders. The pool of a pair contains prefillers and decoders only if the gateway
/// distinguishes them, otherwise the decoders, which can process complete requests. [`crate::components`] has the rule for
/// `ome.io`.
fn routing(owner: &Owner, roles: &[Role], disaggregated: bool, warnings: &mut Vec<Warning>) -> Option<Routing> {
    let component_type = disaggregated.then_some(ComponentType::Decoder);
    let target = match disaggregated && is_only_pair(roles) {
        true => PoolTarget::select_pair(owner, roles, warnings)?,
        false => PoolTarget::select(owner, roles, component_type, warnings)?,
    };
    if disaggregated {
        warnings.push(router_missing_warning(roles, &target));
    }
    let launch = launch::inspect(engine_container(&PoolTarget::roles(roles, component_type).next()?.template)?);
    Some(Routing {
        selector: target.selector,
        ports: vec![target.port],
        model_server: launch.engine.unwrap_or("vllm"),
        models: vec![RoutedModel {
            name: owner.name.clone(),
            target: launch.served_model.unwrap_or_else(|| owner.name.clone()),
        }],
        scale_to_zero: None,
    })
}

/// Warns about prefillers and decoders without a router, and names the roles that `pool` excludes.
fn router_missing_warning(roles: &[Role], pool: &PoolTarget) -> Warning {
    let names = |selected: bool| -> Vec<&str> {
        roles.iter().filter(|role| pool.contains(role) == selected).map(|role| role.name.as_str()).collect()
    };
    let (selected, excluded) = (names(true).join(", "), names(false).join(", "));
    let effect = if excluded.is_empty() {
        "only ostler's gateway sends prompts to prefillers and then to decoders, other gateways do not distinguish them"
            .to_owned()
    } else {
        format!("requests are routed to {selected}, and never to {excluded}")
    };
    let message = format!(
        "The service has prefillers and decoders but no router: {effect}; add a role with `componentType: router` and \
         `strategy: pd-disaggregation`"
    );
    Warning::new(code::warning::ROUTER_MISSING, message)
}
