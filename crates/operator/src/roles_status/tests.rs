use cluster::Condition;
use cluster::apply::Outcome;
use plan::labels::{COMPONENT_TYPE, GROUP_NAME, REPLICA_INDEX, ROLE_NAME};
use rstest::rstest;

use super::role::Phase;
use super::*;
use crate::rollout;

/// A service in one word each: what is declared, and what is there.
#[derive(Default)]
struct Case {
    spec: Value,
    annotations: Value,
    old: Value,
    workloads: Vec<Wanted>,
    applied: Vec<Applied>,
    unread: Vec<String>,
    plan: ServicePlan,
    rollouts: Rollouts,
    routes: Option<Answer>,
}

impl Case {
    fn pair() -> Case {
        let spec = json!({"roles": [
            {"name": "prefill", "componentType": "prefiller", "multinode": {"nodeCount": 2}},
            {"name": "decode", "componentType": "decoder", "replicas": 2, "multinode": {"nodeCount": 4}}]});
        Case { spec, plan: ServicePlan { feasible: true, ..ServicePlan::default() }, ..Case::default() }
    }

    fn worker() -> Case {
        let spec =
            json!({"roles": [{"name": "w", "componentType": "worker", "replicas": 2, "multinode": {"nodeCount": 4}}]});
        Case { spec, plan: ServicePlan { feasible: true, ..ServicePlan::default() }, ..Case::default() }
    }

    fn with(mut self, workloads: Vec<Wanted>) -> Case {
        self.workloads = workloads;
        self
    }

    fn report_at(&self, second: i64) -> Report {
        let service = json!({"apiVersion": "fusioninfer.io/v1alpha1", "spec": self.spec, "status": self.old,
            "metadata": {"name": "s", "generation": 3, "annotations": self.annotations}});
        let roles = roles(&service);
        let findings = Findings {
            service: &service,
            plan: Some(&self.plan),
            roles: &roles,
            workloads: &self.workloads,
            applied: &self.applied,
            rollouts: &self.rollouts,
            routes: self.routes.as_ref().unwrap_or(&Answer::NotAsked),
            unread: &self.unread,
        };
        report(&findings, Timestamp::from_second(second).unwrap())
    }

    fn condition(&self, kind: &str) -> Condition {
        self.report_at(0).conditions.into_iter().find(|one| one.kind == kind).unwrap()
    }

    fn short(&self) -> Vec<String> {
        let told = |one: &Condition| format!("{}={} {}", one.kind, one.state.as_str(), one.reason);
        self.report_at(0).conditions.iter().map(told).collect()
    }

    fn component(&self, role: &str) -> Value {
        self.report_at(0).status["components"][role].clone()
    }
}

#[derive(Clone, Copy)]
enum Pods {
    Ready(usize),
    /// The scheduler refuses them.
    NoRoom,
    CannotPull,
}

/// Replica `index` of a gang role with `nodes` Pods.
fn replica(role: &str, index: usize, nodes: usize, state: Pods) -> Wanted {
    let name = format!("s-{role}-{index}");
    let planned = json!({"kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": {ROLE_NAME: role, REPLICA_INDEX: index.to_string()}},
        "spec": {"leaderWorkerTemplate": {"size": nodes, "workerTemplate": {"metadata": {"annotations": {GROUP_NAME: "s"}}}}}});
    let pod = |at: usize| {
        let (spec, status) = match state {
            Pods::Ready(ready) => {
                let ready = if at < ready { "True" } else { "False" };
                (
                    json!({"nodeName": "n"}),
                    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}),
                )
            }
            Pods::NoRoom => (
                json!({}),
                json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "8 more GPUs are needed"}]}),
            ),
            Pods::CannotPull => (
                json!({"nodeName": "n"}),
                json!({"phase": "Pending", "containerStatuses": [{"name": "e", "image": "bad:1",
                "ready": false, "state": {"waiting": {"reason": "ErrImagePull"}}}]}),
            ),
        };
        json!({"kind": "Pod", "metadata": {"name": format!("{name}-{at}")}, "spec": spec, "status": status})
    };
    let all = matches!(state, Pods::Ready(ready) if ready == nodes);
    let mut live = planned.clone();
    live["spec"]["replicas"] = json!(1);
    live["status"] = json!({"readyReplicas": i64::from(all), "updatedReplicas": 1});
    Wanted::of(planned, Some(live), (0..nodes).map(pod).collect())
}

fn story_4(prefill: Pods, decode: [Pods; 2]) -> Case {
    let [first, second] = decode;
    Case::pair().with(vec![
        replica("prefill", 0, 2, prefill),
        replica("decode", 0, 4, first),
        replica("decode", 1, 4, second),
    ])
}

// spec: TOP-80
// spec: TOP-81
#[test]
fn three_of_four_pods_are_no_replica_but_are_seen() {
    let case = Case::worker().with(vec![replica("w", 0, 4, Pods::Ready(4)), replica("w", 1, 4, Pods::Ready(3))]);
    assert_eq!(
        case.component("w"),
        json!({"desiredReplicas": 2, "readyReplicas": 1, "nodesPerReplica": 4, "totalPods": 8,
            "readyPods": 7, "phase": "Deploying", "lastUpdateTime": "1970-01-01T00:00:00Z"})
    );
    assert_eq!(
        case.short(),
        [
            "Initialized=True ObjectsApplied",
            "Active=True MinimumReady",
            "Failed=False NoFailure",
            "GangScheduled=True FullCapacity",
            "Ready=False NotReadyYet"
        ]
    );
}

// spec: TOP-84
#[test]
fn the_time_moves_only_with_the_content() {
    let mut case = Case::worker().with(vec![replica("w", 0, 4, Pods::Ready(3))]);
    case.old = case.report_at(0).status;
    assert_eq!(case.report_at(60).status, case.old);
    case.workloads = vec![replica("w", 0, 4, Pods::Ready(4))];
    assert_eq!(case.report_at(60).status["components"]["w"]["lastUpdateTime"], "1970-01-01T00:01:00Z");
}

// spec: TOP-82
#[rstest]
#[case::nothing(1, 0, false, false, Phase::Pending)]
#[case::made(1, 0, true, false, Phase::Deploying)]
#[case::some(2, 1, true, false, Phase::Deploying)]
#[case::all(2, 2, true, false, Phase::Running)]
#[case::zero(0, 0, false, false, Phase::Running)]
#[case::failed(1, 0, true, true, Phase::Failed)]
fn phases(#[case] desired: i64, #[case] ready: i64, #[case] exists: bool, #[case] failed: bool, #[case] expect: Phase) {
    assert_eq!(Phase::of(desired, ready, exists, failed), expect);
}

// spec: TOP-85
#[rstest]
#[case::full(Pods::Ready(2), [Pods::Ready(4); 2], "True FullCapacity", "every replica has its nodes: 1 prefill + 2 decode")]
#[case::placed_and_not_ready(Pods::Ready(0), [Pods::Ready(0); 2], "True FullCapacity", "every replica has its nodes: 1 prefill + 2 decode")]
#[case::partial(Pods::Ready(2), [Pods::Ready(4), Pods::NoRoom], "True PartialCapacity",
    "1 prefill + 1 decode of 1 + 2; decode-1 waits: 8 more GPUs are needed")]
#[case::blocked(Pods::NoRoom, [Pods::NoRoom; 2], "False Blocked",
    "nothing runs before one replica of each role has its nodes; prefill-0 waits: 8 more GPUs are needed")]
#[case::a_role_is_lost(Pods::NoRoom, [Pods::Ready(4), Pods::NoRoom], "False BelowMinimum",
    "0 prefill + 1 decode of 1 + 2 have all their nodes; prefill-0 waits: 8 more GPUs are needed")]
fn how_much_of_a_gang_is_placed(
    #[case] prefill: Pods,
    #[case] decode: [Pods; 2],
    #[case] expect: &str,
    #[case] message: &str,
) {
    let told = story_4(prefill, decode).condition("GangScheduled");
    assert_eq!((format!("{} {}", told.state.as_str(), told.reason).as_str(), told.message.as_str()), (expect, message));
}

#[test]
fn a_gang_that_the_scheduler_has_not_seen_is_no_problem_yet() {
    let mut case = story_4(Pods::NoRoom, [Pods::NoRoom; 2]);
    for wanted in &mut case.workloads {
        *wanted = Wanted::of(wanted.planned.clone(), None, Vec::new());
    }
    let told = case.condition("GangScheduled");
    assert_eq!((told.state, told.reason.as_str(), told.tone), (cluster::State::False, "Starting", cluster::Tone::News));
}

#[test]
fn a_volcano_that_knows_all_or_nothing_is_named_as_the_cause() {
    let mut case = story_4(Pods::NoRoom, [Pods::NoRoom; 2]);
    case.plan.warnings = vec![Warning::new(plan::code::warning::GANG_ALL_OR_NOTHING, "m")];
    assert_eq!(case.condition("GangScheduled").reason, "GangAllOrNothing");
}

#[test]
fn partial_capacity_is_active_and_not_ready() {
    let case = story_4(Pods::Ready(2), [Pods::Ready(4), Pods::NoRoom]);
    assert_eq!(case.condition("Active").state, cluster::State::True);
    let ready = case.condition("Ready");
    assert_eq!((ready.state, ready.reason.as_str()), (cluster::State::False, "Unschedulable"));
}

// spec: TOP-83
#[test]
fn failed_comes_and_goes_with_its_cause() {
    let failing = story_4(Pods::Ready(2), [Pods::CannotPull, Pods::Ready(4)]);
    assert_eq!(
        (&failing.component("decode")["phase"], &failing.component("prefill")["phase"]),
        (&json!("Failed"), &json!("Running"))
    );
    let failed = failing.condition("Failed");
    assert_eq!((failed.state, failed.reason.as_str()), (cluster::State::True, "ImagePullFailed"));
    let mut crashing = story_4(Pods::Ready(2), [Pods::Ready(3), Pods::Ready(4)]);
    for (crashes, phase) in [(2, "Deploying"), (3, "Failed"), (0, "Deploying")] {
        crashing.workloads[1].crashes = crashes;
        assert_eq!(crashing.component("decode")["phase"], phase, "{crashes} crashes");
    }
    assert_eq!(crashing.condition("Failed").state, cluster::State::False);
}

// spec: TOP-83
#[test]
fn what_cannot_be_read_is_unknown_and_keeps_its_counts() {
    let mut case = story_4(Pods::Ready(2), [Pods::Ready(4); 2]);
    case.old = case.report_at(0).status;
    case.old["observedGeneration"] = json!(2);
    (case.workloads, case.unread) = (Vec::new(), vec!["pods".to_owned()]);
    let status = case.report_at(60).status;
    let mut expect = case.old["components"]["decode"].clone();
    (expect["phase"], expect["lastUpdateTime"]) = (json!("Unknown"), json!("1970-01-01T00:01:00Z"));
    assert_eq!(status["components"]["decode"], expect);
    assert_eq!(status["observedGeneration"], 2);
    let unknown = |kind: &str| format!("{kind}=Unknown StateUnreadable");
    assert_eq!(case.short(), ["Initialized", "Active", "Failed", "Ready"].map(unknown));
}

#[test]
fn a_router_is_counted_from_its_deployment() {
    let mut case = story_4(Pods::Ready(2), [Pods::Ready(4); 2]);
    case.spec["roles"].as_array_mut().unwrap().push(json!({"name": "entry", "componentType": "router"}));
    let planned = json!({"kind": "Deployment", "spec": {"replicas": 1},
        "metadata": {"name": "s-epp", "labels": {COMPONENT_TYPE: "router"}}});
    let stands = |case: &Case| ["RouterReady", "Active", "Ready"].map(|kind| case.condition(kind).state.as_str());
    case.workloads.push(Wanted::of(planned.clone(), Some(planned.clone()), Vec::new()));
    assert_eq!(case.component("entry")["phase"], "Deploying");
    assert_eq!(stands(&case), ["False", "True", "False"]);
    let mut live = planned.clone();
    live["status"] = json!({"readyReplicas": 1, "updatedReplicas": 1});
    *case.workloads.last_mut().unwrap() = Wanted::of(planned, Some(live), Vec::new());
    assert_eq!(case.component("entry")["readyPods"], 1);
    assert_eq!(stands(&case), ["True"; 3]);
    // Without the kind of its pool the engines still answer.
    let object = "InferencePool n/s-pool".to_owned();
    case.applied.push(Applied { object, kind: "InferencePool".to_owned(), outcome: Outcome::KindMissing });
    assert_eq!(stands(&case), ["False", "True", "False"]);
    assert!(case.condition("Ready").message.contains("Gateway API Inference Extension"));
}

/// An edit that cannot be laid out ends nothing: what runs is counted, and answers.
// spec: TOP-83
#[test]
fn what_runs_is_told_though_the_edit_cannot_be_laid_out() {
    let mut case = story_4(Pods::Ready(2), [Pods::Ready(4); 2]);
    case.plan = ServicePlan { reason: "InvalidTemplate".into(), message: "role prefill, …".into(), ..case.plan };
    case.plan.feasible = false;
    let told = [
        "Initialized=False InvalidTemplate",
        "Active=True MinimumReady",
        "Failed=True InvalidTemplate",
        "Ready=False InvalidTemplate",
    ];
    assert_eq!(case.short(), told);
    let decode = case.component("decode");
    assert_eq!(
        (&decode["phase"], &decode["readyReplicas"], &decode["readyPods"]),
        (&json!("Failed"), &json!(2), &json!(8))
    );
}

// spec: TOP-10
#[test]
fn what_has_no_effect_is_told_once_for_each_edit() {
    let mut case = story_4(Pods::Ready(2), [Pods::Ready(4); 2]);
    case.plan.warnings = vec![Warning::new(plan::code::warning::FIELD_IGNORED, "m")];
    let news = case.report_at(0).news;
    assert_eq!((news.len(), news[0].warning, news[0].reason.as_str()), (1, true, "FieldIgnored"));
    case.old = case.report_at(0).status;
    assert!(case.report_at(0).news.is_empty());
}

#[test]
fn a_replica_that_shrinks_has_no_more_pods_than_it_will_have() {
    let mut case = Case::worker().with(vec![replica("w", 0, 8, Pods::Ready(8)), replica("w", 1, 4, Pods::Ready(3))]);
    assert_eq!(case.component("w")["readyPods"], 7);
    case.workloads.truncate(1);
    assert_eq!(case.component("w")["readyPods"], 4);
}

#[rstest]
#[case::nobody_answers(Answer::Silent("HTTPRoute n/r".into()), "True AllReady the router is ready; no Gateway has said anything of HTTPRoute n/r", "True")]
#[case::taken(Answer::Accepted("Gateway gw".into()), "True AllReady the router is ready; Gateway gw leads to it", "True")]
#[case::refused(Answer::Refused("words".into()), "False RouteNotAccepted words", "False")]
fn whether_a_gateway_leads_to_the_router(#[case] answer: Answer, #[case] router: &str, #[case] ready: &str) {
    let mut case = story_4(Pods::Ready(2), [Pods::Ready(4); 2]);
    case.spec["roles"].as_array_mut().unwrap().push(json!({"name": "entry", "componentType": "router"}));
    let planned = json!({"kind": "Deployment", "spec": {"replicas": 1}, "status": {"readyReplicas": 1, "updatedReplicas": 1},
        "metadata": {"name": "s-epp", "labels": {COMPONENT_TYPE: "router"}}});
    case.workloads.push(Wanted::of(planned.clone(), Some(planned), Vec::new()));
    case.routes = Some(answer);
    let told = case.condition("RouterReady");
    assert_eq!(format!("{} {} {}", told.state.as_str(), told.reason, told.message), router);
    assert_eq!(case.condition("Ready").state.as_str(), ready);
    assert_eq!(case.condition("Active").state, cluster::State::True);
}

// spec: TOP-79
#[test]
fn components_are_the_declared_roles() {
    let mut case = story_4(Pods::Ready(2), [Pods::Ready(4); 2]);
    case.old = case.report_at(0).status;
    case.spec["roles"].as_array_mut().unwrap().remove(0);
    let components = case.report_at(0).status["components"].clone();
    assert_eq!(components.as_object().unwrap().keys().collect::<Vec<_>>(), ["decode"]);
}

// spec: TOP-78
#[test]
fn every_condition_says_which_generation_it_is_about() {
    let status = story_4(Pods::Ready(2), [Pods::Ready(4); 2]).report_at(0).status;
    assert_eq!(status["observedGeneration"], 3);
    assert!(status["conditions"].as_array().unwrap().iter().all(|one| one["observedGeneration"] == 3), "{status}");
}

#[test]
fn a_rollout_is_not_ready_and_says_how_far_it_is() {
    let mut case = story_4(Pods::Ready(2), [Pods::Ready(4); 2]);
    let service = json!({"apiVersion": "fusioninfer.io/v1alpha1", "spec": case.spec});
    // Nothing of it was ever applied by us, so every replica is to be updated.
    case.rollouts = rollout::rollouts(&service, &case.workloads, Timestamp::UNIX_EPOCH);
    case.rollouts.remove("prefill");
    let ready = case.condition("Ready");
    assert_eq!(
        (ready.reason.as_str(), ready.message.as_str()),
        ("RollingOut", "rollout of decode: 0 of 2 replicas are updated")
    );
    assert_eq!(
        case.report_at(0).status["rollouts"],
        json!({"decode": {"replicas": 2, "updatedReplicas": 0, "readyBefore": 2}})
    );
    case.annotations = json!({"fusioninfer.io/rollout-paused": "true"});
    assert_eq!(case.condition("Ready").reason, "RolloutPaused");
    case.workloads[1] = replica("decode", 0, 4, Pods::CannotPull);
    let ready = case.condition("Ready");
    assert_eq!(ready.reason, "ImagePullFailed");
    assert!(
        ready.message.starts_with("rollout of decode: 0 of 2 replicas are updated; Pod s-decode-0-0: image bad:1"),
        "{}",
        ready.message
    );
}
