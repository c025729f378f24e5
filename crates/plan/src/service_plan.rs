//! What comes of one service: the decision, and every object in apply order.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{fusioninfer, ome};
use decide::compatibility;
use decide::decision::{Candidate, ComponentDecision, Decision, Incumbent, RuntimeRef};
use decide::demand::{Component, Demand};
use decide::fit::Shape;
use decide::inventory::Availability;
use decide::merge;
use decide::merge::origin::{Origin, Said, Setting};
use decide::reason::Warning;
use decide::remedy::{self, Remedy};
use decide::supply::{self, Class, Supply};
use serde::Serialize;
use serde_json::Value;

use crate::claims::{self, Claim};
use crate::components::{self, Decided, Granted, NamedModel, NamedRuntime, ReplicaSet};
use crate::labels;
use crate::render;
use crate::roles;
use crate::runner::{self, Accelerators};
use crate::snapshot::{Model, Runtime, Service, Snapshot};
use crate::topology::{Owner, Refusal, Role, Topology};

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
    /// By replica set (`engine`, or `engine-{class}`): who stated what of its pods, and what was overridden.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Vec<Setting>>,
    /// Whole Kubernetes objects in apply order; empty unless feasible.
    pub objects: Vec<Value>,
    /// The decision as it goes to status; None for roles, which state everything themselves.
    #[serde(skip)]
    pub decision: Option<Decision>,
}

/// Plans every service of the snapshot. What an earlier one takes is not free for a later one.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let mut claims = snapshot.claims.clone();
    let mut services = Vec::new();
    for service in &snapshot.services {
        let plan = plan_with(snapshot, &claims, service);
        if plan.api_version == ome::API_VERSION {
            claims.retain(|claim| !claim.is_of(&plan.namespace, &plan.name));
            claims.extend(Claim::new(&plan.namespace, &plan.name, &plan.components).filter(|_| plan.feasible));
        }
        services.push(plan);
    }
    Plan { kind: "Plan", services }
}

/// Plans one service. Pure: the same snapshot gives the same bytes, offline and in the operator. The choice in force is
/// kept.
pub fn plan_service(snapshot: &Snapshot, service: &Service) -> ServicePlan {
    plan_with(snapshot, &snapshot.claims, service)
}

fn plan_with(snapshot: &Snapshot, claims: &[Claim], service: &Service) -> ServicePlan {
    match service {
        Service::Ome(own) => ome_service(snapshot, claims, own, incumbent(own).as_ref()),
        Service::Roles(service) => role_service(snapshot, service),
    }
}

/// Plans one service as if nothing were chosen yet.
pub fn plan_service_anew(snapshot: &Snapshot, service: &Service) -> ServicePlan {
    match service {
        Service::Ome(service) => ome_service(snapshot, &snapshot.claims, service, None),
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
            settings: BTreeMap::new(),
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
                for role in topology.roles {
                    self.describe(&role);
                    if !role.settings.is_empty() {
                        self.settings.entry(role.name).or_default().extend(role.settings);
                    }
                }
                self
            }
            Err(refusal) => self.refused(refusal),
        }
    }

    /// Numbers of what was laid out; those of several replica sets are in the decision's variants.
    fn describe(&mut self, role: &Role) {
        let component = self.components.entry(role.component.clone()).or_default();
        if component.variants.is_empty() {
            component.replicas = role.replicas.min;
            component.nodes = component.nodes.max(role.nodes);
            describe_stated(component, &role.template);
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

fn ome_service(
    snapshot: &Snapshot,
    claims: &[Claim],
    service: &ome::InferenceService,
    incumbent: Option<&Incumbent>,
) -> ServicePlan {
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
    let (supply, unreadable) = supply(snapshot, claims, &owner);
    let mut decision = decide::decide(&demand, &supply, incumbent);
    decision.warnings.extend(unreadable);
    let mut plan = plan.decided(&decision);
    if !decision.feasible {
        return plan;
    }
    let chosen = Chosen::of(snapshot, &supply, &owner, &demand, &decision);
    plan.settings = chosen.class_settings(service, &demand, &decision);
    plan.laid_out(components::topology(owner, &chosen.decided(service, model)))
}

/// What would make an infeasible service feasible, computed by deciding again with one constraint lifted. Empty for a
/// feasible one, and for roles, which state everything themselves.
pub fn remedies(snapshot: &Snapshot, service: &Service) -> Vec<Remedy> {
    let Service::Ome(service) = service else { return Vec::new() };
    let owner = owner(service.as_ref(), ome::API_VERSION);
    let model = model_of(snapshot, service, &owner);
    let demand = Demand::of(service, model.map(|model| (model.name.as_str(), &model.spec)));
    demand.map(|demand| remedy::remedies(&demand, &supply(snapshot, &snapshot.claims, &owner).0)).unwrap_or_default()
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
/// The service's own pods and claim do not count against it; what others claim does, whether it runs yet or not.
fn supply(snapshot: &Snapshot, claims: &[Claim], owner: &Owner) -> (Supply, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut supply = Supply { accelerator_aware: snapshot.accelerator_aware, ..Supply::default() };
    for runtime in &snapshot.runtimes {
        let (name, created) = (&runtime.name, runtime.created.clone());
        match supply::Runtime::from_api(name, runtime.scope, &runtime.namespace, created, &runtime.spec) {
            Ok(runtime) => supply.runtimes.push(runtime.into()),
            Err(error) => warnings.push(Warning::new("InvalidRuntime", format!("runtime {name} is left out: {error}"))),
        }
    }
    let mut classes = Vec::new();
    for class in &snapshot.classes {
        match Class::from_api(class, class.status.as_ref().map(Availability::from_status)) {
            Ok(class) => classes.push(class),
            Err(error) => {
                let name = class.metadata.name.as_deref().unwrap_or_default();
                warnings.push(Warning::new("InvalidClass", format!("class {name} is left out: {error}")));
            }
        }
    }
    count_free(snapshot, claims, owner, &mut classes);
    supply.classes = classes.into_iter().map(Arc::new).collect();
    (supply, warnings)
}

fn count_free(snapshot: &Snapshot, claims: &[Claim], owner: &Owner, classes: &mut [Class]) {
    let others: Vec<&Claim> = claims.iter().filter(|claim| !claim.is_of(&owner.namespace, &owner.name)).collect();
    let inventory = &snapshot.inventory;
    if !inventory.has_nodes() {
        classes.iter_mut().for_each(|class| claims::book_on_status(&others, class));
        return;
    }
    let own = inventory.holdings(&owner.namespace, &crate::names::label_value(&owner.name));
    let booked = claims::book(&others, classes, inventory, &own);
    for class in classes {
        class.availability = Some(match &booked {
            Some(nodes) => inventory.availability_on(class, nodes),
            None => inventory.availability(class, &own),
        });
    }
}

/// The winner, with what rendering needs of it.
struct Chosen<'a> {
    runtime: Option<&'a Runtime>,
    facts: Option<&'a supply::Runtime>,
    components: BTreeMap<Component, Granted>,
}

impl<'a> Chosen<'a> {
    fn of(snapshot: &'a Snapshot, supply: &'a Supply, owner: &Owner, demand: &Demand, decision: &Decision) -> Self {
        let visible = |namespace: &str| namespace.is_empty() || namespace == owner.namespace;
        let chosen = decision.runtime.as_ref();
        let runtime = chosen.and_then(|chosen| {
            let mut all = snapshot.runtimes.iter().filter(|one| visible(&one.namespace));
            all.find(|one| one.name == chosen.name && one.scope == chosen.scope)
        });
        let facts = chosen.and_then(|chosen| {
            let mut all = supply.runtimes.iter().map(AsRef::as_ref).filter(|one| visible(&one.namespace));
            all.find(|one| one.name == chosen.name && one.scope == chosen.scope)
        });
        let decided = Component::ALL.into_iter().filter(|one| decision.components.contains_key(one.as_str()));
        let granted = |component: Component| (component, granted(component, supply, facts, demand, decision));
        Self { runtime, facts, components: decided.map(granted).collect() }
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
            components: self.components.clone(),
        }
    }

    /// Who chose the class of each component: the annotation over the service's fields over the runtime's wishes.
    fn class_settings(
        &self,
        service: &ome::InferenceService,
        demand: &Demand,
        decision: &Decision,
    ) -> BTreeMap<String, Vec<Setting>> {
        let wish = |component: &Component| {
            let class = decision.components.get(component.as_str())?.accelerator_class.clone()?;
            let mut said = class_wishes(service, *component, demand, self.facts);
            let mut setting = Setting::new("acceleratorClass", class, Origin::Ostler);
            if let Some(strongest) = said.first() {
                setting.origin = strongest.origin;
                setting.overridden = said.split_off(1);
            }
            Some((component.as_str().to_owned(), vec![setting]))
        };
        self.components.keys().filter_map(wish).collect()
    }
}

/// What annotation, service and runtime say about the class, the strongest first.
fn class_wishes(
    service: &ome::InferenceService,
    component: Component,
    demand: &Demand,
    runtime: Option<&supply::Runtime>,
) -> Vec<Said> {
    let own = match component {
        Component::Engine => service.spec.engine.as_ref().or(service.spec.predictor.as_ref()),
        Component::Decoder => service.spec.decoder.as_ref(),
    };
    let selectors = [own.and_then(|own| own.accelerator_override.as_ref()), service.spec.accelerator_selector.as_ref()];
    let stated: Vec<String> = selectors
        .into_iter()
        .flatten()
        .map(|selector| selector.wanted_classes().join(", "))
        .filter(|classes| !classes.is_empty())
        .collect();
    let merged = demand.components.get(&component).map(|need| need.selector.preferred.join(", ")).unwrap_or_default();
    let service_says = stated.first().cloned().unwrap_or_default();
    let requirements = runtime.map(|runtime| &runtime.requirements);
    let listed = requirements.and_then(|required| Some(required.classes.as_ref()?.join(", ")));
    let preferred = || {
        let all = requirements?.preferences.iter().map(|entry| entry.class.clone()).collect::<Vec<_>>();
        Some(all.join(", "))
    };
    let annotated = Some(merged.clone()).filter(|merged| *merged != service_says);
    let wishes = [
        (Origin::Annotation, annotated),
        (Origin::Service, Some(service_says)),
        (Origin::Runtime, listed.or_else(preferred)),
    ];
    let said = |(origin, value): (Origin, Option<String>)| {
        Some(Said { origin, value: value.filter(|value| !value.is_empty())? })
    };
    wishes.into_iter().filter_map(said).collect()
}

fn granted(
    component: Component,
    supply: &Supply,
    runtime: Option<&supply::Runtime>,
    demand: &Demand,
    decision: &Decision,
) -> Granted {
    let offer = runtime.and_then(|runtime| runtime.components.get(&component)).cloned().unwrap_or_default();
    let mut need = demand.components.get(&component).cloned().unwrap_or_default();
    if !supply.accelerator_aware {
        // With the gate off pods are as before it: the accelerator selector does not exist.
        need.selector.node_selector.clear();
    }
    let chosen = decision.components.get(component.as_str()).cloned().unwrap_or_default();
    let entry = runtime.and_then(|runtime| compatibility::compatible(demand, runtime).ok().flatten());
    let of_runtime = runtime.map(|runtime| runtime.configurations.as_slice()).unwrap_or_default();
    let of_entry = entry.map(|entry| entry.configurations.as_slice()).unwrap_or_default();
    let accelerators = |class: &str, per_node: u32, nodes: u32| {
        let class = supply.class(class)?;
        let layers = [of_runtime, of_entry, offer.configurations.as_slice(), need.configurations.as_slice()];
        Some(Accelerators {
            class: class.clone(),
            shape: Shape { per_node, nodes },
            configuration: merge::configuration(&class.name, &layers),
            names: supply.accelerator_resources(),
        })
    };
    let variants = chosen.variants.iter().map(|one| ReplicaSet {
        accelerators: accelerators(&one.accelerator_class, one.accelerators_per_node, one.nodes),
        request_tokens: Some(one.request_tokens),
    });
    let mut sets: Vec<ReplicaSet> = variants.collect();
    if sets.is_empty() {
        let class = chosen.accelerator_class.as_deref();
        let accelerators = class.and_then(|class| accelerators(class, chosen.accelerators_per_node, chosen.nodes));
        sets.push(ReplicaSet { accelerators, request_tokens: None });
    }
    Granted { offer, demand: need, sets }
}

/// The service as owner of what is made for it; objects read through a client carry no kind of their own.
fn owner<K: Serialize>(service: &K, api_version: &str) -> Owner {
    let mut owner = serde_json::to_value(service).map(|value| Owner::of(&value)).unwrap_or_default();
    owner.api_version = api_version.to_owned();
    owner.kind = "InferenceService".to_owned();
    owner
}
