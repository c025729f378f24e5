//! HorizontalPodAutoscalers, as a cluster without a source of metrics has them: a workload is kept within its bounds, and
//! nothing else scales it.

use serde_json::{Value, json};

use super::action::{Action, Plan};
use super::condition::{self, Condition};
use super::{deployment, leader_worker_set, replica_set, stateful_set};
use crate::conversion::autoscaling;
use crate::object;

pub(super) const RESOURCE: &str = autoscaling::STORAGE;

/// The resource that an autoscaler's target is of, if it can be scaled.
pub(super) fn target_resource(autoscaler: &Value) -> Option<&'static str> {
    match object::text(autoscaler, "/spec/scaleTargetRef/kind") {
        "Deployment" => Some(deployment::RESOURCE),
        "ReplicaSet" => Some(replica_set::RESOURCE),
        "StatefulSet" => Some(stateful_set::RESOURCE),
        "LeaderWorkerSet" => Some(leader_worker_set::RESOURCE),
        _ => None,
    }
}

/// Keeps the target within the bounds, and the autoscaler's status.
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
        tell(&mut status, "AbleToScale", Err(("FailedGetScale", &message)), now);
        plan.status(RESOURCE, autoscaler, status);
        return plan;
    };
    let current = replica_set::replicas(target);
    status["currentReplicas"] = json!(current);
    match bound(autoscaler, current) {
        Bound::Disabled => {
            status["desiredReplicas"] = json!(0);
            tell(&mut status, "AbleToScale", Ok(GOT), now);
            let why = "scaling is disabled since the replica count of the target is zero";
            tell(&mut status, "ScalingActive", Err(("ScalingDisabled", why)), now);
        }
        Bound::Kept => {
            let desired = status.get("desiredReplicas").cloned().unwrap_or_else(|| json!(0));
            status["desiredReplicas"] = desired;
            tell(&mut status, "AbleToScale", Ok(GOT), now);
            tell(&mut status, "ScalingActive", Err(("FailedGetMetrics", NO_METRICS)), now);
        }
        Bound::Left { wanted, why } => {
            let mut scaled = target.clone();
            scaled["spec"]["replicas"] = json!(wanted);
            plan.push(Action::Update { resource, object: scaled });
            plan.event(autoscaler, "SuccessfulRescale", format!("New size: {wanted}; reason: {why}"));
            status["desiredReplicas"] = json!(wanted);
            status["lastScaleTime"] = json!(now);
            let message = format!("the HPA controller was able to update the target scale to {wanted}");
            tell(&mut status, "AbleToScale", Ok(("SucceededRescale", &message)), now);
        }
    }
    plan.status(RESOURCE, autoscaler, status);
    plan
}

const GOT: (&str, &str) = ("SucceededGetScale", "the HPA controller was able to get the target's current scale");
const NO_METRICS: &str = "the HPA was unable to compute the replica count: this cluster has no source of metrics";

/// Where a workload stands between its bounds.
enum Bound {
    /// Somebody scaled it to zero, which turns the autoscaler off.
    Disabled,
    Kept,
    Left {
        wanted: i64,
        why: &'static str,
    },
}

fn bound(autoscaler: &Value, current: i64) -> Bound {
    let number = |field: &str| autoscaler.pointer(field).and_then(Value::as_i64);
    let least = number("/spec/minReplicas").unwrap_or(1);
    match number("/spec/maxReplicas") {
        _ if current == 0 && least != 0 => Bound::Disabled,
        Some(most) if current > most => {
            Bound::Left { wanted: most, why: "Current number of replicas above Spec.MaxReplicas" }
        }
        _ if current < least => Bound::Left { wanted: least, why: "Current number of replicas below Spec.MinReplicas" },
        _ => Bound::Kept,
    }
}

/// `Ok` is a condition that is true, `Err` one that is false; each with reason and message.
fn tell(status: &mut Value, kind: &str, told: Result<(&str, &str), (&str, &str)>, now: &str) {
    let is_true = told.is_ok();
    let (Ok((reason, message)) | Err((reason, message))) = told;
    condition::set(status, Condition { kind, status: is_true, reason, message }, now);
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

    fn of(replicas: i64) -> Value {
        json!({"metadata": {"namespace": "n", "name": "d"}, "spec": {"replicas": replicas}})
    }

    /// To how many the target is scaled.
    #[rstest]
    #[case::below(1, Some(2))]
    #[case::least(2, None)]
    #[case::most(4, None)]
    #[case::above(9, Some(4))]
    #[case::turned_off(0, None)]
    fn bounds_hold(#[case] replicas: i64, #[case] expected: Option<i64>) {
        let plan = plan(&autoscaler(json!({})), Some(&of(replicas)), "t");
        let scaled = plan.actions.iter().find_map(|action| match action {
            Action::Update { object, .. } => object["spec"]["replicas"].as_i64(),
            _ => None,
        });
        assert_eq!(scaled, expected);
    }

    #[test]
    fn what_is_told_once_is_not_told_again() {
        let (mut kept, target) = (autoscaler(json!({})), Arc::new(of(3)));
        let first = plan(&kept, Some(&target), "t");
        let Some(Action::Status { object, .. }) = first.actions.last() else { panic!("{first:?}") };
        kept = object.clone();
        assert_eq!(plan(&kept, Some(&target), "later"), Plan::default());
        assert_eq!(condition::find(&kept["status"], "ScalingActive").unwrap()["reason"], "FailedGetMetrics");
    }

    #[test]
    fn a_target_that_is_not_there_is_named() {
        let plan = plan(&autoscaler(json!({})), None, "t");
        let Some(Action::Status { object, .. }) = plan.actions.last() else { panic!("{plan:?}") };
        let told = condition::find(&object["status"], "AbleToScale").unwrap();
        assert!(object::text(told, "/message").ends_with("Deployment \"d\" not found"), "{told}");
    }
}
