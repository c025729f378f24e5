//! How groups and Pods are read, and what is shown of them.

use rstest::rstest;

use super::*;

/// Pods may exist before their group, which is read from one annotation only.
#[rstest]
#[case::no_group_yet("scheduling.k8s.io/group-name", "g is not there", "")]
#[case::another_annotation("scheduling.volcano.sh/group-name", "each Pod is a group of its own", "prefill-0:1")]
fn the_group_of_a_pod(#[case] annotation: &str, #[case] why: &str, #[case] expect: &str) {
    let mut pods = replica("prefill", 0, 2, Tasks::PerReplica, "g");
    for pod in &mut pods {
        pod["metadata"]["annotations"] = json!({annotation: "g"});
    }
    let mut world = World::new(8, pods.into_iter().map(Arc::new).collect(), Vec::new());
    world.turn();
    assert_eq!(world.bound(), expect, "{why}");
    world.grow(16);
    world.groups = vec![group("g", 0, json!({"minMember": 2}))];
    world.turn();
    assert_eq!(world.bound(), "prefill-0:2");
}

#[test]
fn the_task_is_read_from_the_annotation_else_from_the_label() {
    let mut pods = replica("prefill", 0, 2, Tasks::PerRole, "g");
    object::members(&mut pods[1]["metadata"]["annotations"]).remove("volcano.sh/task-spec");
    pods[1]["metadata"]["labels"]["volcano.sh/task-spec"] = json!("prefill");
    let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
    let spec = |task: &str| json!({"minMember": 2, "minTaskMember": {task: 2}});
    let mut world = World::new(16, pods.clone(), vec![group("g", 0, spec("prefill"))]);
    world.turn();
    assert_eq!(world.bound(), "prefill-0:2");
    // A key that no Pod carries blocks the group for ever.
    let mut blocked = World::new(16, pods, vec![group("g", 0, spec("nobody"))]);
    blocked.turn();
    assert_eq!(blocked.bound(), "");
}

#[test]
fn a_role_scaled_to_none_must_lose_its_policy() {
    let pods: Vec<_> = replica("prefill", 0, 2, Tasks::PerReplica, "g").into_iter().map(Arc::new).collect();
    let two = |policies: Value| json!({"minMember": 2, "subGroupPolicy": policies});
    let both = two(json!([policy("prefill", 2), policy("decode", 4)]));
    let mut world = World::new(80, pods, vec![group("g", 0, both)]);
    world.turn();
    assert_eq!(world.bound(), "");
    world.set(two(json!([policy("prefill", 2)])));
    world.turn();
    assert_eq!(world.bound(), "prefill-0:2");
}

#[test]
fn a_changed_spec_counts_from_the_next_turn() {
    let mut world = running(48, a());
    assert_eq!(world.bound(), "");
    world.set(c());
    world.turn();
    assert_eq!(world.bound(), P_D0);
}

#[rstest]
#[case::nobody(c(), 0..0, "Inqueue")]
#[case::only_one_role(c(), 0..2, "Inqueue")]
#[case::a_replica_lacks_a_pod(c(), 0..5, "Inqueue")]
#[case::with_resources(with(c(), resources(48)), 0..5, "Pending")]
#[case::the_minimum(c(), 0..6, "Running")]
#[case::more(c(), 0..10, "Running")]
#[case::no_minimum(without(c(), "minMember"), 0..0, "Completed")]
fn the_phase_follows_what_is_bound(#[case] spec: Value, #[case] bound: std::ops::Range<usize>, #[case] expect: &str) {
    let pods = story(2, Tasks::PerReplica, Groups::One);
    assert_eq!(gang::phase(&json!({"spec": spec}), &pods[bound]), expect);
}

#[test]
fn a_group_that_does_not_exist_is_named() {
    let verdicts =
        gang::assign("g", None, &story(1, Tasks::PerReplica, Groups::One), &[], &mut Vec::new(), &Seen::default());
    let Outcome::Wait { message, .. } = &verdicts[0].outcome else { panic!() };
    assert_eq!(message, "pod group g is not found");
}
