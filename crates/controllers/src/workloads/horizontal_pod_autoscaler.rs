//! HorizontalPodAutoscalers in a cluster without a metrics API: the scale target is only scaled if its number of
//! replicas is outside `minReplicas` and `maxReplicas`.

use apimachinery::condition::{self, Condition};
use apimachinery::object;
use serde_json::{Value, json};

use super::action::{Action, Plan};
use super::{deployment, leader_worker_set, replica_set, stateful_set};

pub(super) const RESOURCE: &str = "horizontalpodautoscalers.autoscaling";

/// The result of comparing the target's replicas with `minReplicas` and `maxReplicas`.
enum ScaleDecision {
    /// The target is scaled to zero, which disables the autoscaler.
    Disabled,
    /// The number of replicas remains: without metrics, only the bounds change it.
    WithinBounds,
    /// The target is scaled to the bound that it violates.
    Rescale { replicas: i64, reason: &'static str },
}

/// Returns the resource of the scale target, `None` when it cannot be scaled.
pub(super) fn target_resource(autoscaler: &Value) -> Option<&'static str> {
    match object::text(autoscaler, "/spec/scaleTargetRef/kind") {
        "Deployment" => Some(deployment::RESOURCE),
        "ReplicaSet" => Some(replica_set::RESOURCE),
        "StatefulSet" => Some(stateful_set::RESOURCE),
        "LeaderWorkerSet" => Some(leader_worker_set::RESOURCE),
        _ => None,
    }
}

/// Scales the target to within `minReplicas` and `maxReplicas`, and updates the status of the autoscaler.
pub(super) fn plan(autoscaler: &Value, target: Option<&Value>, now: &str) -> Plan {
    let mut plan = Plan::default();
    let mut status = autoscaler.get("status").filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
    let (Some(target), Some(resource)) = (target, target_resource(autoscaler)) else {
        let text = |field: &str| object::text(autoscaler, &format!("/spec/scaleTargetRef/{field}"));
        let message = format!(
            "the HPA controller was unable to get the target's current scale: {} \"{}\" not found",
            text("kind"),
            text("name")
        );
        set_condition(&mut status, "AbleToScale", Err(("FailedGetScale", &message)), now);
        plan.update_status(RESOURCE, autoscaler, status);
        return plan;
    };
    let current = replica_set::replicas(target);
    status["currentReplicas"] = json!(current);
    match decide_scale(autoscaler, current) {
        ScaleDecision::Disabled => {
            status["desiredReplicas"] = json!(0);
            set_condition(&mut status, "AbleToScale", Ok(SUCCEEDED_GET_SCALE), now);
            let message = "scaling is disabled since the replica count of the target is zero";
            set_condition(&mut status, "ScalingActive", Err(("ScalingDisabled", message)), now);
        }
        ScaleDecision::WithinBounds => {
            let desired = status.get("desiredReplicas").cloned().unwrap_or_else(|| json!(0));
            status["desiredReplicas"] = desired;
            set_condition(&mut status, "AbleToScale", Ok(SUCCEEDED_GET_SCALE), now);
            set_condition(&mut status, "ScalingActive", Err(("FailedGetMetrics", NO_METRICS)), now);
        }
        ScaleDecision::Rescale { replicas, reason } => {
            let mut scaled = target.clone();
            scaled["spec"]["replicas"] = json!(replicas);
            plan.push(Action::Update { resource, object: scaled });
            plan.normal_event(autoscaler, "SuccessfulRescale", format!("New size: {replicas}; reason: {reason}"));
            status["desiredReplicas"] = json!(replicas);
            status["lastScaleTime"] = json!(now);
            let message = format!("the HPA controller was able to update the target scale to {replicas}");
            set_condition(&mut status, "AbleToScale", Ok(("SucceededRescale", &message)), now);
        }
    }
    plan.update_status(RESOURCE, autoscaler, status);
    plan
}

const SUCCEEDED_GET_SCALE: (&str, &str) =
    ("SucceededGetScale", "the HPA controller was able to get the target's current scale");
const NO_METRICS: &str = "the HPA was unable to compute the replica count: this cluster has no metrics API";

/// Compares the current number of replicas with the bounds.
fn decide_scale(autoscaler: &Value, current: i64) -> ScaleDecision {
    let number = |field: &str| autoscaler.pointer(field).and_then(Value::as_i64);
    let min = number("/spec/minReplicas").unwrap_or(1);
    match number("/spec/maxReplicas") {
        _ if current == 0 && min != 0 => ScaleDecision::Disabled,
        Some(max) if current > max => {
            ScaleDecision::Rescale { replicas: max, reason: "Current number of replicas above Spec.MaxReplicas" }
        }
        _ if current < min => {
            ScaleDecision::Rescale { replicas: min, reason: "Current number of replicas below Spec.MinReplicas" }
        }
        _ => ScaleDecision::WithinBounds,
    }
}

/// Sets a condition: `True` for `Ok`, `False` for `Err`, each with reason and message.
fn set_condition(status: &mut Value, type_: &str, outcome: Result<(&str, &str), (&str, &str)>, now: &str) {
    let is_true = outcome.is_ok();
    let (Ok((reason, message)) | Err((reason, message))) = outcome;
    condition::set(status, Condition { type_, status: is_true, reason, message }, now);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;

    use super::*;

    fn autoscaler(status: Value) -> Value {
        json!({"metadata": {"namespace": "n", "name": "a"}, "status": status,
            "spec": {"minReplicas": 2, "maxReplicas": 4, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}})
    }

    fn deployment(replicas: i64) -> Value {
        json!({"metadata": {"namespace": "n", "name": "d"}, "spec": {"replicas": replicas}})
    }

    /// Checks the number of replicas that the target is scaled to, `None` if it is not scaled.
    #[rstest]
    #[case::below(1, Some(2))]
    #[case::at_minimum(2, None)]
    #[case::at_maximum(4, None)]
    #[case::above(9, Some(4))]
    #[case::scaled_to_zero(0, None)]
    fn scales_into_bounds(#[case] replicas: i64, #[case] expected: Option<i64>) {
        let plan = plan(&autoscaler(json!({})), Some(&deployment(replicas)), "t");
        let scaled = plan.actions.iter().find_map(|action| match action {
            Action::Update { object, .. } => object["spec"]["replicas"].as_i64(),
            _ => None,
        });
        assert_eq!(scaled, expected);
    }

    #[test]
    fn writes_unchanged_status_only_once() {
        let (mut current, target) = (autoscaler(json!({})), Arc::new(deployment(3)));
        let first = plan(&current, Some(&target), "t");
        let Some(Action::UpdateStatus { object, .. }) = first.actions.last() else { panic!("{first:?}") };
        current = object.clone();
        assert_eq!(plan(&current, Some(&target), "later"), Plan::default());
        assert_eq!(condition::find(&current["status"], "ScalingActive").unwrap()["reason"], "FailedGetMetrics");
    }

    #[test]
    fn reports_missing_target() {
        let plan = plan(&autoscaler(json!({})), None, "t");
        let Some(Action::UpdateStatus { object, .. }) = plan.actions.last() else { panic!("{plan:?}") };
        let outcome = condition::find(&object["status"], "AbleToScale").unwrap();
        assert!(object::text(outcome, "/message").ends_with("Deployment \"d\" not found"), "{outcome}");
    }
}
