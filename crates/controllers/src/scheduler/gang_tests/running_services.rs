//! Gang scheduling of running services: recreated Pods, node failures, scaling up, and several services in one cluster.

use super::*;

#[test]
fn additional_replica_waits_until_it_fits_entirely() {
    let mut cluster = scheduled_cluster(104, encoding_c());
    assert_eq!(cluster.bound_counts(), ALL_BOUND);
    cluster.add_pods(replica("decode", 2, 4, TaskNaming::PerReplica, "g"));
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), ALL_BOUND, "three nodes are free, the replica needs four");
    cluster.grow_to(112);
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), "decode-0:4 decode-1:4 decode-2:4 prefill-0:2");
}

#[test]
fn rebinds_recreated_pod() {
    let mut cluster = scheduled_cluster(80, encoding_c());
    cluster.recreate_pods("decode-0-3");
    assert_eq!(cluster.bound_counts(), "decode-0:3 decode-1:4 prefill-0:2");
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), ALL_BOUND);
}

#[test]
fn node_loss_affects_only_its_replica() {
    let mut cluster = scheduled_cluster(80, encoding_c());
    let lost_pod = Value::clone(&cluster.remove_node_of("decode-0-2"));
    // The LeaderWorkerSet controller recreates all Pods of the replica.
    cluster.add_pods(vec![unbound(lost_pod)]);
    cluster.recreate_pods("decode-0-");
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), PREFILL_DECODE_1);
    cluster.recreate_pods("prefill-0-");
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), PREFILL_DECODE_1);
    cluster.grow_to(88);
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), ALL_BOUND);
}

#[test]
fn encoding_a_does_not_rebind_prefill_after_node_loss() {
    let mut cluster = scheduled_cluster(80, encoding_a());
    cluster.remove_node_of("decode-0-2");
    cluster.recreate_pods("prefill-0-");
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), "decode-0:3 decode-1:4");
}

#[test]
fn encoding_a_does_not_rebind_pod_while_scaling_up() {
    let mut cluster = scheduled_cluster(80, encoding_a());
    let tasks = json!({"prefill-0": 2, "decode-0": 4, "decode-1": 4, "decode-2": 4});
    cluster.set_group_spec(json!({"minMember": 14, "minTaskMember": tasks}));
    cluster.add_pods(replica("decode", 2, 4, TaskNaming::PerReplica, "g"));
    cluster.recreate_pods("decode-0-3");
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), "decode-0:3 decode-1:4 prefill-0:2");
}

#[test]
fn unschedulable_replica_does_not_block_others() {
    let mut cluster = SchedulerFixture::new(
        80,
        workload(2, TaskNaming::PerReplica, Grouping::Single),
        vec![group("g", 0, encoding_c())],
    );
    for pod in cluster.pods.iter_mut().filter(|pod| object::name(pod).starts_with("decode-0-")) {
        let mut constrained = Value::clone(pod);
        constrained["spec"]["nodeSelector"] = json!({"no": "where"});
        *pod = Arc::new(constrained);
    }
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), PREFILL_DECODE_1);
}

#[test]
fn waiting_service_reserves_nothing() {
    let mut cluster = SchedulerFixture::new(
        64,
        workload(1, TaskNaming::PerReplica, Grouping::Single),
        vec![group("g", 0, encoding_c())],
    );
    let second_service = workload(1, TaskNaming::PerReplica, Grouping::Single).into_iter().map(|pod| {
        let mut pod = Value::clone(&pod);
        pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!("second");
        let name = format!("second-{}", object::name(&pod));
        (pod["metadata"]["name"], pod["metadata"]["uid"]) = (json!(name), json!(name));
        pod
    });
    cluster.add_pods(second_service.collect());
    cluster.groups.push(group("second", 1, encoding_c()));
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), PREFILL_DECODE_0);
}

#[test]
fn does_not_bind_incomplete_replica() {
    let mut cluster = SchedulerFixture::new(
        80,
        workload(2, TaskNaming::PerReplica, Grouping::Single),
        vec![group("g", 0, encoding_c())],
    );
    cluster.pods.retain(|pod| object::name(pod) != "decode-0-3");
    cluster.schedule();
    assert_eq!(cluster.bound_counts(), PREFILL_DECODE_1);
}
