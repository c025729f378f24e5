//! What comes of one service: the decision, and every object in apply order.

use std::collections::BTreeMap;

use api::{fusioninfer, ome};
use decide::decision::Omitted;
use decide::decision::{Candidate, ComponentDecision, Decision, Incumbent, RuntimeRef};
use decide::merge::origin::Setting;
use decide::reason::Warning;
use decide::remedy::{self, Remedy};
use serde::Serialize;
use serde_json::Value;

use crate::asked;
use crate::chosen::Chosen;
use crate::claims::{self, Claim};
use crate::code;
use crate::components;
use crate::incumbent::incumbent;
use crate::render;
use crate::roles;
use crate::runner;
use crate::smaller;
use crate::snapshot::{Service, Snapshot};
use crate::supply::supply;
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
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
    /// What `candidates` leave out; nothing unless the plan was [shortened](Self::shortened).
    #[serde(skip)]
    pub omitted: Omitted,
}

/// Plans every service of the snapshot. What an earlier one takes is not free for a later one.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let mut claims = snapshot.claims.clone();
    let mut services = Vec::new();
    for service in &snapshot.services {
        let plan = plan_service_beside(snapshot, &claims, service, Incumbency::Kept);
        if plan.api_version == ome::API_VERSION {
            claims.retain(|claim| !claim.is_of(&plan.namespace, &plan.name));
            let claim = Claim::new(&plan.namespace, &plan.name, &plan.components);
            claims.extend(claim.filter(|_| plan.feasible && !claims::waits(&plan.warnings)));
        }
        services.push(plan);
    }
    Plan { kind: "Plan", services }
}

/// Plans one service. Pure: the same snapshot gives the same bytes, offline and in the operator. The choice in force is
/// kept.
pub fn plan_service(snapshot: &Snapshot, service: &Service) -> ServicePlan {
    plan_service_beside(snapshot, &snapshot.claims, service, Incumbency::Kept)
}

/// What the choice in force counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incumbency {
    /// It is kept as long as it is possible.
    Kept,
    /// The service is planned as if nothing were chosen yet.
    Ignored,
}

/// Plans one service beside those that made `claims`, which stand in for the snapshot's: what is on offer can be shared
/// by plans of many services, what others claim is news for each.
pub fn plan_service_beside(
    snapshot: &Snapshot,
    claims: &[Claim],
    service: &Service,
    incumbency: Incumbency,
) -> ServicePlan {
    match service {
        Service::Ome(own) => {
            let incumbent = incumbent(own).filter(|_| incumbency == Incumbency::Kept);
            ome_service(snapshot, claims, own, incumbent.as_ref())
        }
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
            ..Self::default()
        }
    }

    /// The decision as a status carries it: with what laying out found, bounded in size, the rest counted.
    pub fn record(&self) -> Decision {
        self.record_of(self.candidates.clone())
    }

    fn record_of(&self, candidates: Vec<Candidate>) -> Decision {
        let decision = Decision {
            feasible: self.feasible,
            reason: self.reason.clone(),
            message: self.message.clone(),
            runtime: self.runtime.clone(),
            components: self.components.clone(),
            candidates,
            warnings: self.warnings.clone(),
            omitted: self.omitted,
        };
        decision.for_status()
    }

    /// The same with no more candidates than a record holds. Warnings stay: more may come before one is made.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        let candidates = std::mem::take(&mut self.candidates);
        let record = self.record_of(candidates);
        self.candidates = record.candidates;
        self.omitted = Omitted { warnings: 0, ..record.omitted };
        self
    }

    fn refused(mut self, refusal: Refusal) -> Self {
        self.feasible = false;
        self.reason = refusal.code.into();
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
        self
    }

    fn laid_out(mut self, laid_out: Result<(Topology, Vec<Warning>), Refusal>) -> Self {
        match laid_out {
            Ok((topology, warnings)) => {
                self.warn(warnings);
                self.objects = render::objects(&topology);
                if let Some(router) = &topology.router {
                    let picker = ComponentDecision { replicas: 1, nodes: 1, ..ComponentDecision::default() };
                    self.components.insert(router.role.clone(), picker);
                }
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

    /// Adds what laying out found; the decision's own warnings come first, and each is told once.
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
    plan = plan.laid_out(roles::topology(owner, service, snapshot.pod_groups, &snapshot.picker_image));
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
    let model = asked::model(snapshot, service, &owner);
    let demand = match asked::demand(snapshot, service, model, &owner) {
        Ok(demand) => demand,
        Err(error) => {
            let annotation =
                ["metadata.annotations[", "spec.annotations["].iter().any(|place| error.path.starts_with(place));
            let code = if annotation { code::refusal::INVALID_ANNOTATION } else { code::refusal::INVALID_SERVICE };
            return plan.refused(Refusal::new(code, error.to_string()));
        }
    };
    let (supply, unreadable) = supply(snapshot, claims, &owner);
    let mut decision = decide::decide(&demand, &supply, incumbent);
    decision.warnings.extend(unreadable);
    claims::explain(&mut decision, claims, &snapshot.inventory, (&owner.namespace, &owner.name));
    let mut plan = plan.decided(&decision);
    if !decision.feasible {
        return plan;
    }
    let chosen = Chosen::of(snapshot, &supply, &owner, &demand, &decision);
    plan.settings = chosen.class_settings(service, &demand, &decision);
    plan.laid_out(components::topology(owner, &chosen.decided(service, model), snapshot.pod_groups))
}

/// What would make an infeasible service feasible, or spare it the wait, computed by deciding again with one constraint
/// lifted; where every edit would leave it waiting, with a smaller model. Empty for roles, which state everything themselves.
pub fn remedies(snapshot: &Snapshot, service: &Service) -> Vec<Remedy> {
    let Service::Ome(service) = service else { return Vec::new() };
    let owner = owner(service.as_ref(), ome::API_VERSION);
    let model = asked::model(snapshot, service, &owner);
    let Ok(demand) = asked::demand(snapshot, service, model, &owner) else { return Vec::new() };
    let supply = supply(snapshot, &snapshot.claims, &owner).0;
    let meant = asked::meant(snapshot, service, &demand, &owner, &supply);
    let mut all: Vec<Remedy> = meant.into_iter().chain(remedy::remedies(&demand, &supply)).collect();
    if !all.iter().any(|remedy| remedy.is_an_edit() && remedy::waits(&remedy.outcome) == 0) {
        all.extend(smaller::models(snapshot, service, &demand, &owner, &supply));
    }
    all
}

/// The service as owner of what is made for it; objects read through a client carry no kind of their own.
fn owner<K: Serialize>(service: &K, api_version: &str) -> Owner {
    let mut owner = serde_json::to_value(service).map(|value| Owner::of(&value)).unwrap_or_default();
    owner.api_version = api_version.to_owned();
    owner.kind = "InferenceService".to_owned();
    owner
}
