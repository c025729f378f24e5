//! The table: what one or several groups bind, and what more room brings.

use rstest::rstest;

use super::*;

/// Measured ½P 1+2; which of the two decode replicas is first is chance.
const ROUND_4: &str = "decode-0:2 decode-1:1 prefill-0:1";
const ROUND_2: &str = "decode-0:1 decode-1:1";

/// The outcome table; columns are 80, 64, 48, 32 and 16 GPUs.
#[rstest]
#[case::a(a(), Tasks::PerReplica, [ALL, "", "", "", ""])]
#[case::a_6(with(a(), json!({"minMember": 6})), Tasks::PerReplica, [ALL, ROUND_8, ROUND_6, "", ""])]
#[case::a_without(without(a(), "minMember"), Tasks::PerReplica, [ALL, ROUND_8, ROUND_6, ROUND_4, ROUND_2])]
// 64 is – or P D0 0+2, by the order of creation.
#[case::b(json!({"minMember": 6, "minTaskMember": {"prefill-0": 2, "decode-0": 4}}), Tasks::PerReplica, [ALL, "", "", "", ""])]
#[case::b_by_role(json!({"minMember": 6, "minTaskMember": {"prefill": 2, "decode": 4}}), Tasks::PerRole, [ALL, ROUND_8, ROUND_6, "", ""])]
// spec: TOP-60
// spec: TOP-61
// spec: TOP-62
// spec: TOP-63
// spec: TOP-64
#[case::c(c(), Tasks::PerReplica, [ALL, P_D0, P_D0, "", ""])]
#[case::c_and_keys_of_a(with(c(), json!({"minTaskMember": a()["minTaskMember"]})), Tasks::PerReplica, [ALL, P_D0, P_D0, "", ""])]
#[case::c_10(with(c(), json!({"minMember": 10})), Tasks::PerReplica, [ALL, "", "", "", ""])]
#[case::c_without(without(c(), "minMember"), Tasks::PerReplica, [ALL, P_D0, P_D0, "", ""])]
#[case::c_no_label_keys(
    json!({"minMember": 6, "subGroupPolicy": [without(policy("prefill", 2), "matchLabelKeys"), without(policy("decode", 4), "matchLabelKeys")]}),
    Tasks::PerReplica, ["", "", "", "", ""]
)]
#[case::c_resources_of_the_minimum(with(c(), resources(48)), Tasks::PerReplica, [ALL, P_D0, P_D0, "", ""])]
#[case::c_resources_of_the_total(with(c(), resources(80)), Tasks::PerReplica, [ALL, "", "", "", ""])]
fn one_group(#[case] spec: Value, #[case] tasks: Tasks, #[case] expect: [&str; 5]) {
    let outcome = |gpus: usize| {
        let mut world = World::new(gpus, story(2, tasks, Groups::One), vec![group("g", 0, spec.clone())]);
        world.turn();
        world.turn();
        world.bound()
    };
    assert_eq!([80, 64, 48, 32, 16].map(outcome), expect.map(str::to_owned));
}

/// Several groups; `first` is the second at which P+D0's group was made, D1's at 5.
#[rstest]
#[case::d(Groups::Surplus, 5, [ALL, P_D0, P_D0, "decode-1:4", ""])]
#[case::d_surplus_first(Groups::Surplus, 9, [ALL, "decode-1:4", "decode-1:4", "decode-1:4", ""])]
#[case::e(Groups::PerReplica, 5, [ALL, "decode-0:4 decode-1:4", P_D0, "decode-0:4", "prefill-0:2"])]
fn several_groups(#[case] split: Groups, #[case] first: u32, #[case] expect: [&str; 5]) {
    let minimum = |name: &str, made: u32, members: u32| group(name, made, json!({"minMember": members}));
    let groups = match split {
        Groups::PerReplica => vec![minimum("prefill-0", 5, 2), minimum("decode-0", 5, 4), minimum("decode-1", 5, 4)],
        _ => vec![minimum("first", first, 6), minimum("surplus", 5, 4)],
    };
    let outcome = |gpus: usize| {
        let mut world = World::new(gpus, story(2, Tasks::PerReplica, split), groups.clone());
        world.turn();
        world.bound()
    };
    assert_eq!([80, 64, 48, 32, 16].map(outcome), expect.map(str::to_owned));
}

#[test]
fn a_surplus_group_that_is_made_once_the_first_runs_follows_the_table() {
    let outcome = |gpus: usize| {
        let first = group("first", 0, json!({"minMember": 6}));
        let mut world = World::new(gpus, story(1, Tasks::PerReplica, Groups::Surplus), vec![first]);
        world.turn();
        if !world.bound().is_empty() {
            world.groups.push(group("surplus", 9, json!({"minMember": 4})));
            world.add(replica("decode", 1, 4, Tasks::PerReplica, "surplus"));
            world.turn();
        }
        world.bound()
    };
    assert_eq!([80, 64, 48, 32, 16].map(outcome), [ALL, P_D0, P_D0, "", ""].map(str::to_owned));
}

/// GPUs added later: 32, 48, 64, 80.
#[rstest]
#[case::a(vec![group("g", 0, a())], Groups::One, ["", "", "", ALL])]
#[case::c(vec![group("g", 0, c())], Groups::One, ["", P_D0, P_D0, ALL])]
#[case::d(
    vec![group("first", 0, json!({"minMember": 6})), group("surplus", 0, json!({"minMember": 4}))], Groups::Surplus,
    ["decode-1:4", "decode-1:4", "decode-1:4", ALL]
)]
fn growing(#[case] groups: Vec<Arc<Value>>, #[case] split: Groups, #[case] expect: [&str; 4]) {
    let mut world = World::new(0, story(2, Tasks::PerReplica, split), groups);
    let outcome = |gpus: usize| {
        world.grow(gpus);
        world.turn();
        world.bound()
    };
    assert_eq!([32, 48, 64, 80].map(outcome), expect.map(str::to_owned));
}
