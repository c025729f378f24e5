//! A service of `ome.io` becomes a topology: the runtime's component, the class's tuning and the service's own wishes in
//! one pod template (selection.md, Merging).

use api::ome::{Component, InferenceServiceSpec, ScaleMetric as ApiMetric, ServingRuntimeSpec};
use decide::demand::ComponentDemand;
use decide::reason::Warning;
use decide::supply::RuntimeComponent;
use serde_json::{Map, Value, json};

use crate::labels::{self, Labels};
use crate::launch;
use crate::model_files::{self, ModelFiles};
use crate::names;
use crate::pod;
use crate::probe;
use crate::roles::queue_name;
use crate::runner::{self, Layers};
use crate::template;
use crate::topology::{Owner, Refusal, Replicas, Role, Routing, ScaleMetric, Topology, Workload};

/// Port of an engine that says nothing about it: upstream's.
const PORT: u16 = 8080;
/// Name of the main container where neither runtime nor service gives one.
const CONTAINER: &str = "ome-container";
const ENGINE: &str = "engine";

/// Everything that was decided about a service.
#[derive(Debug, Clone)]
pub struct Decided<'a> {
    pub service: &'a InferenceServiceSpec,
    pub runtime: Option<NamedRuntime<'a>>,
    pub model: Option<NamedModel<'a>>,
    /// Facts that `decide` read from the runtime's and the service's engine.
    pub offer: &'a RuntimeComponent,
    pub demand: &'a ComponentDemand,
    /// The engine's accelerators; None where the runtime's own resources stand.
    pub accelerators: Option<runner::Accelerators>,
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

/// The layout of a single-node engine, with remarks.
///
/// # Errors
/// The first thing that keeps the service from being laid out.
pub fn topology(owner: Owner, decided: &Decided<'_>) -> Result<(Topology, Vec<Warning>), Refusal> {
    if !names::is_dns_1035(&owner.name) {
        let message =
            format!("metadata.name: Service {} needs a name of a-z, 0-9 and -, beginning with a letter", owner.name);
        return Err(Refusal::new("InvalidName", message));
    }
    let (base, over) = layers(decided);
    refuse_unsupported(decided, &base, &over)?;
    let mut warnings = Vec::new();
    let role = engine(&owner, decided, &base, &over, &mut warnings)?;
    let routing = routing(&owner, &role);
    Ok((Topology { owner, roles: vec![role], gang: None, routing }, warnings))
}

/// The runtime's engine and the service's; a service without one takes the runtime's as it is (Story 1).
fn layers(decided: &Decided<'_>) -> (Component, Component) {
    let base = decided.runtime.map(|runtime| runtime_engine(runtime.spec)).unwrap_or_default();
    let service = decided.service;
    let over = service.engine.clone().or_else(|| service.predictor.clone()).unwrap_or_default();
    (base, over)
}

/// `engineConfig`, or the deprecated pod fields of the runtime itself.
fn runtime_engine(spec: &ServingRuntimeSpec) -> Component {
    if let Some(engine) = &spec.engine_config {
        return engine.clone();
    }
    let main =
        spec.containers.iter().find(|container| container["name"] == CONTAINER).or_else(|| spec.containers.first());
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

fn refuse_unsupported(decided: &Decided<'_>, base: &Component, over: &Component) -> Result<(), Refusal> {
    let runtime = decided.runtime.map(|runtime| runtime.spec);
    let has = |of: fn(&ServingRuntimeSpec) -> bool| runtime.is_some_and(of);
    if decided.service.decoder.is_some() || has(|spec| spec.decoder_config.is_some()) {
        return Err(Refusal::not_supported("an engine with a decoder"));
    }
    if decided.service.router.is_some() || has(|spec| spec.router_config.is_some()) {
        return Err(Refusal::not_supported("a router"));
    }
    if [base, over].iter().any(|layer| layer.leader.is_some() || layer.worker.is_some()) {
        return Err(Refusal::not_supported("an engine of leader and worker"));
    }
    Ok(())
}

fn engine(
    owner: &Owner,
    decided: &Decided<'_>,
    base: &Component,
    over: &Component,
    warnings: &mut Vec<Warning>,
) -> Result<Role, Refusal> {
    let mut spec = pod_fields(base);
    pod::overlay_map(&mut spec, &pod_fields(over));
    let layers = Layers {
        runtime: base,
        service: over,
        offer: decided.offer,
        demand: decided.demand,
        accelerators: decided.accelerators.as_ref(),
    };
    let mut container = runner::container(&layers, warnings);
    complete_container(&mut container, owner, decided, warnings)?;
    let port = launch::port(&container, PORT);
    if container["ports"].as_array().is_none_or(Vec::is_empty) {
        container["ports"] = json!([{"containerPort": port, "name": "http", "protocol": "TCP"}]);
    }
    if container.get("readinessProbe").is_none() {
        container["readinessProbe"] = probe::readiness(&launch::read(&container), port);
    }
    spec.extend(runner::placement(&layers, warnings));
    let mut spec = Value::Object(spec);
    mount_model(&mut spec, &mut container, decided);
    put_first(&mut spec, container);
    substitute_sidecars(&mut spec, owner, warnings);
    let selector =
        labels::of([(labels::OME_SERVICE, names::label_value(&owner.name).as_str()), (labels::COMPONENT, ENGINE)]);
    let mut object_labels = selector.clone();
    object_labels.extend(queue_name(owner));
    Ok(Role {
        name: ENGINE.to_owned(),
        workload: Workload::Deployment,
        replicas: replicas(base, over, warnings),
        nodes: 1,
        worker: None,
        gang: false,
        spread: false,
        template: json!({"metadata": metadata(decided, base, over, &selector), "spec": spec}),
        selector,
        labels: object_labels,
        port,
        strategy: over.deployment_strategy.clone().or_else(|| base.deployment_strategy.clone()),
    })
}

/// The fields of a component that are a PodSpec's; everything else of it is ours.
fn pod_fields(component: &Component) -> Map<String, Value> {
    let mut fields = component.pod.clone();
    for (name, list) in [("tolerations", &component.tolerations), ("volumes", &component.volumes)] {
        if !list.is_empty() {
            fields.insert(name.to_owned(), Value::Array(list.clone()));
        }
    }
    fields
}

/// Name, image, template variables and the variables that every engine may count on.
fn complete_container(
    container: &mut Value,
    owner: &Owner,
    decided: &Decided<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    if container["image"].as_str().is_none_or(str::is_empty) {
        let message =
            "neither runtime nor service gives the engine an image: set engine.runner.image, or name a runtime";
        return Err(Refusal::new("NoEngineContainer", message));
    }
    if container["name"].as_str().is_none_or(str::is_empty) {
        container["name"] = json!(CONTAINER);
    }
    substitute(container, owner, warnings);
    let files = model_of(decided);
    let parallelism = runner::parallelism(container, decided.accelerators.as_ref());
    let variables = [
        ("MODEL_PATH", files.map(|files| files.path)),
        ("INFERENCESERVICE_NAME", Some(owner.name.clone())),
        ("NAMESPACE", Some(owner.namespace.clone())),
        ("PARALLELISM_SIZE", Some(parallelism.to_string())),
        ("SERVED_MODEL_NAME", Some(owner.name.clone())),
    ];
    for (name, value) in variables {
        if let Some(value) = value {
            pod::add_if_absent(container, "env", "name", json!({"name": name, "value": value}));
        }
    }
    Ok(())
}

fn model_of(decided: &Decided<'_>) -> Option<ModelFiles> {
    model_files::of(decided.model?.spec.storage.as_ref())
}

/// The model's directory, read-only, unless the user mounts something there.
fn mount_model(spec: &mut Value, container: &mut Value, decided: &Decided<'_>) {
    let Some(model) = decided.model else { return };
    let Some((mut volume, path)) = model_of(decided).and_then(|files| files.volume) else { return };
    let name = model_files::volume_name(model.name);
    volume["name"] = json!(name);
    pod::add_if_absent(spec, "volumes", "name", volume);
    pod::add_if_absent(
        container,
        "volumeMounts",
        "mountPath",
        json!({"name": name, "mountPath": path, "readOnly": true}),
    );
}

/// The engine first, sidecars after it. A sidecar of the engine's name is the engine seen twice (upstream's habit).
fn put_first(spec: &mut Value, container: Value) {
    let sidecars = spec["containers"].as_array().cloned().unwrap_or_default();
    let others = sidecars.into_iter().filter(|sidecar| sidecar["name"] != container["name"]).collect::<Vec<_>>();
    spec["containers"] = Value::Array([vec![container], others].concat());
}

fn substitute_sidecars(spec: &mut Value, owner: &Owner, warnings: &mut Vec<Warning>) {
    for field in ["containers", "initContainers"] {
        // The engine was done before; its remaining braces are not ours and stay.
        let skip = usize::from(field == "containers");
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        containers.into_iter().flatten().skip(skip).for_each(|container| substitute(container, owner, warnings));
    }
}

fn substitute(container: &mut Value, owner: &Owner, warnings: &mut Vec<Warning>) {
    let mut missing = Vec::new();
    template::substitute(container, owner, &mut missing);
    let told = |key| {
        Warning::new(
            "TemplateValueMissing",
            format!("metadata.{key} is not set on the service; the template variable is empty"),
        )
    };
    warnings.extend(missing.into_iter().map(told));
}

/// User's labels and annotations below ours: ours are how pods are found.
fn metadata(decided: &Decided<'_>, base: &Component, over: &Component, selector: &Labels) -> Value {
    let mut labels: Labels = base.labels.clone();
    labels.extend(over.labels.clone());
    let mut annotations: Labels = base.annotations.clone();
    annotations.extend(over.annotations.clone());
    if let Some(runtime) = decided.runtime {
        labels.insert("serving-runtime".to_owned(), names::label_value(runtime.name));
        annotations.insert("ome.io/serving-runtime".to_owned(), runtime.name.to_owned());
    }
    if let Some(model) = decided.model {
        let vendor = model.spec.vendor.as_deref();
        labels.insert("base-model-name".to_owned(), names::label_value(model.name));
        labels.insert("base-model-size".to_owned(), names::label_value(model.category.unwrap_or("SMALL")));
        labels.insert("base-model-type".to_owned(), "Serving".to_owned());
        labels.extend(vendor.map(|vendor| ("base-model-vendor".to_owned(), names::label_value(vendor))));
        let format = model.spec.model_format.as_ref();
        let facts = [
            ("name", Some(model.name.to_owned())),
            ("vendor", vendor.map(str::to_owned)),
            ("format", format.map(|format| format.name.clone())),
            ("format-version", format.and_then(|format| format.version.clone())),
        ];
        annotations
            .extend(facts.into_iter().filter_map(|(key, value)| Some((format!("ome.io/base-model-{key}"), value?))));
    }
    labels.extend(selector.clone());
    let mut metadata = json!({"labels": labels});
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    metadata
}

/// The service's own numbers win over the runtime's; a service that fixes `min` above the runtime's `max` lifts it.
fn replicas(base: &Component, over: &Component, warnings: &mut Vec<Warning>) -> Replicas {
    let count = |value: Option<i32>| value.map(|value| value.max(0).unsigned_abs());
    let mut min = count(over.min_replicas.or(base.min_replicas)).unwrap_or(1);
    if min == 0 {
        warnings.push(Warning::new(
            "ScaleToZeroUnavailable",
            "minReplicas 0: nothing here wakes an engine yet, one replica stays",
        ));
        min = 1;
    }
    let mut max = count(over.max_replicas.or(base.max_replicas)).unwrap_or(min).max(min);
    let metric = match over.scale_metric.or(base.scale_metric).unwrap_or_default() {
        ApiMetric::Cpu => ScaleMetric::Cpu,
        ApiMetric::Memory => ScaleMetric::Memory,
        ApiMetric::Concurrency | ApiMetric::Rps => {
            if max > min {
                let message = format!("scaleMetric needs KEDA, which is not supported yet: {min} replicas, not scaled");
                warnings.push(Warning::new("AutoscalerUnavailable", message));
            }
            max = min;
            ScaleMetric::Cpu
        }
    };
    let target = count(over.scale_target.or(base.scale_target)).unwrap_or(80);
    Replicas { min, max, metric, target }
}

fn routing(owner: &Owner, role: &Role) -> Option<Routing> {
    let launch = launch::read(role.template.pointer("/spec/containers/0")?);
    Some(Routing {
        selector: role.selector.clone(),
        ports: vec![role.port],
        model_server: launch.engine.unwrap_or("vllm"),
        model_name: owner.name.clone(),
        target_model: launch.served_model.filter(|served| *served != owner.name),
        labels: labels::of([(labels::OME_SERVICE, names::label_value(&owner.name).as_str())]),
    })
}
