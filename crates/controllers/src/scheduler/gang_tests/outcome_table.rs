//! Outcome tables: which Pods of one or several PodGroups are bound for a given cluster size, also after nodes are
//! added.

use rstest::rstest;

use super::*;

/// Four bound Pods: Volcano binds 1 prefill Pod and 3 decode Pods. Which decode replica gets 2 Pods is random in
/// Volcano.
const ROUND_ROBIN_4: &str = "decode-0:2 decode-1:1 prefill-0:1";
const ROUND_ROBIN_2: &str = "decode-0:1 decode-1:1";

/// Bound Pods of one PodGroup. Each array has the results for clusters with 80, 64, 48, 32 and 16 GPUs.
#[rstest]
#[case::encoding_a(encoding_a(), TaskNaming::PerReplica, [ALL_BOUND, "", "", "", ""])]
#[case::encoding_a_6(with_fields(encoding_a(), json!({"minMember": 6})), TaskNaming::PerReplica, [ALL_BOUND, ROUND_ROBIN_8, ROUND_ROBIN_6, "", ""])]
#[case::encoding_a_without(without_field(encoding_a(), "minMember"), TaskNaming::PerReplica, [ALL_BOUND, ROUND_ROBIN_8, ROUND_ROBIN_6, ROUND_ROBIN_4, ROUND_ROBIN_2])]
// With 64 GPUs, the result in Volcano depends on the creation order of the Pods: it binds either no Pod, or all Pods of
// `prefill-0` and `decode-0` and 2 Pods of `decode-1`.
#[case::encoding_b(json!({"minMember": 6, "minTaskMember": {"prefill-0": 2, "decode-0": 4}}), TaskNaming::PerReplica, [ALL_BOUND, "", "", "", ""])]
#[case::encoding_b_by_role(json!({"minMember": 6, "minTaskMember": {"prefill": 2, "decode": 4}}), TaskNaming::PerRole, [ALL_BOUND, ROUND_ROBIN_8, ROUND_ROBIN_6, "", ""])]
// spec: TOP-60
// spec: TOP-61
// spec: TOP-62
// spec: TOP-63
// spec: TOP-64
#[case::encoding_c(encoding_c(), TaskNaming::PerReplica, [ALL_BOUND, PREFILL_DECODE_0, PREFILL_DECODE_0, "", ""])]
#[case::encoding_c_and_keys_of_a(with_fields(encoding_c(), json!({"minTaskMember": encoding_a()["minTaskMember"]})), TaskNaming::PerReplica, [ALL_BOUND, PREFILL_DECODE_0, PREFILL_DECODE_0, "", ""])]
#[case::encoding_c_10(with_fields(encoding_c(), json!({"minMember": 10})), TaskNaming::PerReplica, [ALL_BOUND, "", "", "", ""])]
#[case::encoding_c_without(without_field(encoding_c(), "minMember"), TaskNaming::PerReplica, [ALL_BOUND, PREFILL_DECODE_0, PREFILL_DECODE_0, "", ""])]
#[case::encoding_c_no_label_keys(
    json!({"minMember": 6, "subGroupPolicy": [without_field(policy("prefill", 2), "matchLabelKeys"), without_field(policy("decode", 4), "matchLabelKeys")]}),
    TaskNaming::PerReplica, ["", "", "", "", ""]
)]
#[case::encoding_c_resources_of_the_minimum(with_fields(encoding_c(), min_resources(48)), TaskNaming::PerReplica, [ALL_BOUND, PREFILL_DECODE_0, PREFILL_DECODE_0, "", ""])]
#[case::encoding_c_resources_of_the_total(with_fields(encoding_c(), min_resources(80)), TaskNaming::PerReplica, [ALL_BOUND, "", "", "", ""])]
fn binds_one_group_as_in_table(#[case] spec: Value, #[case] tasks: TaskNaming, #[case] expect: [&str; 5]) {
    let outcome = |gpus: usize| {
        let mut cluster =
            SchedulerFixture::new(gpus, workload(2, tasks, Grouping::Single), vec![group("g", 0, spec.clone())]);
        cluster.schedule();
        cluster.schedule();
        cluster.bound_counts()
    };
    assert_eq!([80, 64, 48, 32, 16].map(outcome), expect.map(str::to_owned));
}

/// Bound Pods of several PodGroups. The group of `prefill-0` and `decode-0` is created at second `first`, the other
/// groups at second 5.
#[rstest]
#[case::encoding_d(Grouping::Surplus, 5, [ALL_BOUND, PREFILL_DECODE_0, PREFILL_DECODE_0, "decode-1:4", ""])]
#[case::encoding_d_surplus_first(Grouping::Surplus, 9, [ALL_BOUND, "decode-1:4", "decode-1:4", "decode-1:4", ""])]
#[case::encoding_e(Grouping::PerReplica, 5, [ALL_BOUND, "decode-0:4 decode-1:4", PREFILL_DECODE_0, "decode-0:4", "prefill-0:2"])]
fn binds_several_groups_as_in_table(#[case] grouping: Grouping, #[case] first: u32, #[case] expect: [&str; 5]) {
    let group_with_minimum =
        |name: &str, created: u32, members: u32| group(name, created, json!({"minMember": members}));
    let groups = match grouping {
        Grouping::PerReplica => vec![
            group_with_minimum("prefill-0", 5, 2),
            group_with_minimum("decode-0", 5, 4),
            group_with_minimum("decode-1", 5, 4),
        ],
        _ => vec![group_with_minimum("first", first, 6), group_with_minimum("surplus", 5, 4)],
    };
    let outcome = |gpus: usize| {
        let mut cluster = SchedulerFixture::new(gpus, workload(2, TaskNaming::PerReplica, grouping), groups.clone());
        cluster.schedule();
        cluster.bound_counts()
    };
    assert_eq!([80, 64, 48, 32, 16].map(outcome), expect.map(str::to_owned));
}

#[test]
fn surplus_group_created_later_binds_as_in_table() {
    let outcome = |gpus: usize| {
        let first = group("first", 0, json!({"minMember": 6}));
        let mut cluster =
            SchedulerFixture::new(gpus, workload(1, TaskNaming::PerReplica, Grouping::Surplus), vec![first]);
        cluster.schedule();
        if !cluster.bound_counts().is_empty() {
            cluster.groups.push(group("surplus", 9, json!({"minMember": 4})));
            cluster.add_pods(replica("decode", 1, 4, TaskNaming::PerReplica, "surplus"));
            cluster.schedule();
        }
        cluster.bound_counts()
    };
    assert_eq!(
        [80, 64, 48, 32, 16].map(outcome),
        [ALL_BOUND, PREFILL_DECODE_0, PREFILL_DECODE_0, "", ""].map(str::to_owned)
    );
}

/// The cluster grows from 32 to 48, 64 and 80 GPUs.
#[rstest]
#[case::encoding_a(vec![group("g", 0, encoding_a())], Grouping::Single, ["", "", "", ALL_BOUND])]
#[case::encoding_c(vec![group("g", 0, encoding_c())], Grouping::Single, ["", PREFILL_DECODE_0, PREFILL_DECODE_0, ALL_BOUND])]
#[case::encoding_d(
    vec![group("first", 0, json!({"minMember": 6})), group("surplus", 0, json!({"minMember": 4}))], Grouping::Surplus,
    ["decode-1:4", "decode-1:4", "decode-1:4", ALL_BOUND]
)]
fn binds_when_nodes_are_added(#[case] groups: Vec<Arc<Value>>, #[case] grouping: Grouping, #[case] expect: [&str; 4]) {
    let mut cluster = SchedulerFixture::new(0, workload(2, TaskNaming::PerReplica, grouping), groups);
    let outcome = |gpus: usize| {
        cluster.grow_to(gpus);
        cluster.schedule();
        cluster.bound_counts()
    };
    assert_eq!([32, 48, 64, 80].map(outcome), expect.map(str::to_owned));
}
