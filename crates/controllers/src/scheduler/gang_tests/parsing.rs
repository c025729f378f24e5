//! Parsing of the PodGroup spec and of Pod annotations, and the phase in the PodGroup status.

use rstest::rstest;

use super::*;

/// A Pod may exist before its PodGroup. Only the annotation `scheduling.k8s.io/group-name` assigns a Pod to a group.
#[rstest]
#[case::group_not_found("scheduling.k8s.io/group-name", "group g does not exist", "")]
#[case::ignored_annotation("scheduling.volcano.sh/group-name", "the annotation is ignored", "prefill-0:1")]
fn reads_group_from_annotation(#[case] annotation: &str, #[case] reason: &str, #[case] expect: &str) {
    let mut pods = replica("prefill", 0, 2, TaskNaming::PerReplica, "g");
    for pod in &mut pods {
        pod["metadata"]["annotations"] = json!({annotation: "g"});
    }
    let mut cluster = SchedulerFixture::new(8, pods.into_iter().map(Arc::new).collect(), Vec::new());
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), expect, "{reason}");
    cluster.grow_to(16);
    cluster.groups = vec![group("g", 0, json!({"minMember": 2}))];
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), "prefill-0:2");
}

#[test]
fn reads_task_from_annotation_or_label() {
    let mut pods = replica("prefill", 0, 2, TaskNaming::PerRole, "g");
    object::members(&mut pods[1]["metadata"]["annotations"]).remove("volcano.sh/task-spec");
    pods[1]["metadata"]["labels"]["volcano.sh/task-spec"] = json!("prefill");
    let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
    let spec = |task: &str| json!({"minMember": 2, "minTaskMember": {task: 2}});
    let mut cluster = SchedulerFixture::new(16, pods.clone(), vec![group("g", 0, spec("prefill"))]);
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), "prefill-0:2");
    // A task in `minTaskMember` that has no Pods blocks the group forever.
    let mut blocked = SchedulerFixture::new(16, pods, vec![group("g", 0, spec("unused"))]);
    blocked.schedule();
    assert_eq!(blocked.bound_counts(), "");
}

#[test]
fn policy_of_role_without_pods_blocks_group() {
    let pods: Vec<_> = replica("prefill", 0, 2, TaskNaming::PerReplica, "g").into_iter().map(Arc::new).collect();
    let with_policies = |policies: Value| json!({"minMember": 2, "subGroupPolicy": policies});
    let two_policies = with_policies(json!([policy("prefill", 2), policy("decode", 4)]));
    let mut cluster = SchedulerFixture::new(80, pods, vec![group("g", 0, two_policies)]);
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), "");
    cluster.set_group_spec(with_policies(json!([policy("prefill", 2)])));
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), "prefill-0:2");
}

#[test]
fn next_cycle_uses_changed_spec() {
    let mut cluster = scheduled_cluster(48, encoding_a());
    assert_eq!(cluster.bound_counts(), "");
    cluster.set_group_spec(encoding_c());
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), PREFILL_DECODE_0);
}

#[rstest]
#[case::none_bound(encoding_c(), 0..0, "Inqueue")]
#[case::one_role(encoding_c(), 0..2, "Inqueue")]
#[case::incomplete_replica(encoding_c(), 0..5, "Inqueue")]
#[case::with_min_resources(with_fields(encoding_c(), min_resources(48)), 0..5, "Pending")]
#[case::at_minimum(encoding_c(), 0..6, "Running")]
#[case::above_minimum(encoding_c(), 0..10, "Running")]
#[case::without_min_member(without_field(encoding_c(), "minMember"), 0..0, "Completed")]
fn phase_depends_on_bound_pods(#[case] spec: Value, #[case] bound: std::ops::Range<usize>, #[case] expect: &str) {
    let pods = workload(2, TaskNaming::PerReplica, Grouping::Single);
    assert_eq!(gang::group_phase(&json!({"spec": spec}), &pods[bound]), expect);
}

#[test]
fn reports_missing_group() {
    let decisions = gang::schedule_gang(
        "g",
        None,
        &workload(1, TaskNaming::PerReplica, Grouping::Single),
        &[],
        &mut Vec::new(),
        &SchedulingSnapshot::default(),
    );
    let Outcome::Wait { message, .. } = &decisions[0].outcome else { panic!() };
    assert_eq!(message, "pod group g is not found");
}
