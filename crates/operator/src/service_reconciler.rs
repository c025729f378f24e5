//! Reconciles services of both kinds: read the stores, plan, apply, and report status.

use std::sync::Arc;
use std::time::Instant;

use cluster::{
    ApplyOutcome, ApplyResult, Convergence, DesiredObject, Error, Kind, NamespacedName, is_served, is_terminating,
    metadata_field,
};
use jiff::{SignedDuration, Timestamp};
use plan::{Claim, Service, ServicePlan, Snapshot};
use serde_json::Value;

use crate::condition_reason::ConditionReason;
use crate::controller::Operator;
use crate::decision_cache::DecisionInputs;
use crate::fusioninfer_status::FusionInferObservations;
use crate::kinds::{
    DEPLOYMENT, FUSIONINFER_SERVICE, HTTP_ROUTE, INFERENCE_POOL, LABEL_FILTERED, LEADER_WORKER_SET, POD, POD_GROUP,
};
use crate::ome_status::OmeObservations;
use crate::rollout::Rollouts;
use crate::route_status::{RouteStatus, route_status};
use crate::selection::{self, Selection};
use crate::selection_snapshot::{SelectionSnapshot, document};
use crate::status_report::StatusReport;
use crate::workloads::WorkloadReader;
use crate::{fusioninfer_status, ome_status, pod_group_schema, revisions, rollout};

/// Requeue interval while an unwatched object of another owner blocks a service.
const NOT_OWNED_RECHECK_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

impl Operator {
    /// Applies the planned objects of one service and reports its status. A terminating service is ignored because its
    /// objects are garbage collected. Returns when to reconcile again even if nothing changes.
    pub(crate) async fn reconcile_service(&self, kind: Kind, key: &NamespacedName) -> Result<Option<Timestamp>, Error> {
        let Some(service) = self.stores.get(kind, key).filter(|service| !is_terminating(service)) else {
            return Ok(None);
        };
        let unlisted = if kind == FUSIONINFER_SERVICE { Vec::new() } else { self.unlisted_selection_kinds() };
        if !unlisted.is_empty() {
            return self.report_unlisted_kinds(kind, &service, &unlisted).await.map(|()| None);
        }
        let unlisted_workloads = self.unlisted_workload_kinds();
        if kind == FUSIONINFER_SERVICE && !unlisted_workloads.is_empty() {
            let report = self.unknown_state_report(&service, &unlisted_workloads);
            return self.publish_report(kind, &service, &report).await.map(|()| None);
        }
        let selection = match self.select(kind, &service) {
            Ok(selection) => selection,
            Err(message) => {
                let (reason, now) = (ConditionReason::InvalidSpec, self.clock.now());
                let report = ome_status::not_planned_report(&service, reason, &message, now);
                return self.publish_report(kind, &service, &report).await.map(|()| None);
            }
        };
        let (convergence, rollouts) = self.apply_plan(&service, &selection.plan).await?;
        let report = self.report(kind, &service, &selection, &convergence, &rollouts);
        self.publish_report(kind, &service, &report).await?;
        let requeue_at =
            rollouts.values().filter_map(|rollout| rollout.ready_at).chain(self.recheck_at(&convergence)).min();
        convergence.rejection.map_or(Ok(requeue_at), Err)
    }

    /// Returns when to check again whether an object of another owner still exists. Kinds that are watched with a label
    /// selector do not report the deletion of such objects.
    fn recheck_at(&self, convergence: &Convergence) -> Option<Timestamp> {
        let is_label_filtered = |result: &&ApplyResult| LABEL_FILTERED.iter().any(|kind| kind.kind == result.kind);
        let mut results = convergence.results.iter().filter(is_label_filtered);
        let is_blocked = results.any(|result| matches!(result.outcome, ApplyOutcome::NotOwned(_)));
        if is_blocked { self.clock.now().checked_add(NOT_OWNED_RECHECK_INTERVAL).ok() } else { None }
    }

    /// Reports that the service is not planned until all kinds are listed: a plan from an incomplete state could delete
    /// working engines. An existing status is retained.
    async fn report_unlisted_kinds(&self, kind: Kind, service: &Value, unlisted: &[String]) -> Result<(), Error> {
        if service["status"]["conditions"].is_array() {
            return Ok(());
        }
        let message = format!("Waiting for the operator to list {}", unlisted.join(", "));
        let (reason, now) = (ConditionReason::ClusterNotRead, self.clock.now());
        let report = ome_status::not_planned_report(service, reason, &message, now);
        self.publish_report(kind, service, &report).await
    }

    /// Returns the selection to apply.
    ///
    /// # Errors
    /// Returns the message for a condition if the service is invalid.
    fn select(&self, kind: Kind, service: &Value) -> Result<Arc<Selection>, String> {
        // A role-based service does not select runtimes or classes.
        if kind == FUSIONINFER_SERVICE {
            let parsed = parse_service(kind, service)?;
            let snapshot = Snapshot {
                pod_group_schema: pod_group_schema::installed_schema(&self.stores),
                picker_image: self.picker_image.clone(),
                ..Snapshot::default()
            };
            return Ok(Arc::new(selection::select(&snapshot, &[], service, &parsed)));
        }
        let key = NamespacedName::from_object(service);
        let selection = self.cached_selection(kind, &key, service)?;
        self.claims.pin(&key, claim(&key, &selection.plan), &self.inventory.current());
        Ok(selection)
    }

    fn cached_selection(&self, kind: Kind, key: &NamespacedName, service: &Value) -> Result<Arc<Selection>, String> {
        let (snapshot, epoch) = self.selection_snapshot();
        let (claims, claims_version) = self.claims.unaccounted_claims(key, &snapshot.snapshot.inventory);
        let inputs = DecisionInputs::new(service, epoch, claims_version);
        if let Some(selection) = self.decision_cache.get(key, &inputs) {
            return Ok(selection);
        }
        let selection = Arc::new(self.decide(kind, service, &claims, &snapshot)?);
        self.decision_cache.insert(key, inputs, &selection);
        Ok(selection)
    }

    fn decide(
        &self,
        kind: Kind,
        service: &Value,
        claims: &[Claim],
        snapshot: &SelectionSnapshot,
    ) -> Result<Selection, String> {
        let parsed = parse_service(kind, service)?;
        let start = Instant::now();
        let mut selection = selection::select(&snapshot.snapshot, claims, service, &parsed);
        self.metrics.count_decision(&selection.plan.reason, start.elapsed());
        snapshot.report_invalid_objects(service, &mut selection.plan);
        Ok(selection)
    }

    /// Returns the served workload kinds that the operator has not listed.
    fn unlisted_workload_kinds(&self) -> Vec<String> {
        let optional = [LEADER_WORKER_SET, POD_GROUP].into_iter().filter(|kind| is_served(&self.stores, *kind));
        let kinds = [POD, DEPLOYMENT].into_iter().chain(optional);
        kinds.filter(|kind| !self.stores.has_synced(*kind)).map(|kind| kind.group_resource()).collect()
    }

    /// Returns the report of a role-based service whose workloads cannot be listed, with the last observed counts.
    fn unknown_state_report(&self, service: &Value, unlisted: &[String]) -> StatusReport {
        let observations = FusionInferObservations {
            service,
            plan: None,
            roles: &fusioninfer_status::spec_roles(service),
            workloads: &[],
            applied: &[],
            rollouts: &Rollouts::new(),
            route_status: &RouteStatus::NoParents,
            unlisted,
        };
        fusioninfer_status::report(&observations, self.clock.now())
    }

    /// Applies the objects of the plan. If the plan is infeasible, existing objects are retained: an invalid edit must
    /// not delete a working engine.
    async fn apply_plan(&self, service: &Value, plan: &ServicePlan) -> Result<(Convergence, Rollouts), Error> {
        if !plan.feasible {
            return Ok((Convergence::default(), Rollouts::new()));
        }
        let objects = plan.objects.as_slice();
        let workloads = self.workload_reader().planned_workloads(service, objects);
        let rollouts = rollout::rollouts(service, &workloads, self.clock.now());
        let existing_revisions = revisions::existing_revisions(&self.stores, service);
        let history = revisions::desired_revisions(service, &existing_revisions);
        let mut desired: Vec<DesiredObject> = history.into_iter().map(DesiredObject::from).collect();
        desired.extend(rollout::desired_objects(service, objects, &workloads, &rollouts));
        Ok((self.applier.converge(service, desired).await?, rollouts))
    }

    fn workload_reader(&self) -> WorkloadReader<'_> {
        WorkloadReader { stores: &self.stores, crash_tracker: &self.crash_tracker, now: self.clock.now() }
    }

    /// Returns the status that Gateways report for the route and the pool of the service.
    fn route_status(&self, service: &Value) -> RouteStatus {
        let owned_objects = |kind| self.stores.list_controlled_by(kind, metadata_field(service, "uid"));
        let objects = [HTTP_ROUTE, INFERENCE_POOL].map(owned_objects).concat();
        route_status(objects.iter().map(AsRef::as_ref))
    }

    fn report(
        &self,
        kind: Kind,
        service: &Value,
        selection: &Selection,
        convergence: &Convergence,
        rollouts_before: &Rollouts,
    ) -> StatusReport {
        let plan = &selection.plan;
        // With an infeasible plan, the existing workloads of a role-based service keep running.
        let workloads = match plan.feasible || kind != FUSIONINFER_SERVICE {
            true => self.workload_reader().planned_workloads(service, &plan.objects),
            false => self.workload_reader().existing_workloads(service),
        };
        let (applied, now) = (convergence.results.as_slice(), self.clock.now());
        if kind != FUSIONINFER_SERVICE {
            let better_plan = selection.better_plan.as_ref();
            let observations = OmeObservations { service, plan, better_plan, workloads: &workloads, applied };
            return ome_status::report(&observations, now);
        }
        let roles = fusioninfer_status::spec_roles(service);
        let rollouts_after = rollout::rollouts(service, &workloads, now);
        let rollouts = rollout::reported_rollouts(service, rollouts_before, rollouts_after);
        let observations = FusionInferObservations {
            service,
            plan: Some(plan),
            roles: &roles,
            workloads: &workloads,
            applied,
            rollouts: &rollouts,
            route_status: &self.route_status(service),
            unlisted: &[],
        };
        fusioninfer_status::report(&observations, now)
    }
}

/// Returns the capacity that a service claims by its plan, equal to the claim that its status will contain.
fn claim(key: &NamespacedName, plan: &ServicePlan) -> Option<Claim> {
    let claims_capacity = plan.feasible && !plan::waits_for_capacity(&plan.warnings);
    claims_capacity.then(|| Claim::new(&key.namespace, &key.name, &plan.components)).flatten()
}

/// Parses a service.
///
/// # Errors
/// Returns the message for a condition if the service is invalid.
fn parse_service(kind: Kind, service: &Value) -> Result<Service, String> {
    let parsed = Service::from_document(&document(kind, service)).map_err(|error| match &error.path {
        Some(path) => format!("{path}: {}", error.cause),
        None => error.cause.clone(),
    })?;
    parsed.ok_or_else(|| format!("{} is not an InferenceService", service["kind"]))
}
