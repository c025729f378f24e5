//! Confirms the phase of a rollout with the objects of the cluster: a change of a runtime, a model or a class does not change
//! the generation of the service, so its status may be older than the change.

use anyhow::Result;
use cluster::{Kind, NamespacedName};
use operator::{ClusterListing, Options, ServicePreview, WorkloadReason, kinds, preview_services};
use serde_json::Value;

use super::rollout_change::has_plan;
use super::target_service::Target;
use crate::cluster_listing;
use crate::report::rollout::{RolloutPhase, is_too_large};

/// Kinds without which a plan may differ from that of the operator.
const SUPPLY_KINDS: [Kind; 6] = [
    kinds::SERVING_RUNTIME,
    kinds::CLUSTER_SERVING_RUNTIME,
    kinds::BASE_MODEL,
    kinds::CLUSTER_BASE_MODEL,
    kinds::ACCELERATOR_CLASS,
    kinds::NODE,
];

/// Why the phase that the status of a service reports is not the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// The status describes earlier versions of the objects that it depends on.
    Status(String),
    /// This version of ostler plans something else than what is running. An operator with another version or other options never
    /// applies it.
    Plan(String),
}

/// The objects of a cluster, to plan a service with.
pub(super) struct LiveObjects {
    listing: ClusterListing,
    options: Options,
}

// === impl LiveObjects ===

impl LiveObjects {
    /// Lists the objects. Returns `None` if the user may not read what the plan of the service depends on.
    ///
    /// # Errors
    /// The API server did not respond, or with an error.
    pub(super) async fn read(target: &Target) -> Result<Option<Self>> {
        let (listing, _) = cluster_listing::read(&target.client, &target.namespace).await?;
        if SUPPLY_KINDS.iter().any(|kind| listing.unreadable.contains_key(kind)) {
            return Ok(None);
        }
        let mut options = Options::default();
        if let Some(image) = listing.picker_image() {
            options.picker_image = image;
        }
        Ok(Some(Self { listing, options }))
    }

    /// Predicts what a reconcile of the service would change.
    pub(super) async fn preview(&self, target: &Target) -> Option<ServicePreview> {
        let is_target = |kind: Kind, key: &NamespacedName| {
            kind.group == target.kind.group && key.namespace == target.namespace && key.name == target.name
        };
        let previews = preview_services(target.client.clone(), &self.listing, &self.options, is_target).await;
        previews.ok()?.into_iter().next()
    }

    /// Predicts what a reconcile would change if the service had this spec.
    pub(super) async fn preview_of_spec(mut self, target: &Target, spec: &Value) -> Option<ServicePreview> {
        let mut service = target.service.clone();
        service["spec"] = spec.clone();
        service["metadata"]["generation"] = (cluster::generation(&service) + 1).into();
        self.listing.insert(target.kind, service);
        self.preview(target).await
    }
}

/// Returns why `phase`, which the status of `service` reports, is not the current phase, or `None` if it is. Returns `None` as well
/// if the user may not read what the plan depends on.
///
/// # Errors
/// The API server did not respond, or with an error, so the phase is not confirmed.
pub(super) async fn pending_rollout(target: &Target, service: &Value, phase: RolloutPhase) -> Result<Option<Pending>> {
    if ![RolloutPhase::Complete, RolloutPhase::Failed, RolloutPhase::Degraded].contains(&phase) {
        return Ok(None);
    }
    let Some(objects) = LiveObjects::read(target).await? else { return Ok(None) };
    if objects.listing.is_status_outdated(service) {
        let message = "Waiting for the operator to observe the change of a runtime, a model or an accelerator class";
        return Ok(Some(Pending::Status(message.to_owned())));
    }
    let Some(preview) = objects.preview(target).await else { return Ok(None) };
    let ready = cluster::find_current_condition(service, "Ready");
    let reason = ready.and_then(|ready| ready["reason"].as_str()).unwrap_or_default();
    Ok(unapplied_plan(phase, reason, &preview).map(Pending::Plan))
}

/// Returns the difference between the plan and a status that reports `phase` with this reason of `Ready`.
fn unapplied_plan(phase: RolloutPhase, reason: &str, preview: &ServicePreview) -> Option<String> {
    match &preview.plan {
        // Free capacity changes all the time.
        _ if phase == RolloutPhase::Degraded => None,
        Ok(plan) if !plan.feasible => {
            (plan.reason != reason).then(|| format!("Waiting for the operator to report: {}", plan.message))
        }
        Ok(_) if phase == RolloutPhase::Complete => preview.pending_rollout(),
        Ok(_) if !has_plan(reason) => Some("Waiting for the operator to deploy the service".to_owned()),
        Ok(plan) if reason == WorkloadReason::Unschedulable.as_str() && !is_too_large(&plan.warnings) => {
            Some("Waiting for the operator to observe the nodes".to_owned())
        }
        Ok(_) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use plan::ServicePlan;
    use rstest::rstest;

    use super::*;

    fn planned(feasible: bool, reason: &str) -> Result<ServicePlan, String> {
        Ok(ServicePlan { feasible, reason: reason.to_owned(), message: "m".to_owned(), ..ServicePlan::default() })
    }

    fn too_large() -> Result<ServicePlan, String> {
        let warnings = vec![decide::Warning::new(decide::code::warning::TOO_FEW_NODES, "w")];
        planned(true, "Kept").map(|plan| ServicePlan { warnings, ..plan })
    }

    /// Columns: phase and reason in the status, the current plan, what the operator has not done yet.
    #[rstest]
    #[case::complete(RolloutPhase::Complete, "Ready", planned(true, "Selected"), None)]
    #[case::runtime_disabled(
        RolloutPhase::Complete,
        "Ready",
        planned(false, "NoCompatibleRuntime"),
        Some("Waiting for the operator to report: m")
    )]
    #[case::failed(RolloutPhase::Failed, "ImagePullFailed", planned(true, "Kept"), None)]
    #[case::no_runtime(RolloutPhase::Failed, "NoCompatibleRuntime", planned(false, "NoCompatibleRuntime"), None)]
    #[case::runtime_added(
        RolloutPhase::Failed,
        "NoCompatibleRuntime",
        planned(true, "Selected"),
        Some("Waiting for the operator to deploy the service")
    )]
    #[case::model_found_but_no_runtime(
        RolloutPhase::Failed,
        "ModelNotFound",
        planned(false, "NoCompatibleRuntime"),
        Some("Waiting for the operator to report: m")
    )]
    #[case::class_filled_up(RolloutPhase::Degraded, "Unschedulable", planned(false, "NoEligibleAccelerator"), None)]
    #[case::too_few_nodes(RolloutPhase::Failed, "Unschedulable", too_large(), None)]
    #[case::node_added(
        RolloutPhase::Failed,
        "Unschedulable",
        planned(true, "Kept"),
        Some("Waiting for the operator to observe the nodes")
    )]
    #[case::invalid_service(RolloutPhase::Failed, "InvalidSpec", Err("spec.model: …".to_owned()), None)]
    fn phase_is_confirmed_by_the_plan(
        #[case] phase: RolloutPhase,
        #[case] reason: &str,
        #[case] plan: Result<ServicePlan, String>,
        #[case] expected: Option<&str>,
    ) {
        let preview = ServicePreview {
            kind: kinds::OME_SERVICE,
            key: NamespacedName::new("n", "chat"),
            plan,
            objects: Vec::new(),
            restarts: Vec::new(),
            is_rolled_out: false,
        };
        assert_eq!(unapplied_plan(phase, reason, &preview).as_deref(), expected);
    }
}
