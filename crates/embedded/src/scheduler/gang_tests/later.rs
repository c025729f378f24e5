//! Services that run already: replaced Pods, lost nodes, more replicas, neighbours.

use super::*;

#[test]
fn a_third_replica_waits_whole_with_the_group_unchanged() {
    let mut world = running(104, c());
    assert_eq!(world.bound(), ALL);
    world.add(replica("decode", 2, 4, Tasks::PerReplica, "g"));
    world.turn();
    assert_eq!(world.bound(), ALL, "three nodes are free, it needs four");
    world.grow(112);
    world.turn();
    assert_eq!(world.bound(), "decode-0:4 decode-1:4 decode-2:4 prefill-0:2");
}

#[test]
fn a_replaced_pod_of_a_running_service_is_bound_again() {
    let mut world = running(80, c());
    world.recreate("decode-0-3");
    assert_eq!(world.bound(), "decode-0:3 decode-1:4 prefill-0:2");
    world.turn();
    assert_eq!(world.bound(), ALL);
}

#[test]
fn after_a_node_loss_that_replica_waits_whole_and_the_others_and_a_restarted_prefill_go_on() {
    let mut world = running(80, c());
    let lost = Value::clone(&world.lose("decode-0-2"));
    // The set makes the whole group anew.
    world.add(vec![without_node(lost)]);
    world.recreate("decode-0-");
    world.turn();
    assert_eq!(world.bound(), P_D1);
    world.recreate("prefill-0-");
    world.turn();
    assert_eq!(world.bound(), P_D1);
    world.grow(88);
    world.turn();
    assert_eq!(world.bound(), ALL);
}

#[test]
fn under_a_a_restarted_prefill_never_returns_after_a_node_loss() {
    let mut world = running(80, a());
    world.lose("decode-0-2");
    world.recreate("prefill-0-");
    world.turn();
    assert_eq!(world.bound(), "decode-0:3 decode-1:4");
}

#[test]
fn under_a_scaling_up_keeps_a_replaced_pod_from_its_free_gpus() {
    let mut world = running(80, a());
    let keys = json!({"prefill-0": 2, "decode-0": 4, "decode-1": 4, "decode-2": 4});
    world.set(json!({"minMember": 14, "minTaskMember": keys}));
    world.add(replica("decode", 2, 4, Tasks::PerReplica, "g"));
    world.recreate("decode-0-3");
    world.turn();
    assert_eq!(world.bound(), "decode-0:3 decode-1:4 prefill-0:2");
}

#[test]
fn a_replica_that_fits_nowhere_does_not_block_the_others() {
    let mut world = World::new(80, story(2, Tasks::PerReplica, Groups::One), vec![group("g", 0, c())]);
    for pod in world.pods.iter_mut().filter(|pod| object::name(pod).starts_with("decode-0-")) {
        let mut picky = Value::clone(pod);
        picky["spec"]["nodeSelector"] = json!({"no": "where"});
        *pod = Arc::new(picky);
    }
    world.turn();
    assert_eq!(world.bound(), P_D1);
}

#[test]
fn of_two_services_one_runs_and_the_other_holds_nothing() {
    let mut world = World::new(64, story(1, Tasks::PerReplica, Groups::One), vec![group("g", 0, c())]);
    let second = story(1, Tasks::PerReplica, Groups::One).into_iter().map(|pod| {
        let mut pod = Value::clone(&pod);
        pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!("second");
        let name = format!("second-{}", object::name(&pod));
        (pod["metadata"]["name"], pod["metadata"]["uid"]) = (json!(name), json!(name));
        pod
    });
    world.add(second.collect());
    world.groups.push(group("second", 1, c()));
    world.turn();
    assert_eq!(world.bound(), P_D0);
}

#[test]
fn a_replica_lacking_a_pod_is_not_bound() {
    let mut world = World::new(80, story(2, Tasks::PerReplica, Groups::One), vec![group("g", 0, c())]);
    world.pods.retain(|pod| object::name(pod) != "decode-0-3");
    world.turn();
    assert_eq!(world.bound(), P_D1);
}
