//! Engine and decoder: containers on accelerators, with the model's files.

use decide::merge::origin::{Origin, Setting};
use decide::reason::Warning;
use serde_json::{Value, json};

use super::replicas::Scaling;
use super::{Decided, Part, ReplicaSet, metadata, pod_spec, selector};
use crate::code;
use crate::gang::{self, VOLCANO};
use crate::labels::{self, Labels};
use crate::launch;
use crate::launch::native::Place;
use crate::model_files::{self, ModelFiles};
use crate::multinode::{self, Rendezvous};
use crate::names;
use crate::pod;
use crate::probe;
use crate::roles::queue_name;
use crate::runner::{self, Layers};
use crate::topology::{Owner, Refusal, Role, Workload};

/// Name of the main container where neither runtime nor service gives one.
pub(super) const CONTAINER: &str = "ome-container";

/// One role per replica set: `engine`, or `engine-{class}` where several classes share the requests. In a gang every
/// replica is a group of a LeaderWorkerSet: the group's number tells Volcano which Pods are one replica.
pub(super) fn roles(
    owner: &Owner,
    decided: &Decided<'_>,
    part: &Part<'_>,
    gang: bool,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<Role>, Refusal> {
    let mut roles = Vec::new();
    for (index, set) in part.granted.sets.iter().enumerate() {
        let nodes = part.nodes(set);
        let mut role = Replicas { owner, decided, part, set, nodes, gang }.role(warnings)?;
        role.service = role.service.filter(|_| index == 0);
        roles.push(role);
    }
    Ok(roles)
}

/// Everything that one replica set is made from.
struct Replicas<'a> {
    owner: &'a Owner,
    decided: &'a Decided<'a>,
    part: &'a Part<'a>,
    set: &'a ReplicaSet,
    /// Pods of one replica.
    nodes: u32,
    gang: bool,
}

/// The Pods of one place of a replica.
struct Pods {
    template: Value,
    /// Where they answer; a worker answers nobody.
    port: u16,
    settings: Vec<Setting>,
}

impl Replicas<'_> {
    fn role(&self, warnings: &mut Vec<Warning>) -> Result<Role, Refusal> {
        let Part { stated, .. } = self.part;
        let leader = self.pods(Place::Leader, warnings)?;
        let mut settings = leader.settings;
        let worker = (self.nodes > 1).then(|| self.pods(Place::Worker, warnings)).transpose()?;
        let worker = worker.map(|worker| {
            settings = told_of_workers(std::mem::take(&mut settings), worker.settings);
            worker.template
        });
        self.tell_apart(&leader.template, worker.as_ref(), warnings);
        let own = self.selector();
        let mut object_labels = own.clone();
        object_labels.extend(queue_name(self.owner));
        let scaling = self.scaling(&leader.template);
        let strategy = stated.service.deployment_strategy.as_ref().or(stated.runtime.deployment_strategy.as_ref());
        let workload = if self.gang || stated.has_workers() { Workload::LeaderWorkerSet } else { Workload::Deployment };
        if let (Workload::LeaderWorkerSet, Some(_)) = (workload, strategy) {
            let message = format!("{}: deploymentStrategy has no effect on a LeaderWorkerSet", self.component());
            warnings.push(Warning::new(code::warning::FIELD_IGNORED, message));
        }
        Ok(Role {
            name: self.name(),
            component: self.component().to_owned(),
            workload,
            replicas: scaling.replicas(warnings),
            disruption: Some(scaling.disruption()),
            nodes: self.nodes,
            worker,
            gang: self.gang,
            spread: false,
            template: leader.template,
            selector: own,
            labels: object_labels,
            service: Some(selector(self.owner, self.component())),
            port: leader.port,
            strategy: strategy.cloned(),
            settings,
        })
    }

    fn scaling(&self, leader: &Value) -> Scaling<'_> {
        Scaling {
            owner: self.owner,
            spec: self.decided.service,
            runtime: &self.part.stated.runtime,
            service: &self.part.stated.service,
            component: self.component(),
            workload: names::component(&self.owner.name, &self.name()),
            engine: launch::read(&leader["spec"]["containers"][0]).engine,
            autoscalers: self.decided.autoscalers,
        }
    }

    fn component(&self) -> &'static str {
        self.part.component.as_str()
    }

    /// Finds the Pods of this replica set.
    fn selector(&self) -> Labels {
        let mut own = selector(self.owner, self.component());
        own.extend(self.variant_class().map(|class| (labels::ACCELERATOR_CLASS.to_owned(), class)));
        own
    }

    fn pods(&self, place: Place, warnings: &mut Vec<Warning>) -> Result<Pods, Refusal> {
        let Self { owner, set, part, .. } = self;
        let (stated, placement) = (part.stated.at(place), part.stated.placement(part.granted, place));
        let layers = Layers {
            runtime: &stated.runtime,
            service: &stated.service,
            offer: &placement.offer,
            demand: &placement.demand,
            accelerators: set.accelerators.as_ref(),
        };
        let merged = runner::container(&layers, warnings);
        let (mut container, mut settings) = (merged.container, merged.settings);
        self.complete(&mut container, &mut settings, warnings)?;
        let port = self.answer(&mut container, place);
        pod_spec::last_words(&mut container);
        if self.nodes > 1 && part.stated.workers_are_twins() && !multinode::joins(&container) {
            self.join(&mut container, place)?;
        }
        let mut placed = pod_spec::placed(&layers, &mut settings, warnings)?;
        self.mount_model(&mut placed, &mut container);
        let spec = pod_spec::around(container, placed, owner, warnings);
        let metadata = metadata::of(self.decided, &stated.runtime, &stated.service, set, &self.selector());
        warnings.extend(metadata::taken(&stated.service, self.component(), &metadata));
        let mut template = json!({"metadata": metadata, "spec": spec});
        self.schedule(&mut template)?;
        Ok(Pods { template, port, settings })
    }

    /// The port of the Pod that answers requests; workers that state their own containers are probed as they say.
    fn answer(&self, container: &mut Value, place: Place) -> u16 {
        match place {
            Place::Leader => {
                pod_spec::answer(container, |container, port| probe::readiness(&launch::read(container), port))
            }
            Place::Worker => launch::port(container, launch::usual_port(container).unwrap_or(super::PORT)),
        }
    }

    /// Whoever states one line for all nodes leaves it to us to say which of them a Pod is.
    fn join(&self, container: &mut Value, place: Place) -> Result<(), Refusal> {
        let told = |refusal: Refusal| {
            let message = format!("{}, {}", self.component(), refusal.message);
            Refusal { message, ..refusal }
        };
        Rendezvous::of(container, self.nodes, None).and_then(|one| one.start(container, place)).map_err(told)
    }

    /// Leader and workers with lines of their own, of which none names the others, would be engines apart.
    fn tell_apart(&self, leader: &Value, worker: Option<&Value>, warnings: &mut Vec<Warning>) {
        let joins = |template: &Value| multinode::joins(&template["spec"]["containers"][0]);
        if worker.is_none_or(|worker| joins(leader) || joins(worker)) {
            return;
        }
        let component = self.component();
        let message = format!(
            "{component}: nothing in the launch lines of leader and worker tells them of each other; use $(LWS_LEADER_ADDRESS) and $(LWS_WORKER_INDEX), or leave {component}.worker.runner's command and args out"
        );
        warnings.push(Warning::new(code::warning::NODES_NOT_JOINED, message));
    }

    fn schedule(&self, template: &mut Value) -> Result<(), Refusal> {
        gang::schedule(template, self.gang.then_some(VOLCANO)).map_err(|other| {
            let (component, gang) = (self.component(), labels::GANG);
            let message = format!(
                "{component}.schedulerName: {other} contradicts {VOLCANO}, which places the gang; remove it, or set annotation {gang} to \"false\""
            );
            Refusal::new(code::refusal::SCHEDULER_CONFLICT, message)
        })
    }

    /// The class, where it tells this set from another of the same component.
    fn variant_class(&self) -> Option<String> {
        self.set.request_tokens?;
        let class = self.set.accelerators.as_ref()?;
        Some(names::label_value(&class.class.name))
    }

    fn name(&self) -> String {
        match self.variant_class() {
            Some(class) => format!("{}-{}", self.component(), class.to_ascii_lowercase().replace(['.', '_'], "-")),
            None => self.component().to_owned(),
        }
    }

    /// Name, image, template variables and the variables that every engine may count on.
    fn complete(
        &self,
        container: &mut Value,
        settings: &mut Vec<Setting>,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), Refusal> {
        if container["image"].as_str().is_none_or(str::is_empty) {
            let component = self.component();
            let message = format!(
                "neither runtime nor service gives the {component} an image: set {component}.runner.image, or name a runtime"
            );
            return Err(Refusal::new(decide::code::outcome::NO_ENGINE_CONTAINER, message));
        }
        if container["name"].as_str().is_none_or(str::is_empty) {
            container["name"] = json!(CONTAINER);
        }
        pod::substitute(container, self.owner, warnings);
        let files = self.model();
        let parallelism = runner::parallelism(container, self.set.accelerators.as_ref(), self.nodes);
        let variables = [
            ("MODEL_PATH", files.map(|files| files.path)),
            ("INFERENCESERVICE_NAME", Some(self.owner.name.clone())),
            ("NAMESPACE", Some(self.owner.namespace.clone())),
            ("PARALLELISM_SIZE", Some(parallelism.to_string())),
            ("SERVED_MODEL_NAME", Some(self.owner.name.clone())),
        ];
        for (name, value) in variables {
            let Some(value) = value else { continue };
            if pod::add_if_absent(container, "env", "name", json!({"name": name, "value": value})) {
                settings.push(Setting::new(format!("env {name}"), value, Origin::Ostler));
            }
        }
        Ok(())
    }

    fn model(&self) -> Option<ModelFiles> {
        model_files::of(self.decided.model.as_ref()?.spec.storage.as_ref())
    }

    /// The model's directory, read-only, unless the user mounts something there. Where an agent says which nodes hold it,
    /// the Pods go to these.
    fn mount_model(&self, spec: &mut Value, container: &mut Value) {
        let Some(model) = &self.decided.model else { return };
        let Some((mut volume, path)) = self.model().and_then(|files| files.volume) else { return };
        if let (Some(label), false) = (&model.ready_nodes, volume["hostPath"].is_null()) {
            spec["nodeSelector"][label] = json!(model_files::READY);
        }
        let name = model_files::volume_name(model.name);
        volume["name"] = json!(name);
        pod::add_if_absent(spec, "volumes", "name", volume);
        let mount = json!({"name": name, "mountPath": path, "readOnly": true});
        pod::add_if_absent(container, "volumeMounts", "mountPath", mount);
    }
}

/// What workers have that the leader has not, or otherwise, beside the leader's.
fn told_of_workers(mut leader: Vec<Setting>, worker: Vec<Setting>) -> Vec<Setting> {
    let differs = |one: &Setting| !leader.iter().any(|other| other.field == one.field && other.value == one.value);
    let more: Vec<Setting> = worker.into_iter().filter(differs).collect();
    leader.extend(more.into_iter().map(|one| Setting { field: format!("worker {}", one.field), ..one }));
    leader
}
