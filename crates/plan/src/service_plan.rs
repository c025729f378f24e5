//! What comes of one service: the decision, and every object in apply order.

use std::collections::BTreeMap;

use api::{fusioninfer, ome};
use decide::compatibility;
use decide::decision::{Candidate, ComponentDecision, Decision, Incumbent, RuntimeRef};
use decide::demand::{Component, Demand};
use decide::fit::Shape;
use decide::inventory::{self, Availability};
use decide::merge;
use decide::reason::Warning;
use decide::remedy::{self, Remedy};
use decide::supply::{self, Class, RuntimeComponent, Supply};
use serde::Serialize;
use serde_json::Value;

use crate::components::{self, Decided, NamedModel, NamedRuntime};
use crate::labels;
use crate::render;
use crate::roles;
use crate::runner::{self, Accelerators};
use crate::snapshot::{Model, Runtime, Service, Snapshot};
use crate::topology::{Owner, Refusal, Topology};

/// `ostler plan -o json`.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// Always `Plan`.
    pub kind: &'static str,
    /// One entry per service, in input order.
    pub services: Vec<ServicePlan>,
}

impl Plan {
    /// Whether every service can be served.
    pub fn feasible(&self) -> bool {
        self.services.iter().all(|service| service.feasible)
    }
}

/// One service: what was decided, why, and what it becomes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePlan {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub feasible: bool,
    /// Stable code: `Selected`, `Kept`, `Rendered` for roles, or why it is not feasible.
    pub reason: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeRef>,
    /// By component (`engine`) or role name.
    pub components: BTreeMap<String, ComponentDecision>,
    pub candidates: Vec<Candidate>,
    pub warnings: Vec<Warning>,
    /// Whole Kubernetes objects in apply order; empty unless feasible.
    pub objects: Vec<Value>,
    /// The decision as it goes to status; None for roles, which state everything themselves.
    #[serde(skip)]
    pub decision: Option<Decision>,
}

/// Plans every service of the snapshot.
pub fn plan(snapshot: &Snapshot) -> Plan {
    Plan { kind: "Plan", services: snapshot.services.iter().map(|service| plan_service(snapshot, service)).collect() }
}

/// Plans one service. Pure: the same snapshot gives the same bytes, offline and in the operator. The choice in force is
/// kept.
pub fn plan_service(snapshot: &Snapshot, service: &Service) -> ServicePlan {
    match service {
        Service::Ome(service) => ome_service(snapshot, service, incumbent(service).as_ref()),
        Service::Roles(service) => role_service(snapshot, service),
    }
}

/// Plans one service as if nothing were chosen yet.
pub fn plan_service_anew(snapshot: &Snapshot, service: &Service) -> ServicePlan {
    match service {
        Service::Ome(service) => ome_service(snapshot, service, None),
        Service::Roles(service) => role_service(snapshot, service),
    }
}

impl ServicePlan {
    fn of(owner: &Owner) -> Self {
        Self {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
            feasible: false,
            reason: String::new(),
            message: String::new(),
            runtime: None,
            components: BTreeMap::new(),
            candidates: Vec::new(),
            warnings: Vec::new(),
            objects: Vec::new(),
            decision: None,
        }
    }

    fn refused(mut self, refusal: Refusal) -> Self {
        self.feasible = false;
        self.reason = refusal.code.to_owned();
        self.message = refusal.message;
        self.objects = Vec::new();
        self
    }

    fn decided(mut self, decision: &Decision) -> Self {
        self.feasible = decision.feasible;
        self.reason.clone_from(&decision.reason);
        self.message.clone_from(&decision.message);
        self.runtime.clone_from(&decision.runtime);
        self.components.clone_from(&decision.components);
        self.candidates.clone_from(&decision.candidates);
        self.warnings.clone_from(&decision.warnings);
        self.decision = Some(decision.clone());
        self
    }

    fn laid_out(mut self, laid_out: Result<(Topology, Vec<Warning>), Refusal>) -> Self {
        match laid_out {
            Ok((topology, warnings)) => {
                self.warn(warnings);
                self.objects = render::objects(&topology);
                for role in &topology.roles {
                    let component = self.components.entry(role.name.clone()).or_default();
                    component.replicas = role.replicas.min;
                    component.nodes = component.nodes.max(role.nodes);
                    describe_stated(component, &role.template);
                }
                self
            }
            Err(refusal) => self.refused(refusal),
        }
    }

    /// The decision that goes to status carries the same warnings and components.
    fn warn(&mut self, warnings: Vec<Warning>) {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

/// Accelerators that a template asks for without a class.
fn describe_stated(component: &mut ComponentDecision, template: &Value) {
    if component.resource.is_some() {
        return;
    }
    let containers = template.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let asked: Vec<(String, u32)> =
        containers.filter_map(|container| runner::requested(&container["resources"])).collect();
    if let Some((name, _)) = asked.first() {
        component.accelerators_per_node = asked.iter().filter(|(other, _)| other == name).map(|(_, count)| count).sum();
        component.resource = Some(name.clone());
    }
}

fn role_service(snapshot: &Snapshot, service: &fusioninfer::InferenceService) -> ServicePlan {
    let owner = owner(service, fusioninfer::API_VERSION);
    let mut plan = ServicePlan::of(&owner);
    plan.feasible = true;
    plan.reason = "Rendered".to_owned();
    plan = plan.laid_out(roles::topology(owner, service, snapshot.pod_groups));
    if plan.feasible {
        let replicas: u32 = plan.components.values().map(|component| component.replicas).sum();
        plan.message = format!("{replicas} replicas in {} roles", plan.components.len());
    }
    plan
}

fn ome_service(snapshot: &Snapshot, service: &ome::InferenceService, incumbent: Option<&Incumbent>) -> ServicePlan {
    let owner = owner(service, ome::API_VERSION);
    let plan = ServicePlan::of(&owner);
    let model = model_of(snapshot, service, &owner);
    let demand = match Demand::of(service, model.map(|model| (model.name.as_str(), &model.spec))) {
        Ok(demand) => demand,
        Err(error) => {
            let code =
                if error.path.starts_with("metadata.annotations") { "InvalidAnnotation" } else { "InvalidService" };
            return plan.refused(Refusal::new(code, error.to_string()));
        }
    };
    let (supply, unreadable) = supply(snapshot, &owner);
    let mut decision = decide::decide(&demand, &supply, incumbent);
    decision.warnings.extend(unreadable);
    let plan = plan.decided(&decision);
    if !decision.feasible {
        return plan;
    }
    let chosen = Chosen::of(snapshot, &supply, &owner, &demand, &decision);
    plan.laid_out(components::topology(owner, &chosen.decided(service, model)))
}

/// What would make an infeasible service feasible, computed by deciding again with one constraint lifted. Empty for a
/// feasible one, and for roles, which state everything themselves.
pub fn remedies(snapshot: &Snapshot, service: &Service) -> Vec<Remedy> {
    let Service::Ome(service) = service else { return Vec::new() };
    let owner = owner(service.as_ref(), ome::API_VERSION);
    let model = model_of(snapshot, service, &owner);
    let demand = Demand::of(service, model.map(|model| (model.name.as_str(), &model.spec)));
    demand.map(|demand| remedy::remedies(&demand, &supply(snapshot, &owner).0)).unwrap_or_default()
}

fn model_of<'s>(snapshot: &'s Snapshot, service: &ome::InferenceService, owner: &Owner) -> Option<&'s Model> {
    let model = service.spec.model.as_ref()?;
    snapshot.model(&owner.namespace, &model.name, model.kind.as_deref())
}

/// The choice in force: a service that serves, or has served, by its choice keeps it, whatever ranks higher now. An edit
/// of the service asks for a new decision, and so does a person by the annotation [`labels::REDECIDE`].
fn incumbent(service: &ome::InferenceService) -> Option<Incumbent> {
    let status = service.status.as_ref()?;
    let recorded = status.decision.as_ref()?;
    let ready = status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let served = recorded[labels::SERVED] == true;
    let current = status.observed_generation == service.metadata.generation;
    let asked = service.metadata.annotations.as_ref().and_then(|all| all.get(labels::REDECIDE));
    let answered = asked.is_none_or(|asked| recorded[labels::REDECIDED] == asked.as_str());
    let decision = || serde_json::from_value::<Decision>(recorded.clone()).ok();
    ((ready || served) && current && answered).then(decision).flatten().as_ref().and_then(Incumbent::of)
}

/// Everything on offer, and what is left out because it cannot be read: one broken runtime does not stop the others.
/// The service's own pods do not count against it.
fn supply(snapshot: &Snapshot, owner: &Owner) -> (Supply, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut supply = Supply { accelerator_aware: snapshot.accelerator_aware, ..Supply::default() };
    for runtime in &snapshot.runtimes {
        let (name, created) = (&runtime.name, runtime.created.clone());
        match supply::Runtime::from_api(name, runtime.scope, &runtime.namespace, created, &runtime.spec) {
            Ok(runtime) => supply.runtimes.push(runtime.into()),
            Err(error) => warnings.push(Warning::new("InvalidRuntime", format!("runtime {name} is left out: {error}"))),
        }
    }
    let others: Vec<Value> = snapshot.pods.iter().filter(|pod| !is_own(pod, owner)).cloned().collect();
    let facts = inventory::observe(&snapshot.nodes, &others);
    for class in &snapshot.classes {
        let from_status = class.status.as_ref().map(Availability::from_status);
        match Class::from_api(class, from_status) {
            Ok(mut class) => {
                if !snapshot.nodes.is_empty() {
                    class.availability = Some(inventory::availability(&class, &facts));
                }
                supply.classes.push(class.into());
            }
            Err(error) => {
                let name = class.metadata.name.as_deref().unwrap_or_default();
                warnings.push(Warning::new("InvalidClass", format!("class {name} is left out: {error}")));
            }
        }
    }
    (supply, warnings)
}

fn is_own(pod: &Value, owner: &Owner) -> bool {
    pod["metadata"]["namespace"] == owner.namespace.as_str()
        && pod["metadata"]["labels"][labels::OME_SERVICE] == crate::names::label_value(&owner.name).as_str()
}

/// The winner, with what rendering needs of it.
struct Chosen<'a> {
    runtime: Option<&'a Runtime>,
    offer: RuntimeComponent,
    need: decide::demand::ComponentDemand,
    accelerators: Option<Accelerators>,
}

impl<'a> Chosen<'a> {
    fn of(snapshot: &'a Snapshot, supply: &Supply, owner: &Owner, demand: &Demand, decision: &Decision) -> Self {
        let runtime = decision.runtime.as_ref().and_then(|chosen| {
            let visible = |one: &&Runtime| one.namespace.is_empty() || one.namespace == owner.namespace;
            snapshot.runtimes.iter().filter(visible).find(|one| one.name == chosen.name && one.scope == chosen.scope)
        });
        let facts = decision.runtime.as_ref().and_then(|chosen| {
            let visible = |one: &&supply::Runtime| one.namespace.is_empty() || one.namespace == owner.namespace;
            supply
                .runtimes
                .iter()
                .map(AsRef::as_ref)
                .filter(visible)
                .find(|one| one.name == chosen.name && one.scope == chosen.scope)
        });
        let offer = facts.and_then(|facts| facts.components.get(&Component::Engine)).cloned().unwrap_or_default();
        let need = demand.components.get(&Component::Engine).cloned().unwrap_or_default();
        let accelerators = decision.components.get("engine").and_then(|engine| {
            let class = supply.class(engine.accelerator_class.as_deref()?)?;
            let entry = facts.and_then(|facts| compatibility::compatible(demand, facts).ok().flatten());
            let of_runtime = facts.map(|facts| facts.configurations.as_slice()).unwrap_or_default();
            let of_entry = entry.map(|entry| entry.configurations.as_slice()).unwrap_or_default();
            let layers = [of_runtime, of_entry, offer.configurations.as_slice(), need.configurations.as_slice()];
            Some(Accelerators {
                class: class.clone(),
                shape: Shape { per_node: engine.accelerators_per_node, nodes: engine.nodes },
                configuration: merge::configuration(&class.name, &layers),
                names: supply.accelerator_resources(),
            })
        });
        Self { runtime, offer, need, accelerators }
    }

    fn decided<'b>(&'b self, service: &'b ome::InferenceService, model: Option<&'b Model>) -> Decided<'b> {
        Decided {
            service: &service.spec,
            runtime: self.runtime.map(|runtime| NamedRuntime { name: &runtime.name, spec: &runtime.spec }),
            model: model.map(|model| NamedModel {
                name: &model.name,
                spec: &model.spec,
                category: model.category.as_deref(),
            }),
            offer: &self.offer,
            demand: &self.need,
            accelerators: self.accelerators.clone(),
        }
    }
}

/// The service as owner of what is made for it; objects read through a client carry no kind of their own.
fn owner<K: Serialize>(service: &K, api_version: &str) -> Owner {
    let mut owner = serde_json::to_value(service).map(|value| Owner::of(&value)).unwrap_or_default();
    owner.api_version = api_version.to_owned();
    owner.kind = "InferenceService".to_owned();
    owner
}
