//! Converts an `ome.io` service into a topology: engine, decoder and router. Each is merged from the runtime, the
//! accelerator configuration of the class, and the service (selection.md, Merging).

mod component_input;
mod default_router;
mod engine;
mod layout_input;
mod metadata;
mod pod_roles;
mod pod_spec;
mod router;
mod scaling;

use api::Duration;
use api::dual_pods::OME_ACTUATION;
use api::inference::{ScaleTargetKind, ScaleTargetRef, ScaleToZero};
use api::ome::{Component, ServingRuntimeSpec};
use decide::{Decision, Warning};
use serde_json::Value;

use self::component_input::ComponentInput;
use self::metadata::selector;
use self::pod_roles::ComponentSpecs;
pub(crate) use self::router::ROUTER;
use crate::adapters::{self, Adapter};
use crate::code;
use crate::dual_pods::DualPods;
use crate::gang::{self, PodGroupSchema};
use crate::labels;
use crate::launch::{self, LaunchInfo};
use crate::names;
use crate::owner::Owner;
use crate::plan_error::PlanError;
use crate::role::{Role, Workload};
use crate::topology::{RoutedModel, Routing, Topology};

pub(crate) use self::layout_input::{ComponentSelection, LayoutInput, ReplicaSet, SelectedModel, SelectedRuntime};

/// Maximum number of nodes of one replica, as of all Pods of a role-based service.
const MAX_NODES: u32 = 10_000;

/// How long requests wait for the first replica: engines load large models for minutes.
const START_TIMEOUT: Duration = Duration(std::time::Duration::from_secs(600));

const ENGINE: &str = "engine";
const DECODER: &str = "decoder";

/// Scope of gang scheduling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GangScope {
    /// No gang scheduling.
    None,
    /// The Pods of each multi-node replica.
    Replicas,
    /// Engine and decoder together.
    Pair,
}

// === impl GangScope ===

impl GangScope {
    /// Returns whether the Pods of `component` are members of the gang.
    fn contains(self, component: &ComponentInput<'_>) -> bool {
        match self {
            Self::None => false,
            Self::Replicas => component.is_multi_node(),
            Self::Pair => true,
        }
    }
}

/// Returns the topology of a service, with warnings. `schema` is the schema of the cluster's PodGroups,
/// `requester_image` the image of the requesters of dual pods.
///
/// # Errors
/// The first reason why the service cannot be planned.
pub(crate) fn topology(
    owner: Owner,
    input: &LayoutInput<'_>,
    schema: PodGroupSchema,
    requester_image: &str,
) -> Result<(Topology, Vec<Warning>), PlanError> {
    let mut warnings = Vec::new();
    let components: Vec<ComponentInput<'_>> = input
        .components
        .iter()
        .map(|(component, selection)| ComponentInput {
            component: *component,
            specs: component_specs(input, *component),
            selection,
        })
        .collect();
    let gang_scope = gang_scope(&owner, &components, &mut warnings)?;
    let mut roles = Vec::new();
    for component in &components {
        roles.extend(engine::roles(&owner, input, component, gang_scope.contains(component), &mut warnings)?);
    }
    let dual_pods = DualPods { key: OME_ACTUATION, image: requester_image, engine_index: |_| 0 };
    dual_pods.add_requesters(&owner, &mut roles)?;
    roles.extend(router::router_role(&owner, input, &roles, &mut warnings)?);
    let (gang, gang_warning) = gang::build_gang(&roles, None, schema);
    warnings.extend(gang_warning);
    let routing = routing(&owner, &roles, &input.adapters, &mut warnings);
    let labels = labels::from_pairs([(labels::OME_SERVICE, names::label_value(&owner.name).as_str())]);
    Ok((Topology { owner, labels, roles, gang, routing, router: None }, warnings))
}

/// Limits the number of nodes of a replica, each of which is a Pod.
///
/// # Errors
/// A component has more nodes.
pub(crate) fn validate_size(decision: &Decision) -> Result<(), PlanError> {
    for (name, component) in &decision.components {
        let variants = component.variants.iter().map(|variant| variant.nodes);
        let nodes = variants.fold(component.nodes, u32::max);
        if nodes > MAX_NODES {
            return Err(PlanError::new(
                code::error::TOO_MANY_PODS,
                format!(
                    "spec.{name}: a replica has {nodes} nodes, more than the limit of {MAX_NODES}; reduce worker.size of the service \
                     or of its runtime"
                ),
            ));
        }
    }
    Ok(())
}

/// Returns the scope of gang scheduling. By default, multi-node replicas are scheduled as a gang, together with the other
/// component of a pair. The annotation [`labels::GANG`] extends this to single-node pairs, or disables it.
fn gang_scope(
    owner: &Owner,
    components: &[ComponentInput<'_>],
    warnings: &mut Vec<Warning>,
) -> Result<GangScope, PlanError> {
    let is_pair = components.len() > 1;
    let is_multi_node = components.iter().any(ComponentInput::is_multi_node);
    let requested = match owner.annotations.get(labels::GANG).map(String::as_str) {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(value) => {
            let message =
                format!("metadata.annotations[{}]: invalid value \"{value}\": must be true or false", labels::GANG);
            return Err(PlanError::new(code::error::INVALID_ANNOTATION, message));
        }
    };
    if requested == Some(true) && !is_pair && !is_multi_node {
        let message =
            format!("Annotation {} has no effect: the service has only one engine with one node", labels::GANG);
        warnings.push(Warning::new(code::warning::FIELD_IGNORED, message));
    }
    Ok(match (requested, is_pair, is_multi_node) {
        (Some(false), _, _) | (_, false, false) | (None, true, false) => GangScope::None,
        (_, true, _) => GangScope::Pair,
        (_, false, true) => GangScope::Replicas,
    })
}

/// Returns the specifications of a component. A service without `engine` uses the engine of the runtime (seed 000,
/// Story 1).
fn component_specs(input: &LayoutInput<'_>, component: decide::Component) -> ComponentSpecs {
    let (runtime, service) = (input.runtime.map(|runtime| runtime.spec), input.service);
    match component {
        decide::Component::Engine => ComponentSpecs {
            runtime: runtime.map(runtime_engine_spec).unwrap_or_default(),
            service: service.engine.clone().or_else(|| service.predictor.clone()).unwrap_or_default(),
        },
        decide::Component::Decoder => ComponentSpecs {
            runtime: runtime.and_then(|spec| spec.decoder_config.clone()).unwrap_or_default(),
            service: service.decoder.clone().unwrap_or_default(),
        },
    }
}

/// Returns `engineConfig`, or the deprecated Pod fields of the runtime spec.
fn runtime_engine_spec(spec: &ServingRuntimeSpec) -> Component {
    if let Some(engine) = &spec.engine_config {
        return engine.clone();
    }
    let main_container = spec
        .containers
        .iter()
        .find(|container| container["name"] == engine::CONTAINER)
        .or_else(|| spec.containers.first());
    let sidecars: Vec<Value> =
        spec.containers.iter().filter(|container| Some(*container) != main_container).cloned().collect();
    let mut pod = spec.pod.clone();
    if !sidecars.is_empty() {
        pod.insert("containers".to_owned(), Value::Array(sidecars));
    }
    Component {
        runner: main_container.cloned(),
        node_selector: spec.node_selector.clone(),
        affinity: spec.affinity.clone(),
        tolerations: spec.tolerations.clone(),
        volumes: spec.volumes.clone(),
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
        pod,
        ..Component::default()
    }
}

/// Returns the routing of a service. Requests go to the router; without a router to the decoder, which can process
/// complete requests; otherwise to the engine. Clients use the service's name as the model name; the gateway replaces
/// it with the engine's. [`crate::roles`] has the rule for role-based services.
fn routing(owner: &Owner, roles: &[Role], adapters: &[Adapter], warnings: &mut Vec<Warning>) -> Option<Routing> {
    let find = |component: &str| roles.iter().find(|role| role.component == component);
    let engine = find(ENGINE)?;
    let serving_role = find(ROUTER).or_else(|| find(DECODER)).unwrap_or(engine);
    if serving_role.component == DECODER {
        let message = "The service has an engine and a decoder but no router: add spec.router, or use a runtime with routerConfig";
        warnings.push(Warning::new(code::warning::ROUTER_MISSING, message));
    }
    let mut serving_roles = roles.iter().filter(|role| role.component == serving_role.component);
    if let Some(other) = serving_roles.find(|role| role.port != serving_role.port) {
        let message = format!(
            "Replica sets serve on different ports ({} and {}); requests are routed only to port {}",
            serving_role.port, other.port, serving_role.port
        );
        warnings.push(Warning::new(code::warning::PORTS_DIFFER, message));
    }
    let launch = launch::inspect(engine.template.pointer("/spec/containers/0")?);
    Some(Routing {
        selector: serving_role.serving_selector(selector(owner, &serving_role.component)),
        ports: vec![serving_role.port],
        model_server: launch.engine.unwrap_or("vllm"),
        models: routed_models(owner, adapters, &launch),
        scale_to_zero: scale_to_zero(owner, serving_role),
    })
}

/// Returns what the gateway scales while the service receives no requests, if the service permits that.
fn scale_to_zero(owner: &Owner, role: &Role) -> Option<ScaleToZero> {
    let kind = match role.workload {
        Workload::Deployment => ScaleTargetKind::Deployment,
        Workload::LeaderWorkerSet | Workload::LeaderWorkerSetPerReplica => ScaleTargetKind::LeaderWorkerSet,
    };
    let target_ref = ScaleTargetRef { kind, name: names::workload(owner, role) };
    let idle_timeout = Some(role.replicas.idle_timeout?);
    Some(ScaleToZero { target_ref, idle_timeout, start_timeout: Some(START_TIMEOUT) })
}

/// Returns the models that clients may request: the service's name, and the names of its adapters. The name of a service with one
/// adapter, or with one of the same name, selects this adapter, because its users expect the fine-tuned model.
fn routed_models(owner: &Owner, adapters: &[Adapter], launch: &LaunchInfo) -> Vec<RoutedModel> {
    let base = launch.served_model.clone().unwrap_or_else(|| owner.name.clone());
    let target = |adapter| adapters::target_model(adapter, launch.engine.unwrap_or("vllm"), &base);
    let namesake = adapters.iter().find(|adapter| adapter.name == owner.name);
    let service_target = match (namesake, adapters) {
        (Some(adapter), _) | (None, [adapter]) => target(adapter),
        _ => base.clone(),
    };
    let service = RoutedModel { name: owner.name.clone(), target: service_target };
    let others = adapters.iter().filter(|adapter| adapter.name != owner.name);
    let others = others.map(|adapter| RoutedModel { name: adapter.name.clone(), target: target(adapter) });
    std::iter::once(service).chain(others).collect()
}
