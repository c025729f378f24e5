//! A service of `ome.io` becomes a topology: engine, decoder and router, each from the runtime's template, the class's
//! tuning and the service's own wishes (selection.md, Merging).

mod engine;
mod metadata;
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

use crate::code;
use crate::labels::{self, Labels};
use crate::launch;
use crate::names;
use crate::runner;
use crate::topology::{Owner, Refusal, Role, Routing, Topology};

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
    /// The engine, and the decoder where there is one.
    pub components: BTreeMap<demand::Component, Granted>,
}

#[derive(Debug, Clone, Copy)]
pub struct NamedRuntime<'a> {
    pub name: &'a str,
    pub spec: &'a ServingRuntimeSpec,
}

#[derive(Debug, Clone, Copy)]
pub struct NamedModel<'a> {
    pub name: &'a str,
    pub spec: &'a api::ome::BaseModelSpec,
    /// Annotation `models.ome.io/category`.
    pub category: Option<&'a str>,
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

/// The layout of a service of single-node components, with remarks.
///
/// # Errors
/// The first thing that keeps the service from being laid out.
pub fn topology(owner: Owner, decided: &Decided<'_>) -> Result<(Topology, Vec<Warning>), Refusal> {
    let mut warnings = Vec::new();
    let mut roles = Vec::new();
    for (component, granted) in &decided.components {
        let layers = layers(decided, *component);
        refuse_several_nodes(*component, &layers)?;
        roles.extend(engine::roles(&owner, decided, *component, &layers, granted, &mut warnings)?);
    }
    roles.extend(router::role(&owner, decided, &mut warnings)?);
    let routing = routing(&owner, &roles, &mut warnings);
    Ok((Topology { owner, roles, gang: None, routing }, warnings))
}

/// One component as the runtime and as the service state it.
struct Stated {
    runtime: Component,
    service: Component,
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

fn refuse_several_nodes(component: demand::Component, stated: &Stated) -> Result<(), Refusal> {
    let several =
        [&stated.runtime, &stated.service].iter().any(|layer| layer.leader.is_some() || layer.worker.is_some());
    if several {
        return Err(Refusal::not_supported(format_args!(
            "{} {} of leader and worker",
            article(component),
            component.as_str()
        )));
    }
    Ok(())
}

fn article(component: demand::Component) -> &'static str {
    match component {
        demand::Component::Engine => "an",
        demand::Component::Decoder => "a",
    }
}

/// How pods of one component of one service are found.
fn selector(owner: &Owner, component: &str) -> Labels {
    labels::of([(labels::OME_SERVICE, names::label_value(&owner.name).as_str()), (labels::COMPONENT, component)])
}

/// The router where there is one, else the engine. Clients say the service's name, the engine hears the name it knows.
fn routing(owner: &Owner, roles: &[Role], warnings: &mut Vec<Warning>) -> Option<Routing> {
    let first = |component: &str| roles.iter().find(|role| role.component == component);
    let engine = first(ENGINE)?;
    let front = first(ROUTER).unwrap_or(engine);
    if front.component == ENGINE && first(DECODER).is_some() {
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
        selector: selector(owner, &front.component),
        ports: vec![front.port],
        model_server: launch.engine.unwrap_or("vllm"),
        model_name: owner.name.clone(),
        target_model: launch.served_model.filter(|served| *served != owner.name),
        labels: labels::of([(labels::OME_SERVICE, names::label_value(&owner.name).as_str())]),
    })
}
