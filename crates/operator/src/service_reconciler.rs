//! Reconciles services of both kinds: read the stores, plan, apply, and report status.

use std::sync::Arc;
use std::time::Instant;

use cluster::{
    ApplyOutcome, ApplyResult, Convergence, DesiredObject, Error, Kind, NamespacedName, is_served, is_terminating,
    kind_and_name, metadata_field,
};
use jiff::{SignedDuration, Timestamp};
use plan::{Claim, Service, ServicePlan, Snapshot};
use serde_json::Value;

use crate::condition_reason::ConditionReason;
use crate::context::Context;
use crate::decision_cache::DecisionInputs;
use crate::fusioninfer_status::FusionInferObservations;
use crate::invalid_object::report_invalid_objects;
use crate::kinds::{
    BACKEND_POOL, DEPLOYMENT, FUSIONINFER_SERVICE, HTTP_ROUTE, INFERENCE_POOL, LABEL_FILTERED, LEADER_WORKER_SET,
    LLM_USE_CASE_SET, OME_SERVICE, POD, POD_GROUP, SERVICE,
};
use crate::ome_status::OmeObservations;
use crate::replacement::{Replacement, Routes};
use crate::rollout::{LiveGang, Rollouts, WaitingUpdates, is_rollout_paused};
use crate::rollout_strategy::rollout_strategies;
use crate::route_status::{RouteStatus, route_status};
use crate::scaled_to_zero::start_replicas;
use crate::selection::{self, Selection};
use crate::selection_snapshot::{SelectionSnapshot, document, unlisted_selection_kinds};
use crate::shared_model_name::shared_model_name;
use crate::status_report::StatusReport;
use crate::surge_replicas::SurgeReplicas;
use crate::workloads::{PlannedWorkload, WorkloadReader};
use crate::{fusioninfer_status, ome_status, pod_group_schema, revisions, rollout};

/// Requeue interval while an unwatched object of another owner blocks a service.
const NOT_OWNED_RECHECK_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// Why a service has no plan in force.
pub(crate) enum NotPlanned {
    /// The operator has not listed these kinds: a plan from an incomplete state could delete working engines.
    SelectionKindsNotListed(Vec<String>),
    /// The operator has not listed these kinds of workloads of a role-based service.
    WorkloadKindsNotListed(Vec<String>),
    /// The service is invalid; contains the field and its error.
    InvalidSpec(String),
}

// === impl NotPlanned ===

impl NotPlanned {
    /// Returns the reason as a sentence.
    pub(crate) fn message(&self) -> String {
        match self {
            NotPlanned::SelectionKindsNotListed(unlisted) | NotPlanned::WorkloadKindsNotListed(unlisted) => {
                format!("Waiting for the operator to list {}", unlisted.join(", "))
            }
            NotPlanned::InvalidSpec(message) => message.clone(),
        }
    }
}

/// The objects to apply for a service, and the states that determine which of them wait.
pub(crate) struct DesiredObjects {
    /// The objects to apply in order, without the revision history.
    pub(crate) objects: Vec<DesiredObject>,
    /// Rollouts of the roles.
    pub(crate) rollouts: Rollouts,
    /// Updates of the roles that wait.
    pub(crate) waiting: WaitingUpdates,
    /// Replacement of workloads of another kind or name.
    pub(crate) replacement: Replacement,
    /// Additional replicas of the roles.
    pub(crate) surge_replicas: SurgeReplicas,
}

/// What was applied for a service.
#[derive(Default)]
struct AppliedPlan {
    convergence: Convergence,
    rollouts: Rollouts,
    waiting: WaitingUpdates,
    replacement: Replacement,
    surge_replicas: SurgeReplicas,
    /// The Services that were applied, or that exist if the plan is infeasible.
    services: Vec<Value>,
}

/// The workloads that a status describes.
struct ReportedWorkloads {
    /// The planned workloads, or the existing ones.
    planned: Vec<PlannedWorkload>,
    /// Additional replicas of the roles.
    surge_replicas: Vec<PlannedWorkload>,
}

// === impl ReportedWorkloads ===

impl ReportedWorkloads {
    /// Returns when the creation of gangs ends, after which rejections of their Pods are problems.
    fn gang_creation_ends(&self) -> impl Iterator<Item = Timestamp> {
        self.planned.iter().chain(&self.surge_replicas).filter_map(|workload| workload.gang_creation_end)
    }
}

/// Applies the planned objects of one service and reports its status. A terminating service is ignored because its
/// objects are garbage collected. Returns when to reconcile again even if nothing changes.
pub(crate) async fn reconcile_service(
    context: &Context,
    kind: Kind,
    key: &NamespacedName,
) -> Result<Option<Timestamp>, Error> {
    let result = reconcile(context, kind, key).await;
    if kind == OME_SERVICE {
        // The status now contains the decision, or could not be written.
        let service = context.stores.get(kind, key);
        context.state.claims.unpin(key, service.as_deref(), &context.state.inventory.current());
    }
    result
}

async fn reconcile(context: &Context, kind: Kind, key: &NamespacedName) -> Result<Option<Timestamp>, Error> {
    let Some(service) = context.stores.get(kind, key).filter(|service| !is_terminating(service)) else {
        return Ok(None);
    };
    let selection = match plan_in_force(context, kind, &service) {
        Ok(selection) => selection,
        Err(obstacle) => return report_not_planned(context, kind, &service, &obstacle).await.map(|()| None),
    };
    let applied = apply_plan(context, kind, &service, &selection.plan).await?;
    let workloads = reported_workloads(context, kind, &service, &selection.plan);
    let report = report(context, kind, &service, &selection, &applied, &workloads);
    context.publish_report(kind, &service, &report).await?;
    let AppliedPlan { convergence, rollouts, surge_replicas, .. } = applied;
    context.state.retained_objects.report(&convergence.unrecorded, &service, &context.event_publisher).await?;
    let requeue_times = rollouts.values().filter_map(|rollout| rollout.ready_at);
    let requeue_times = requeue_times.chain(surge_replicas.ready_at());
    let requeue_times = requeue_times.chain(workloads.gang_creation_ends());
    let requeue_at = requeue_times.chain(recheck_at(context, &convergence)).min();
    convergence.rejection.map_or(Ok(requeue_at), Err)
}

/// Returns the plan in force: of a service that selects runtimes and classes, the cached choice or a fresh one, which
/// claims its accelerators at once. A role-based service selects nothing, so its plan follows from its spec.
pub(crate) fn plan_in_force(context: &Context, kind: Kind, service: &Value) -> Result<Arc<Selection>, NotPlanned> {
    if kind == FUSIONINFER_SERVICE {
        return role_based_plan(context, service).map(Arc::new);
    }
    let unlisted = unlisted_selection_kinds(&context.stores, &context.state.inventory, context.accelerator_aware);
    if !unlisted.is_empty() {
        return Err(NotPlanned::SelectionKindsNotListed(unlisted));
    }
    let key = NamespacedName::from_object(service);
    let (snapshot, epoch) = context.selection_snapshot();
    let (claims, claims_version) = context.state.claims.unaccounted_claims(&key, &snapshot.snapshot.inventory);
    let inputs = DecisionInputs::new(service, epoch, claims_version);
    let cached_choice = context.state.decision_cache.get(&key, &inputs);
    let selection = match cached_choice {
        Some(selection) => selection,
        None => {
            let selection = Arc::new(fresh_choice(context, kind, service, &claims, &snapshot)?);
            context.state.decision_cache.insert(&key, inputs, &selection);
            selection
        }
    };
    context.state.claims.pin(&key, claim(&key, &selection.plan), &context.state.inventory.current());
    Ok(selection)
}

/// Decides which runtime and classes the service uses, given the claims of other services.
fn fresh_choice(
    context: &Context,
    kind: Kind,
    service: &Value,
    claims: &[Claim],
    snapshot: &SelectionSnapshot,
) -> Result<Selection, NotPlanned> {
    let parsed = parse_service(kind, service)?;
    let start = Instant::now();
    let mut selection = selection::select(&snapshot.snapshot, claims, service, &parsed);
    context.metrics.count_decision(&selection.plan.reason, start.elapsed());
    report_invalid_objects(&snapshot.invalid_objects, service, &mut selection.plan);
    selection.versions = Arc::clone(&snapshot.versions);
    Ok(selection)
}

/// Plans a role-based service.
fn role_based_plan(context: &Context, service: &Value) -> Result<Selection, NotPlanned> {
    let unlisted = unlisted_workload_kinds(context);
    if !unlisted.is_empty() {
        return Err(NotPlanned::WorkloadKindsNotListed(unlisted));
    }
    let parsed = parse_service(FUSIONINFER_SERVICE, service)?;
    let snapshot = Snapshot {
        pod_group_schema: pod_group_schema::installed_schema(&context.stores),
        picker_image: context.picker_image.clone(),
        ..Snapshot::default()
    };
    Ok(selection::select(&snapshot, &[], service, &parsed))
}

/// Returns the served workload kinds that the operator has not listed.
fn unlisted_workload_kinds(context: &Context) -> Vec<String> {
    let optional = [LEADER_WORKER_SET, POD_GROUP].into_iter().filter(|kind| is_served(&context.stores, *kind));
    let kinds = [POD, DEPLOYMENT].into_iter().chain(optional);
    kinds.filter(|kind| !context.stores.has_synced(*kind)).map(|kind| kind.group_resource()).collect()
}

/// Parses a service.
fn parse_service(kind: Kind, service: &Value) -> Result<Service, NotPlanned> {
    let parsed = Service::from_document(&document(kind, service)).map_err(|error| {
        NotPlanned::InvalidSpec(match &error.path {
            Some(path) => format!("{path}: {}", error.cause),
            None => error.cause.clone(),
        })
    })?;
    parsed.ok_or_else(|| NotPlanned::InvalidSpec(format!("{} is not an InferenceService", service["kind"])))
}

/// Returns the capacity that a service claims by its plan, equal to the claim that its status will contain.
fn claim(key: &NamespacedName, plan: &ServicePlan) -> Option<Claim> {
    let claims_capacity = plan.feasible && !plan::waits_for_capacity(&plan.warnings);
    claims_capacity.then(|| Claim::new(&key.namespace, &key.name, &plan.components)).flatten()
}

/// Reports why a service has no plan in force. While kinds are not listed, the existing status of a selecting service and
/// the last observed counts of a role-based service are retained.
async fn report_not_planned(
    context: &Context,
    kind: Kind,
    service: &Value,
    obstacle: &NotPlanned,
) -> Result<(), Error> {
    let now = context.now();
    let report = match obstacle {
        NotPlanned::SelectionKindsNotListed(_) if service["status"]["conditions"].is_array() => return Ok(()),
        NotPlanned::SelectionKindsNotListed(_) => {
            ome_status::not_planned_report(service, ConditionReason::ClusterNotRead, &obstacle.message(), now)
        }
        NotPlanned::InvalidSpec(message) => {
            ome_status::not_planned_report(service, ConditionReason::InvalidSpec, message, now)
        }
        NotPlanned::WorkloadKindsNotListed(unlisted) => {
            let observations = FusionInferObservations {
                service,
                plan: None,
                roles: &fusioninfer_status::spec_roles(service),
                workloads: &[],
                applied: &[],
                rollouts: &Rollouts::new(),
                surge_replicas: &SurgeReplicas::default(),
                route_status: &RouteStatus::NoParents,
                unlisted,
                shared_model_name: None,
            };
            fusioninfer_status::report(&observations, now)
        }
    };
    context.publish_report(kind, service, &report).await
}

/// Applies the objects of the plan. If the plan is infeasible, existing objects are retained: an invalid edit must not
/// delete a working engine.
async fn apply_plan(context: &Context, kind: Kind, service: &Value, plan: &ServicePlan) -> Result<AppliedPlan, Error> {
    if !plan.feasible {
        let services = context.stores.list_owned_by(SERVICE, service);
        let services = services.iter().map(|existing| Value::clone(existing)).collect();
        return Ok(AppliedPlan { services, ..AppliedPlan::default() });
    }
    let existing_revisions = revisions::existing_revisions(&context.stores, service);
    let templates = (kind == OME_SERVICE).then(|| revisions::pod_templates_fingerprint(&plan.objects));
    let history = revisions::desired_revisions(service, templates.as_deref(), &existing_revisions);
    let DesiredObjects { objects, rollouts, waiting, replacement, surge_replicas } =
        desired_objects(context, service, plan);
    let applied_services = objects.iter().filter_map(|desired| match desired {
        DesiredObject::Apply(object) if object["kind"] == SERVICE.kind => Some(object.clone()),
        _ => None,
    });
    let services = applied_services.collect();
    let desired: Vec<DesiredObject> = history.into_iter().map(DesiredObject::from).chain(objects).collect();
    let convergence = context.applier.converge(kind, service, desired).await?;
    Ok(AppliedPlan { convergence, rollouts, waiting, replacement, surge_replicas, services })
}

/// Returns the objects to apply.
pub(crate) fn desired_objects(context: &Context, service: &Value, plan: &ServicePlan) -> DesiredObjects {
    let workloads = workload_reader(context).planned_workloads(service, &plan.objects);
    let inventory = context.state.inventory.current();
    let routes = routes(context, service, &workloads);
    let existing = routes.surge_replicas.as_slice();
    let reader = workload_reader(context);
    let group = context.stores.get_owned_by(POD_GROUP, &NamespacedName::from_object(service), service);
    let live_gang = LiveGang { group: group.as_deref(), removed: reader.removed_replicas(service, &workloads) };
    let surge_replicas = SurgeReplicas::new(service, plan, &workloads, existing, &live_gang, reader, &inventory);
    let waiting =
        WaitingUpdates { roles: surge_replicas.waiting_roles(), sets: routes.last_sets(&plan.objects, &workloads) };
    let rollouts = rollout::rollouts(service, &workloads, &waiting, context.now());
    let strategies = rollout_strategies(&workloads, &plan.user_strategies, &inventory, is_rollout_paused(service));
    let mut objects = rollout::desired_objects(service, &plan.objects, &workloads, &rollouts, &strategies, &live_gang);
    let surges = surge_replicas.desired_objects(existing, &waiting);
    // An additional replica takes the place of a removed one of its name.
    objects
        .retain(|object| !surges.iter().any(|surge| kind_and_name(surge.object()) == kind_and_name(object.object())));
    objects.extend(surges);
    let obsolete = workload_reader(context).obsolete_workloads(service, &workloads);
    let has_listed_pods = context.stores.has_synced(POD);
    let replacement = Replacement::new(service, &workloads, obsolete, has_listed_pods, &inventory);
    let mut objects = replacement.desired_objects(objects, &workloads, &routes);
    let pools = routes.live.iter().map(|route| &**route).filter(|route| route["kind"] == BACKEND_POOL.kind);
    start_replicas(&mut objects, &plan.objects, &workloads, pools);
    DesiredObjects { objects, rollouts, waiting, replacement, surge_replicas }
}

/// Returns the replacement once the planned workloads have been created.
pub(crate) fn replacement_once_created(
    context: &Context,
    service: &Value,
    plan: &ServicePlan,
    replacement: Replacement,
) -> Replacement {
    let workloads = planned_workloads(context, service, plan);
    replacement.once_created(&workloads, &context.state.inventory.current())
}

/// Returns the planned workloads with their live objects.
pub(crate) fn planned_workloads(context: &Context, service: &Value, plan: &ServicePlan) -> Vec<PlannedWorkload> {
    workload_reader(context).planned_workloads(service, &plan.objects)
}

/// Returns the existing routes of a service, with their Pods. The workloads of a role-based service never change their kind.
fn routes(context: &Context, service: &Value, workloads: &[PlannedWorkload]) -> Routes {
    let owned = |kinds: &[Kind]| kinds.iter().flat_map(|kind| context.stores.list_owned_by(*kind, service)).collect();
    if service["apiVersion"] != OME_SERVICE.api_version() {
        return Routes {
            live: owned(&[BACKEND_POOL, LLM_USE_CASE_SET, INFERENCE_POOL]),
            pods: Vec::new(),
            surge_replicas: workload_reader(context).surge_replicas(service, workloads),
        };
    }
    let namespace = metadata_field(service, "namespace");
    let label = plan::label_value(metadata_field(service, "name"));
    Routes {
        live: owned(&[SERVICE, BACKEND_POOL, LLM_USE_CASE_SET]),
        pods: context.stores.list_with_label(POD, namespace, plan::labels::OME_SERVICE, &label),
        surge_replicas: Vec::new(),
    }
}

/// Returns when to check again whether an object of another owner still exists. Kinds that are watched with a label
/// selector do not report the deletion of such objects.
fn recheck_at(context: &Context, convergence: &Convergence) -> Option<Timestamp> {
    let is_label_filtered = |result: &&ApplyResult| LABEL_FILTERED.iter().any(|kind| kind.kind == result.kind);
    let mut results = convergence.results.iter().filter(is_label_filtered);
    let is_blocked = results.any(|result| matches!(result.outcome, ApplyOutcome::NotOwned(_)));
    if is_blocked { context.now().checked_add(NOT_OWNED_RECHECK_INTERVAL).ok() } else { None }
}

/// Reads the workloads that the status describes. With an infeasible plan, the existing workloads continue to run.
fn reported_workloads(context: &Context, kind: Kind, service: &Value, plan: &ServicePlan) -> ReportedWorkloads {
    let reader = workload_reader(context);
    let planned = match plan.feasible {
        true => reader.planned_workloads(service, &plan.objects),
        false => reader.existing_workloads(service),
    };
    let surge_replicas =
        if kind == FUSIONINFER_SERVICE { reader.surge_replicas(service, &planned) } else { Vec::new() };
    ReportedWorkloads { planned, surge_replicas }
}

fn report(
    context: &Context,
    kind: Kind,
    service: &Value,
    selection: &Selection,
    applied_plan: &AppliedPlan,
    workloads: &ReportedWorkloads,
) -> StatusReport {
    let plan = &selection.plan;
    let use_case_sets = context.stores.list_owned_by(LLM_USE_CASE_SET, service);
    let shared_model_name = shared_model_name(use_case_sets.iter().map(AsRef::as_ref));
    let (applied, now) = (applied_plan.convergence.results.as_slice(), context.now());
    if kind != FUSIONINFER_SERVICE {
        let better_plan = selection.better_plan.as_ref();
        let full_class = selection.full_class.as_deref();
        let observations = OmeObservations {
            service,
            plan,
            better_plan,
            full_class,
            workloads: &workloads.planned,
            applied,
            replacement: &applied_plan.replacement,
            services: &applied_plan.services,
            shared_model_name: shared_model_name.as_ref(),
        };
        let mut report = ome_status::report(&observations, now);
        selection.versions.record(service, &mut report.status);
        return report;
    }
    let surge_replicas = &applied_plan.surge_replicas;
    let rollouts_after = rollout::rollouts(service, &workloads.planned, &applied_plan.waiting, now);
    let workloads = [workloads.planned.as_slice(), workloads.surge_replicas.as_slice()].concat();
    let observations = FusionInferObservations {
        service,
        plan: Some(plan),
        roles: &fusioninfer_status::spec_roles(service),
        workloads: &workloads,
        applied,
        rollouts: &rollout::reported_rollouts(service, &applied_plan.rollouts, rollouts_after),
        surge_replicas,
        route_status: &observed_route_status(context, service),
        unlisted: &[],
        shared_model_name: shared_model_name.as_ref(),
    };
    fusioninfer_status::report(&observations, now)
}

fn workload_reader(context: &Context) -> WorkloadReader<'_> {
    WorkloadReader { stores: &context.stores, crash_tracker: &context.state.crash_tracker, now: context.now() }
}

/// Returns the status that Gateways report for the route and the pool of the service.
fn observed_route_status(context: &Context, service: &Value) -> RouteStatus {
    let owned_objects = |kind| context.stores.list_owned_by(kind, service);
    let objects = [HTTP_ROUTE, INFERENCE_POOL].map(owned_objects).concat();
    route_status(objects.iter().map(AsRef::as_ref))
}
