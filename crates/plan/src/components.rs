//! A service of `ome.io` becomes a topology: engine, decoder and router, each from the runtime's template, the class's
//! tuning and the service's own wishes (selection.md, Merging).

mod engine;
mod metadata;
mod places;
mod pod_spec;
mod replicas;
mod router;

use std::collections::BTreeMap;

use api::ome::{Component, InferenceServiceSpec, ServingRuntimeSpec};
use decide::demand::{self, ComponentDemand};
use decide::reason::Warning;
use decide::supply::RuntimeComponent;
use decide::variants::TokenRange;
use serde_json::Value;

use self::places::Stated;
use crate::code;
use crate::gang::{self, PodGroupSchema};
use crate::labels::{self, Labels};
use crate::launch;
use crate::names;
use crate::runner;
use crate::topology::{Autoscalers, Owner, Refusal, Role, Routing, Topology};

/// Port of a component that says nothing about it: upstream's.
const PORT: u16 = 8080;
const ENGINE: &str = "engine";
const DECODER: &str = "decoder";
const ROUTER: &str = "router";

/// Everything that was decided about a service.
#[derive(Debug, Clone)]
pub struct Decided<'a> {
    pub service: &'a InferenceServiceSpec,
    pub runtime: Option<NamedRuntime<'a>>,
    pub model: Option<NamedModel<'a>>,
    /// Which autoscalers the cluster has.
    pub autoscalers: Autoscalers,
    /// The engine, and the decoder where there is one.
    pub components: BTreeMap<demand::Component, Granted>,
}

#[derive(Debug, Clone, Copy)]
pub struct NamedRuntime<'a> {
    pub name: &'a str,
    pub spec: &'a ServingRuntimeSpec,
}

#[derive(Debug, Clone)]
pub struct NamedModel<'a> {
    pub name: &'a str,
    pub spec: &'a api::ome::BaseModelSpec,
    /// Annotation `models.ome.io/category`.
    pub category: Option<&'a str>,
    /// Label by which a model agent says that a node holds the files; None where no node says so.
    pub ready_nodes: Option<String>,
}

/// What one component runs on.
#[derive(Debug, Clone, Default)]
pub struct Granted {
    /// Facts that `decide` read from the runtime's and the service's part.
    pub offer: RuntimeComponent,
    pub demand: ComponentDemand,
    /// One, or one per class that serves requests of some sizes.
    pub sets: Vec<ReplicaSet>,
}

/// Equal replicas of one component.
#[derive(Debug, Clone, Default)]
pub struct ReplicaSet {
    /// None where the runtime's own resources stand.
    pub accelerators: Option<runner::Accelerators>,
    /// Prompt tokens that this set is for; None where it is the only one.
    pub request_tokens: Option<TokenRange>,
}

/// The layout of a service, with remarks. `schema` is what the cluster's PodGroups can say.
///
/// # Errors
/// The first thing that keeps the service from being laid out.
pub fn topology(
    owner: Owner,
    decided: &Decided<'_>,
    schema: PodGroupSchema,
) -> Result<(Topology, Vec<Warning>), Refusal> {
    let mut warnings = Vec::new();
    let parts: Vec<Part<'_>> = decided
        .components
        .iter()
        .map(|(component, granted)| Part { component: *component, stated: layers(decided, *component), granted })
        .collect();
    let together = together(&owner, &parts, &mut warnings)?;
    let mut roles = Vec::new();
    for part in &parts {
        roles.extend(engine::roles(&owner, decided, part, together.of(part), &mut warnings)?);
    }
    roles.extend(router::role(&owner, decided, &mut warnings)?);
    let (gang, weaker) = gang::of(&roles, None, schema);
    warnings.extend(weaker);
    let routing = routing(&owner, &roles, &mut warnings);
    let labels = labels::of([(labels::OME_SERVICE, names::label_value(&owner.name).as_str())]);
    Ok((Topology { owner, labels, roles, gang, routing, router: None }, warnings))
}

/// One component: what is stated of it, and what it was granted.
struct Part<'a> {
    component: demand::Component,
    stated: Stated,
    granted: &'a Granted,
}

impl Part<'_> {
    /// Pods of one replica of `set`.
    fn nodes(&self, set: &ReplicaSet) -> u32 {
        let decided = set.accelerators.as_ref().filter(|_| self.stated.has_workers());
        decided.map_or_else(|| self.stated.nodes(), |accelerators| accelerators.shape.nodes.max(1))
    }

    fn over_nodes(&self) -> bool {
        self.granted.sets.iter().any(|set| self.nodes(set) > 1)
    }
}

/// Which components' Pods are placed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Together {
    Nothing,
    /// The Pods of a replica over several nodes.
    Replicas,
    /// Engine and decoder.
    Pair,
}

impl Together {
    fn of(self, part: &Part<'_>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Replicas => part.over_nodes(),
            Self::Pair => true,
        }
    }
}

/// A replica over several nodes needs all of them, and with it the other half of its pair; whoever says so by
/// [`labels::GANG`] has a pair of single nodes together too, or nothing at all.
fn together(owner: &Owner, parts: &[Part<'_>], warnings: &mut Vec<Warning>) -> Result<Together, Refusal> {
    let (pair, several) = (parts.len() > 1, parts.iter().any(Part::over_nodes));
    let stated = match owner.annotations.get(labels::GANG).map(String::as_str) {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(other) => {
            let message = format!("metadata.annotations[{}]: \"{other}\" is neither true nor false", labels::GANG);
            return Err(Refusal::new(code::refusal::INVALID_ANNOTATION, message));
        }
    };
    if stated == Some(true) && !pair && !several {
        let message =
            format!("annotation {} has no effect: one engine of one node has nothing to wait for", labels::GANG);
        warnings.push(Warning::new(code::warning::FIELD_IGNORED, message));
    }
    Ok(match (stated, pair, several) {
        (Some(false), _, _) | (_, false, false) | (None, true, false) => Together::Nothing,
        (_, true, _) => Together::Pair,
        (_, false, true) => Together::Replicas,
    })
}

/// A service without an engine takes the runtime's as it is (Story 1).
fn layers(decided: &Decided<'_>, component: demand::Component) -> Stated {
    let (runtime, service) = (decided.runtime.map(|runtime| runtime.spec), decided.service);
    match component {
        demand::Component::Engine => Stated {
            runtime: runtime.map(runtime_engine).unwrap_or_default(),
            service: service.engine.clone().or_else(|| service.predictor.clone()).unwrap_or_default(),
        },
        demand::Component::Decoder => Stated {
            runtime: runtime.and_then(|spec| spec.decoder_config.clone()).unwrap_or_default(),
            service: service.decoder.clone().unwrap_or_default(),
        },
    }
}

/// `engineConfig`, or the deprecated pod fields of the runtime itself.
fn runtime_engine(spec: &ServingRuntimeSpec) -> Component {
    if let Some(engine) = &spec.engine_config {
        return engine.clone();
    }
    let main = spec
        .containers
        .iter()
        .find(|container| container["name"] == engine::CONTAINER)
        .or_else(|| spec.containers.first());
    let others: Vec<Value> = spec.containers.iter().filter(|container| Some(*container) != main).cloned().collect();
    let mut pod = spec.pod.clone();
    if !others.is_empty() {
        pod.insert("containers".to_owned(), Value::Array(others));
    }
    Component {
        runner: main.cloned(),
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

/// How pods of one component of one service are found.
fn selector(owner: &Owner, component: &str) -> Labels {
    labels::of([(labels::OME_SERVICE, names::label_value(&owner.name).as_str()), (labels::COMPONENT, component)])
}

/// The router where there is one, else the decoder, which can do a whole request by itself, else the engine. Clients say the service's name, the engine hears the name it knows.
fn routing(owner: &Owner, roles: &[Role], warnings: &mut Vec<Warning>) -> Option<Routing> {
    let first = |component: &str| roles.iter().find(|role| role.component == component);
    let engine = first(ENGINE)?;
    let front = first(ROUTER).or_else(|| first(DECODER)).unwrap_or(engine);
    if front.component == DECODER {
        let message = "engine and decoder have no router that pairs them; give the service a router, or name a runtime with routerConfig";
        warnings.push(Warning::new(code::warning::ROUTER_MISSING, message));
    }
    let mut beside = roles.iter().filter(|role| role.component == front.component);
    if let Some(other) = beside.find(|role| role.port != front.port) {
        let message = format!(
            "replica sets answer on different ports ({} and {}): requests go to port {} only",
            front.port, other.port, front.port
        );
        warnings.push(Warning::new(code::warning::PORTS_DIFFER, message));
    }
    let launch = launch::read(engine.template.pointer("/spec/containers/0")?);
    Some(Routing {
        selector: front.workload.answering(selector(owner, &front.component)),
        ports: vec![front.port],
        model_server: launch.engine.unwrap_or("vllm"),
        model_name: owner.name.clone(),
        target_model: launch.served_model.filter(|served| *served != owner.name),
    })
}
