//! The plan of one service: the decision and all objects in apply order.

use std::collections::{BTreeMap, BTreeSet};

use api::{fusioninfer, ome};
use decide::{ComponentDecision, Decision, FieldKind, RuntimeCandidates, RuntimeRef, Setting, Warning};
use serde::Serialize;
use serde_json::Value;

use crate::accelerator_request::requested_accelerators;
use crate::adapters;
use crate::claims::{self, Claim};
use crate::code;
use crate::components::{self, ROUTER};
use crate::current_selection::{current_selection, selection_fields};
use crate::decision_record::{self, CandidateSummary, DecisionRecord, RecordedRuntime};
use crate::demand;
use crate::names;
use crate::owner::Owner;
use crate::plan_error::PlanError;
use crate::render;
use crate::role::{Role, Workload};
use crate::roles;
use crate::selection::Selection;
use crate::snapshot::{Service, Snapshot};
use crate::supply::read_supply;
use crate::topology::Topology;
use crate::unschedulable;

/// Output of `ostler plan -o json`.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// Always `Plan`.
    pub kind: &'static str,
    /// One entry per service, in input order.
    pub services: Vec<ServicePlan>,
}

/// Plan of one service: the decision, its reasons and the objects to apply.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePlan {
    /// API version of the service.
    pub api_version: String,
    /// Kind of the service.
    pub kind: String,
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub name: String,
    /// Whether the service can be served.
    pub feasible: bool,
    /// Stable code: `Selected`, `Kept`, `Rendered` for role-based services, or the reason why the service is not feasible.
    pub reason: String,
    /// Explanation of the reason.
    pub message: String,
    /// The message without the classes that it lists, for readers who see the candidates; `None` if it lists none.
    #[serde(skip)]
    pub message_without_classes: Option<String>,
    /// The selected runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeRef>,
    /// Decisions by component (`engine`) or role name.
    pub components: BTreeMap<String, ComponentDecision>,
    /// Evaluated runtimes, ranked ones first.
    pub candidates: RuntimeCandidates,
    /// Warnings of decision and layout.
    pub warnings: Vec<Warning>,
    /// Changes that would make an infeasible service feasible, one sentence each. Only
    /// [`plan_with_remedies`](crate::plan_with_remedies) computes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<String>,
    /// Settings of the Pods with their origins and overridden values, by replica set (`engine`, or `engine-{class}`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Vec<Setting>>,
    /// Complete Kubernetes objects in apply order; empty unless feasible.
    pub objects: Vec<Value>,
    /// The additional replica of each role of a role-based service, by role name. It exists only while the number of nodes of the
    /// other replicas changes.
    #[serde(skip)]
    pub surge_replicas: BTreeMap<String, Value>,
    /// Summary of the candidates of a plan [without candidates](Self::without_candidates).
    #[serde(skip)]
    pub candidate_summary: CandidateSummary,
    /// Names of the Deployments whose strategy the service or the runtime sets.
    #[serde(skip)]
    pub user_strategies: BTreeSet<String>,
    /// Fingerprint of the fields of the service that selection reads; `None` if it could not be read or is role-based.
    #[serde(skip)]
    pub selection_fields: Option<String>,
}

/// Whether planning retains the current selection of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CurrentSelectionPolicy {
    /// Retain the current selection while it is feasible.
    Retain,
    /// Select again, ignoring the current selection.
    Ignore,
}

/// Plans every service of the snapshot. Accelerators claimed by earlier services are not available to later ones.
pub fn plan(snapshot: &Snapshot) -> Plan {
    plan_each(snapshot, |_, _, _| {})
}

/// Plans every service of the snapshot and calls `complete` with each plan and the claims of the earlier services.
pub(crate) fn plan_each(snapshot: &Snapshot, complete: impl Fn(&[Claim], &Service, &mut ServicePlan)) -> Plan {
    let mut claims = snapshot.claims.clone();
    let mut services = Vec::new();
    for service in &snapshot.services {
        let mut plan = plan_service_with_claims(snapshot, &claims, service, CurrentSelectionPolicy::Retain);
        complete(&claims, service, &mut plan);
        if plan.api_version == ome::API_VERSION {
            claims.retain(|claim| !claim.belongs_to(&plan.namespace, &plan.name));
            let claim = Claim::new(&plan.namespace, &plan.name, &plan.components);
            claims.extend(claim.filter(|_| plan.feasible && !claims::waits_for_capacity(&plan.warnings)));
        }
        services.push(plan);
    }
    Plan { kind: "Plan", services }
}

/// Plans one service and retains its current selection. Equal snapshots give equal plans, offline and in the operator.
pub fn plan_service(snapshot: &Snapshot, service: &Service) -> ServicePlan {
    plan_service_with_claims(snapshot, &snapshot.claims, service, CurrentSelectionPolicy::Retain)
}

/// Plans one service with `claims` instead of the snapshot's claims, so that many services can share one snapshot.
pub fn plan_service_with_claims(
    snapshot: &Snapshot,
    claims: &[Claim],
    service: &Service,
    policy: CurrentSelectionPolicy,
) -> ServicePlan {
    match service {
        Service::Ome(service) => plan_ome_service(snapshot, claims, service, policy),
        Service::RoleBased(service) => plan_role_based_service(snapshot, service),
    }
}

// === impl Plan ===

impl Plan {
    /// Returns whether all services are feasible.
    pub fn is_feasible(&self) -> bool {
        self.services.iter().all(|service| service.feasible)
    }
}

// === impl ServicePlan ===

impl ServicePlan {
    fn for_owner(owner: &Owner) -> Self {
        Self {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
            ..Self::default()
        }
    }

    /// Returns the record for `status.decision`, bounded in size.
    pub fn record(&self) -> DecisionRecord {
        let candidates = match &*self.candidates {
            [] => self.candidate_summary.clone(),
            candidates => CandidateSummary::new(candidates),
        };
        DecisionRecord {
            feasible: self.feasible,
            reason: self.reason.clone(),
            message: decision_record::truncate(&self.message),
            runtime: self.runtime.as_ref().map(RecordedRuntime::from),
            candidates,
            warnings: decision_record::bounded_warnings(&self.warnings),
            redecided: None,
            served_fields: None,
            inputs: None,
        }
    }

    /// Replaces the candidates by their summary, which is all that a record contains. They are much larger than the rest.
    #[must_use]
    pub fn without_candidates(mut self) -> Self {
        self.candidate_summary = CandidateSummary::new(&self.candidates);
        self.candidates = RuntimeCandidates::default();
        self
    }

    fn with_error(mut self, error: PlanError) -> Self {
        self.feasible = false;
        self.reason = error.code.into();
        self.message = error.message;
        self.message_without_classes = None;
        self.objects = Vec::new();
        self.surge_replicas = BTreeMap::new();
        self
    }

    fn with_decision(mut self, decision: &Decision) -> Self {
        self.feasible = decision.feasible;
        self.reason.clone_from(&decision.reason);
        self.message.clone_from(&decision.message);
        self.message_without_classes.clone_from(&decision.message_without_classes);
        self.runtime.clone_from(&decision.runtime);
        self.components.clone_from(&decision.components);
        self.candidates.clone_from(&decision.candidates);
        self.warnings.clone_from(&decision.warnings);
        self
    }

    fn with_topology(mut self, result: Result<(Topology, Vec<Warning>), PlanError>) -> Self {
        match result {
            Ok((topology, warnings)) => {
                self.add_warnings(warnings);
                self.objects = render::objects(&topology);
                self.surge_replicas = render::surge_replicas(&topology);
                if let Some(router) = &topology.router {
                    let picker = ComponentDecision { replicas: 1, nodes: 1, ..ComponentDecision::default() };
                    self.components.insert(router.role.clone(), picker);
                }
                for role in topology.roles {
                    self.record_role(&role);
                    if role.strategy.is_some() && role.workload == Workload::Deployment {
                        self.user_strategies.insert(names::workload(&topology.owner, &role));
                    }
                    if !role.settings.is_empty() {
                        self.settings.entry(role.name).or_default().extend(role.settings);
                    }
                }
                self
            }
            Err(error) => self.with_error(error),
        }
    }

    /// Records replicas and nodes of `role`. With several replica sets, the variants of the decision contain these numbers.
    fn record_role(&mut self, role: &Role) {
        let component = self.components.entry(role.component.clone()).or_default();
        if component.variants.is_empty() {
            component.replicas = role.replicas.min;
            component.nodes = component.nodes.max(role.nodes);
            record_requested_accelerators(component, &role.template);
        }
    }

    /// Adds warnings of the layout after those of the decision and skips duplicates.
    fn add_warnings(&mut self, warnings: Vec<Warning>) {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

/// Records the accelerators that a Pod template requests without a class.
fn record_requested_accelerators(component: &mut ComponentDecision, template: &Value) {
    if component.resource.is_some() {
        return;
    }
    let containers = template.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let requests: Vec<(String, u32)> =
        containers.filter_map(|container| requested_accelerators(&container["resources"])).collect();
    if let Some((name, _)) = requests.first() {
        let counts = requests.iter().filter(|(resource, _)| resource == name).map(|(_, count)| *count);
        component.accelerators_per_node = counts.fold(0, u32::saturating_add);
        component.resource = Some(name.clone());
    }
}

fn plan_role_based_service(snapshot: &Snapshot, service: &fusioninfer::InferenceService) -> ServicePlan {
    let owner = service_owner(service, fusioninfer::API_VERSION);
    let mut plan = ServicePlan::for_owner(&owner);
    plan.feasible = true;
    plan.reason = "Rendered".to_owned();
    let topology = roles::topology(owner, service, snapshot.pod_group_schema, &snapshot.picker_image);
    plan = plan.with_topology(topology.map(|(topology, mut warnings)| {
        warnings.extend(unschedulable::warnings(&topology.roles, &snapshot.inventory));
        (topology, warnings)
    }));
    if plan.feasible {
        let replicas = plan.components.values().map(|component| component.replicas).fold(0, u32::saturating_add);
        let roles = plan.components.len();
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        plan.message = format!("{replicas} replica{} in {roles} role{}", plural(replicas as usize), plural(roles));
    }
    plan
}

fn plan_ome_service(
    snapshot: &Snapshot,
    claims: &[Claim],
    service: &ome::InferenceService,
    policy: CurrentSelectionPolicy,
) -> ServicePlan {
    let owner = service_owner(service, ome::API_VERSION);
    let mut plan = ServicePlan::for_owner(&owner);
    let model = demand::find_model(snapshot, service, &owner);
    let demand = match demand::read_demand(snapshot, service, model, &owner) {
        Ok(demand) => demand,
        Err(error) => {
            let code = match error.kind {
                FieldKind::Annotation => code::error::INVALID_ANNOTATION,
                FieldKind::Spec => code::error::INVALID_SERVICE,
            };
            return plan.with_error(PlanError::new(code, error.to_string()));
        }
    };
    plan.selection_fields = Some(selection_fields(service, &demand));
    let current = current_selection(service, &demand).filter(|_| policy == CurrentSelectionPolicy::Retain);
    let (supply, supply_warnings) = read_supply(snapshot, claims, &owner);
    let mut decision = decide::decide(&demand, &supply, current.as_ref());
    decision.warnings.extend(supply_warnings);
    claims::describe_claims(&mut decision, claims, &snapshot.inventory, (&owner.namespace, &owner.name));
    if let Err(error) = components::validate_size(&decision) {
        return plan.with_error(error);
    }
    let mut plan = plan.with_decision(&decision);
    if !decision.feasible {
        return plan;
    }
    let selection = Selection::from_decision(snapshot, &supply, &owner, &demand, &decision);
    plan.settings = selection.class_settings(service, &demand, &decision);
    let weights = service.spec.model.as_ref().map(|model| model.fine_tuned_weights.as_slice()).unwrap_or_default();
    let find_storage =
        |name: &str| snapshot.model(&owner.namespace, name, None).map(|model| model.spec.storage.as_ref());
    let adapters = match adapters::resolve(weights, &owner.namespace, find_storage) {
        Ok(adapters) => adapters,
        Err(error) => return plan.with_error(error),
    };
    let input = selection.layout_input(service, model, adapters);
    let topology = components::topology(owner, &input, snapshot.pod_group_schema, &snapshot.picker_image);
    plan.with_topology(topology.map(|(topology, mut warnings)| {
        let (routers, engines): (Vec<&Role>, Vec<&Role>) =
            topology.roles.iter().partition(|role| role.component == ROUTER);
        warnings.extend(unschedulable::warnings(routers, &snapshot.inventory));
        let accelerators = supply.accelerator_resources();
        warnings.extend(unschedulable::resource_warnings(engines, &snapshot.inventory, &accelerators));
        (topology, warnings)
    }))
}

/// Returns the service as the owner of its objects. Sets `apiVersion` and `kind`, which objects read through a client
/// lack.
pub(crate) fn service_owner<K: Serialize>(service: &K, api_version: &str) -> Owner {
    let mut owner = serde_json::to_value(service).map(|value| Owner::from_object(&value)).unwrap_or_default();
    owner.api_version = api_version.to_owned();
    owner.kind = "InferenceService".to_owned();
    owner
}
