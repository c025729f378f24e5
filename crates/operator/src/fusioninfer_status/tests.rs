use cluster::{ApplyOutcome, ApplyResult, Condition, NamespacedName};
use plan::ServicePlan;
use plan::labels::{COMPONENT_TYPE, GROUP_NAME, REPLICA_INDEX, ROLE_NAME};
use rstest::rstest;

use super::role_state::Phase;
use super::*;
use crate::rollout::{self, Rollouts, WaitingUpdates};
use crate::route_status::RouteStatus;
use crate::surge_replicas::SurgeReplicas;
use crate::workloads::PlannedWorkload;

/// Inputs of one status computation.
#[derive(Default)]
struct Scenario {
    spec: Value,
    annotations: Value,
    old_status: Value,
    workloads: Vec<PlannedWorkload>,
    applied: Vec<ApplyResult>,
    unlisted: Vec<String>,
    plan: ServicePlan,
    rollouts: Rollouts,
    route_status: Option<RouteStatus>,
}

impl Scenario {
    fn prefill_decode() -> Scenario {
        let spec = json!({"roles": [
            {"name": "prefill", "componentType": "prefiller", "multinode": {"nodeCount": 2}},
            {"name": "decode", "componentType": "decoder", "replicas": 2, "multinode": {"nodeCount": 4}}]});
        Scenario { spec, plan: ServicePlan { feasible: true, ..ServicePlan::default() }, ..Scenario::default() }
    }

    fn worker() -> Scenario {
        let spec =
            json!({"roles": [{"name": "w", "componentType": "worker", "replicas": 2, "multinode": {"nodeCount": 4}}]});
        Scenario { spec, plan: ServicePlan { feasible: true, ..ServicePlan::default() }, ..Scenario::default() }
    }

    fn with_workloads(mut self, workloads: Vec<PlannedWorkload>) -> Scenario {
        self.workloads = workloads;
        self
    }

    fn report_at(&self, second: i64) -> StatusReport {
        let service = json!({"apiVersion": "fusioninfer.io/v1alpha1", "spec": self.spec, "status": self.old_status,
            "metadata": {"name": "s", "generation": 3, "annotations": self.annotations}});
        let spec_roles = spec_roles(&service);
        let observations = FusionInferObservations {
            service: &service,
            plan: Some(&self.plan),
            roles: &spec_roles,
            workloads: &self.workloads,
            applied: &self.applied,
            rollouts: &self.rollouts,
            surge_replicas: &SurgeReplicas::default(),
            route_status: self.route_status.as_ref().unwrap_or(&RouteStatus::NoParents),
            unlisted: &self.unlisted,
            shared_model_name: None,
        };
        report(&observations, Timestamp::from_second(second).unwrap())
    }

    fn condition(&self, kind: &str) -> Condition {
        self.report_at(0).conditions.into_iter().find(|condition| condition.type_ == kind).unwrap()
    }

    fn summaries(&self) -> Vec<String> {
        let summary =
            |condition: &Condition| format!("{}={} {}", condition.type_, condition.status.as_str(), condition.reason);
        self.report_at(0).conditions.iter().map(summary).collect()
    }

    fn component(&self, role: &str) -> Value {
        self.report_at(0).status["components"][role].clone()
    }
}

#[derive(Clone, Copy)]
enum Pods {
    Ready(usize),
    /// Not scheduled.
    Unschedulable,
    ImagePullFailed,
}

/// Returns replica `index` of a gang role with `nodes` Pods.
fn replica(role: &str, index: usize, nodes: usize, state: Pods) -> PlannedWorkload {
    let name = format!("s-{role}-{index}");
    let planned = json!({"kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": {ROLE_NAME: role, REPLICA_INDEX: index.to_string()}},
        "spec": {"leaderWorkerTemplate": {"size": nodes, "workerTemplate": {"metadata": {"annotations": {GROUP_NAME: "s"}}}}}});
    let pod = |pod_index: usize| {
        let (spec, status) = match state {
            Pods::Ready(ready) => {
                let ready = if pod_index < ready { "True" } else { "False" };
                (
                    json!({"nodeName": "n"}),
                    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}),
                )
            }
            Pods::Unschedulable => (
                json!({}),
                json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "8 more GPUs are needed"}]}),
            ),
            Pods::ImagePullFailed => (
                json!({"nodeName": "n"}),
                json!({"phase": "Pending", "containerStatuses": [{"name": "e", "image": "bad:1",
                "ready": false, "state": {"waiting": {"reason": "ErrImagePull"}}}]}),
            ),
        };
        json!({"kind": "Pod", "metadata": {"name": format!("{name}-{pod_index}")}, "spec": spec, "status": status})
    };
    let are_all_ready = matches!(state, Pods::Ready(ready) if ready == nodes);
    let mut live = planned.clone();
    live["spec"]["replicas"] = json!(1);
    live["status"] = json!({"readyReplicas": i64::from(are_all_ready), "updatedReplicas": 1});
    PlannedWorkload::new(planned, Some(live), (0..nodes).map(pod).collect())
}

fn gang_scenario(prefill: Pods, decode: [Pods; 2]) -> Scenario {
    let [first, second] = decode;
    Scenario::prefill_decode().with_workloads(vec![
        replica("prefill", 0, 2, prefill),
        replica("decode", 0, 4, first),
        replica("decode", 1, 4, second),
    ])
}

// spec: TOP-80
// spec: TOP-81
#[test]
fn counts_pods_of_incomplete_replicas() {
    let scenario =
        Scenario::worker().with_workloads(vec![replica("w", 0, 4, Pods::Ready(4)), replica("w", 1, 4, Pods::Ready(3))]);
    assert_eq!(
        scenario.component("w"),
        json!({"desiredReplicas": 2, "readyReplicas": 1, "nodesPerReplica": 4, "totalPods": 8,
            "readyPods": 7, "phase": "Deploying", "lastUpdateTime": "1970-01-01T00:00:00Z"})
    );
    assert_eq!(
        scenario.summaries(),
        [
            "Initialized=True ObjectsApplied",
            "Active=True MinimumReady",
            "GangScheduled=True FullCapacity",
            "Ready=False NotReadyYet"
        ]
    );
}

/// Columns: ready Pods of two replicas with four nodes; ready replicas and Pods.
// spec: TOP-80
#[rstest]
#[case::nothing([0, 0], 0, 0)]
#[case::parts([3, 2], 0, 5)]
#[case::one([4, 0], 1, 4)]
#[case::both([4, 4], 2, 8)]
fn counts_replicas_and_pods(#[case] ready_pods: [usize; 2], #[case] replicas: u32, #[case] pods: u32) {
    let [first, second] = ready_pods.map(Pods::Ready);
    let scenario = Scenario::worker().with_workloads(vec![replica("w", 0, 4, first), replica("w", 1, 4, second)]);
    let component = scenario.component("w");
    let counts = ["desiredReplicas", "nodesPerReplica", "totalPods", "readyReplicas", "readyPods"];
    assert_eq!(counts.map(|field| component[field].clone()), [2, 4, 8, replicas, pods].map(Value::from));
}

// spec: TOP-80
#[test]
fn unset_replicas_and_nodes_count_as_one() {
    let scenario = Scenario {
        spec: json!({"roles": [{"name": "w", "componentType": "worker"}]}),
        ..Scenario::worker().with_workloads(vec![replica("w", 0, 1, Pods::Ready(1))])
    };
    let component = scenario.component("w");
    let counts = ["desiredReplicas", "nodesPerReplica", "totalPods", "readyReplicas", "readyPods"];
    assert_eq!(counts.map(|field| component[field].clone()), [1; 5].map(Value::from));
}

// spec: TOP-84
#[test]
fn last_update_time_changes_only_with_the_content() {
    let mut scenario = Scenario::worker().with_workloads(vec![replica("w", 0, 4, Pods::Ready(3))]);
    scenario.old_status = scenario.report_at(0).status;
    assert_eq!(scenario.report_at(60).status, scenario.old_status);
    scenario.workloads = vec![replica("w", 0, 4, Pods::Ready(4))];
    assert_eq!(scenario.report_at(60).status["components"]["w"]["lastUpdateTime"], "1970-01-01T00:01:00Z");
}

// spec: TOP-82
#[rstest]
#[case::nothing_exists(1, 0, false, false, Phase::Pending)]
#[case::created(1, 0, true, false, Phase::Deploying)]
#[case::partly_ready(2, 1, true, false, Phase::Deploying)]
#[case::all_ready(2, 2, true, false, Phase::Running)]
#[case::zero_replicas(0, 0, false, false, Phase::Running)]
#[case::failed(1, 0, true, true, Phase::Failed)]
fn computes_phase(
    #[case] desired: i64,
    #[case] ready: i64,
    #[case] exists: bool,
    #[case] failed: bool,
    #[case] expect: Phase,
) {
    assert_eq!(Phase::new(desired, ready, exists, failed), expect);
}

// spec: TOP-85
#[rstest]
#[case::full(Pods::Ready(2), [Pods::Ready(4); 2], "True FullCapacity", "All replicas are scheduled: prefill 1 of 1, decode 2 of 2")]
#[case::scheduled_but_not_ready(Pods::Ready(0), [Pods::Ready(0); 2], "True FullCapacity", "All replicas are scheduled: prefill 1 of 1, decode 2 of 2")]
#[case::partial(Pods::Ready(2), [Pods::Ready(4), Pods::Unschedulable], "True PartialCapacity",
    "Scheduled replicas: prefill 1 of 1, decode 1 of 2; decode-1 is not scheduled: 8 more GPUs are needed")]
#[case::blocked(Pods::Unschedulable, [Pods::Unschedulable; 2], "False Blocked",
    "No Pod runs until one replica of each role can be scheduled; prefill-0 is not scheduled: 8 more GPUs are needed")]
#[case::role_lost_its_nodes(Pods::Unschedulable, [Pods::Ready(4), Pods::Unschedulable], "False BelowMinimum",
    "Fully scheduled replicas: prefill 0 of 1, decode 1 of 2; prefill-0 is not scheduled: 8 more GPUs are needed")]
fn reports_scheduled_replicas_of_a_gang(
    #[case] prefill: Pods,
    #[case] decode: [Pods; 2],
    #[case] expect: &str,
    #[case] message: &str,
) {
    let condition = gang_scenario(prefill, decode).condition("GangScheduled");
    assert_eq!(
        (format!("{} {}", condition.status.as_str(), condition.reason).as_str(), condition.message.as_str()),
        (expect, message)
    );
}

#[test]
fn unscheduled_gang_is_starting() {
    let mut scenario = gang_scenario(Pods::Unschedulable, [Pods::Unschedulable; 2]);
    for workload in &mut scenario.workloads {
        *workload = PlannedWorkload::new(workload.planned.clone(), None, Vec::new());
    }
    let condition = scenario.condition("GangScheduled");
    assert_eq!(
        (condition.status, condition.reason.as_str(), condition.event_policy),
        (cluster::ConditionStatus::False, "Starting", cluster::EventPolicy::Normal)
    );
}

#[test]
fn reports_all_or_nothing_volcano_as_cause() {
    let mut scenario = gang_scenario(Pods::Unschedulable, [Pods::Unschedulable; 2]);
    scenario.plan.warnings = vec![Warning::new(plan::code::warning::GANG_ALL_OR_NOTHING, "m")];
    assert_eq!(scenario.condition("GangScheduled").reason, "GangAllOrNothing");
}

#[test]
fn partial_capacity_is_active_but_not_ready() {
    let scenario = gang_scenario(Pods::Ready(2), [Pods::Ready(4), Pods::Unschedulable]);
    assert_eq!(scenario.condition("Active").status, cluster::ConditionStatus::True);
    let ready = scenario.condition("Ready");
    assert_eq!((ready.status, ready.reason.as_str()), (cluster::ConditionStatus::False, "Unschedulable"));
}

// spec: TOP-83
#[test]
fn failed_is_reported_while_its_cause_exists() {
    let failing_scenario = gang_scenario(Pods::Ready(2), [Pods::ImagePullFailed, Pods::Ready(4)]);
    assert_eq!(
        (&failing_scenario.component("decode")["phase"], &failing_scenario.component("prefill")["phase"]),
        (&json!("Failed"), &json!("Running"))
    );
    let failed = failing_scenario.condition("Failed");
    assert_eq!((failed.status, failed.reason.as_str()), (cluster::ConditionStatus::True, "ImagePullFailed"));
    let mut crashing_scenario = gang_scenario(Pods::Ready(2), [Pods::Ready(3), Pods::Ready(4)]);
    for (crashes, phase) in [(2, "Deploying"), (3, "Failed"), (0, "Deploying")] {
        crashing_scenario.workloads[1].recent_crashes = crashes;
        assert_eq!(crashing_scenario.component("decode")["phase"], phase, "{crashes} crashes");
    }
    let types = crashing_scenario.report_at(0).conditions.into_iter().map(|condition| condition.type_);
    assert!(types.into_iter().all(|type_| type_ != "Failed"));
}

// spec: TOP-83
#[test]
fn unlisted_workloads_are_unknown_and_keep_counts() {
    let mut scenario = gang_scenario(Pods::Ready(2), [Pods::Ready(4); 2]);
    scenario.old_status = scenario.report_at(0).status;
    scenario.old_status["observedGeneration"] = json!(2);
    (scenario.workloads, scenario.unlisted) = (Vec::new(), vec!["pods".to_owned()]);
    let status = scenario.report_at(60).status;
    let mut expect = scenario.old_status["components"]["decode"].clone();
    (expect["phase"], expect["lastUpdateTime"]) = (json!("Unknown"), json!("1970-01-01T00:01:00Z"));
    assert_eq!(status["components"]["decode"], expect);
    assert_eq!(status["observedGeneration"], 2);
    let unknown_summary = |kind: &str| format!("{kind}=Unknown StateUnreadable");
    assert_eq!(scenario.summaries(), ["Initialized", "Active", "Failed", "Ready"].map(unknown_summary));
}

#[test]
fn counts_router_from_its_deployment() {
    let mut scenario = gang_scenario(Pods::Ready(2), [Pods::Ready(4); 2]);
    scenario.spec["roles"].as_array_mut().unwrap().push(json!({"name": "entry", "componentType": "router"}));
    let planned = json!({"kind": "Deployment", "spec": {"replicas": 1},
        "metadata": {"name": "s-epp", "labels": {COMPONENT_TYPE: "router"}}});
    let statuses =
        |scenario: &Scenario| ["RouterReady", "Active", "Ready"].map(|kind| scenario.condition(kind).status.as_str());
    scenario.workloads.push(PlannedWorkload::new(planned.clone(), Some(planned.clone()), Vec::new()));
    assert_eq!(scenario.component("entry")["phase"], "Deploying");
    assert_eq!(statuses(&scenario), ["False", "True", "False"]);
    let mut live = planned.clone();
    live["status"] = json!({"readyReplicas": 1, "updatedReplicas": 1});
    *scenario.workloads.last_mut().unwrap() = PlannedWorkload::new(planned, Some(live), Vec::new());
    assert_eq!(scenario.component("entry")["readyPods"], 1);
    assert_eq!(statuses(&scenario), ["True"; 3]);
    // Without the CRD of the pool, the engines still serve requests.
    scenario.applied.push(ApplyResult {
        kind: "InferencePool".to_owned(),
        key: NamespacedName::new("n", "s-pool"),
        outcome: ApplyOutcome::KindNotServed,
    });
    assert_eq!(statuses(&scenario), ["False", "True", "False"]);
    assert!(scenario.condition("Ready").message.contains("Gateway API Inference Extension"));
}

/// An invalid edit does not stop existing replicas: they are still counted and serve requests.
// spec: TOP-83
#[test]
fn reports_existing_replicas_after_an_invalid_edit() {
    let mut scenario = gang_scenario(Pods::Ready(2), [Pods::Ready(4); 2]);
    scenario.plan =
        ServicePlan { reason: "InvalidTemplate".into(), message: "role prefill, …".into(), ..scenario.plan };
    scenario.plan.feasible = false;
    let condition = [
        "Initialized=False InvalidTemplate",
        "Active=True MinimumReady",
        "Failed=True InvalidTemplate",
        "Ready=False InvalidTemplate",
    ];
    assert_eq!(scenario.summaries(), condition);
    let decode = scenario.component("decode");
    assert_eq!(
        (&decode["phase"], &decode["readyReplicas"], &decode["readyPods"]),
        (&json!("Failed"), &json!(2), &json!(8))
    );
}

// spec: TOP-10
#[test]
fn plan_warnings_are_events_once_per_generation() {
    let mut scenario = gang_scenario(Pods::Ready(2), [Pods::Ready(4); 2]);
    scenario.plan.warnings = vec![Warning::new(plan::code::warning::FIELD_IGNORED, "m")];
    let events = scenario.report_at(0).events;
    assert_eq!((events.len(), events[0].warning, events[0].reason.as_str()), (1, true, "FieldIgnored"));
    scenario.old_status = scenario.report_at(0).status;
    assert!(scenario.report_at(0).events.is_empty());
}

#[test]
fn counts_no_more_pods_than_planned() {
    let mut scenario =
        Scenario::worker().with_workloads(vec![replica("w", 0, 8, Pods::Ready(8)), replica("w", 1, 4, Pods::Ready(3))]);
    assert_eq!(scenario.component("w")["readyPods"], 7);
    scenario.workloads.truncate(1);
    assert_eq!(scenario.component("w")["readyPods"], 4);
}

#[rstest]
#[case::not_reported(RouteStatus::NotReported("HTTPRoute n/r".into()), "True AllReady Router is ready; no Gateway controller has reported status for HTTPRoute n/r", "True")]
#[case::accepted(RouteStatus::Accepted("Gateway gw".into()), "True AllReady Router is ready; Gateway gw accepted its route", "True")]
#[case::rejected(RouteStatus::Rejected("message".into()), "False RouteNotAccepted message", "False")]
fn reports_route_status_of_the_router(#[case] status: RouteStatus, #[case] router: &str, #[case] ready: &str) {
    let mut scenario = gang_scenario(Pods::Ready(2), [Pods::Ready(4); 2]);
    scenario.spec["roles"].as_array_mut().unwrap().push(json!({"name": "entry", "componentType": "router"}));
    let planned = json!({"kind": "Deployment", "spec": {"replicas": 1}, "status": {"readyReplicas": 1, "updatedReplicas": 1},
        "metadata": {"name": "s-epp", "labels": {COMPONENT_TYPE: "router"}}});
    scenario.workloads.push(PlannedWorkload::new(planned.clone(), Some(planned), Vec::new()));
    scenario.route_status = Some(status);
    let condition = scenario.condition("RouterReady");
    assert_eq!(format!("{} {} {}", condition.status.as_str(), condition.reason, condition.message), router);
    assert_eq!(scenario.condition("Ready").status.as_str(), ready);
    assert_eq!(scenario.condition("Active").status, cluster::ConditionStatus::True);
}

// spec: TOP-79
#[test]
fn components_are_the_roles_of_the_spec() {
    let mut scenario = gang_scenario(Pods::Ready(2), [Pods::Ready(4); 2]);
    scenario.old_status = scenario.report_at(0).status;
    scenario.spec["roles"].as_array_mut().unwrap().remove(0);
    let components = scenario.report_at(0).status["components"].clone();
    assert_eq!(components.as_object().unwrap().keys().collect::<Vec<_>>(), ["decode"]);
}

/// Conditions state their generation only if it is not the one of the status: here, of the last reconcile that listed the Pods.
// spec: TOP-78
#[rstest]
#[case::current(&[], 3, Value::Null)]
#[case::unlisted(&["pods"], 2, json!(3))]
fn conditions_have_an_observed_generation(#[case] unlisted: &[&str], #[case] status: i64, #[case] conditions: Value) {
    let mut scenario = gang_scenario(Pods::Ready(2), [Pods::Ready(4); 2]);
    scenario.old_status = json!({"observedGeneration": 2});
    scenario.unlisted = unlisted.iter().map(|kind| (*kind).to_owned()).collect();
    let report = scenario.report_at(0).status;
    assert_eq!(report["observedGeneration"], status);
    let mut rendered = report["conditions"].as_array().unwrap().iter();
    assert!(rendered.all(|condition| condition["observedGeneration"] == conditions), "{report}");
}

#[test]
fn reports_rollout_progress() {
    let mut scenario = gang_scenario(Pods::Ready(2), [Pods::Ready(4); 2]);
    let service = json!({"apiVersion": "fusioninfer.io/v1alpha1", "spec": scenario.spec});
    // The live objects were never applied by the operator, so all replicas are outdated.
    scenario.rollouts =
        rollout::rollouts(&service, &scenario.workloads, &WaitingUpdates::default(), Timestamp::UNIX_EPOCH);
    scenario.rollouts.remove("prefill");
    let ready = scenario.condition("Ready");
    assert_eq!(
        (ready.reason.as_str(), ready.message.as_str()),
        ("RollingOut", "Rollout of role decode: 0 of 2 replicas are updated")
    );
    assert_eq!(
        scenario.report_at(0).status["rollouts"],
        json!({"decode": {"replicas": 2, "updatedReplicas": 0, "readyBefore": 2}})
    );
    scenario.annotations = json!({"fusioninfer.io/rollout-paused": "true"});
    assert_eq!(scenario.condition("Ready").reason, "RolloutPaused");
    scenario.workloads[1] = replica("decode", 0, 4, Pods::ImagePullFailed);
    let ready = scenario.condition("Ready");
    assert_eq!(ready.reason, "ImagePullFailed");
    assert!(
        ready.message.starts_with(
            "Rollout of role decode: 0 of 2 replicas are updated; Pod s-decode-0-0: failed to pull image bad:1"
        ),
        "{}",
        ready.message
    );
}
