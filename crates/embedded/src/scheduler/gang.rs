//! Pods of a Volcano PodGroup: placed together or not at all.
//!
//! `spec.minMember` counts Pods. With `minTaskMember` every task must have its number too. With `subGroupPolicy` the Pods
//! of a policy form subgroups by the values of `matchLabelKeys`; a subgroup is placed whole, and each policy needs
//! `minSubGroups` of them before any Pod of the group is bound. What comes beyond the minimum is placed subgroup by
//! subgroup as room allows. Measured on Volcano 1.15; preemption and queues are not done.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::selector::LabelSelector;
use serde_json::Value;

use super::filter::Candidate;
use super::{Outcome, Verdict, place};
use crate::object;
use crate::workloads::ownership::string_map;

const TASK: &str = "volcano.sh/task-spec";

/// Decides about `pending`, which with `bound` are all the Pods of `group`. Room that is given is taken from `candidates`.
pub(super) fn assign(
    name: &str,
    group: Option<&Value>,
    pending: &[Arc<Value>],
    bound: &[Arc<Value>],
    candidates: &mut Vec<Candidate>,
) -> Vec<Verdict> {
    let Some(group) = group else {
        return all_wait(pending, &format!("pod group {name} is not found"));
    };
    let minimum = Minimum::of(group);
    let mut trial = Trial { candidates: candidates.clone(), outcomes: BTreeMap::new() };
    let (subgroups, single) = subgroups(&minimum.policies, pending, bound);
    trial.place_minimum(&minimum, &subgroups);
    for subgroup in &subgroups {
        trial.place_whole(subgroup);
    }
    for pod in &single {
        trial.place_one(pod);
    }
    let placed: Vec<&Arc<Value>> = pending.iter().filter(|pod| trial.is_placed(pod)).collect();
    let together: Vec<&Arc<Value>> = bound.iter().chain(placed.iter().copied()).collect();
    if minimum.is_met(&together, &subgroups, &trial) {
        *candidates = trial.candidates;
        return pending
            .iter()
            .map(|pod| {
                trial.outcomes.get(object::name(pod)).map_or_else(
                    || wait(pod, "its subgroup is not complete yet"),
                    |outcome| Verdict { pod: Arc::clone(pod), outcome: outcome.clone() },
                )
            })
            .collect();
    }
    let why = trial.outcomes.values().find_map(|outcome| match outcome {
        Outcome::Wait { message, .. } => Some(format!("; {message}")),
        Outcome::Bind { .. } => None,
    });
    let message = format!(
        "pod group is not ready, {} of {} pending pods fit, {} are bound, {} minAvailable{}",
        placed.len(),
        pending.len(),
        bound.len(),
        minimum.members,
        why.unwrap_or_default()
    );
    all_wait(pending, &message)
}

/// What `status.phase` says of a group: `Running` while its minimum is bound.
pub(super) fn phase(group: &Value, bound: &[Arc<Value>]) -> &'static str {
    let minimum = Minimum::of(group);
    let (subgroups, _) = subgroups(&minimum.policies, &[], bound);
    let together: Vec<&Arc<Value>> = bound.iter().collect();
    let nothing = Trial { candidates: Vec::new(), outcomes: BTreeMap::new() };
    let is_running = !bound.is_empty() && minimum.is_met(&together, &subgroups, &nothing);
    if is_running { "Running" } else { "Pending" }
}

/// What must be placed before anything is.
struct Minimum {
    members: u64,
    /// Empty unless the numbers bind.
    tasks: BTreeMap<String, u64>,
    policies: Vec<Policy>,
}

/// One entry of `subGroupPolicy`.
struct Policy {
    selector: LabelSelector,
    keys: Vec<String>,
    size: usize,
    subgroups: usize,
}

/// Pods with the same values of the policy's keys.
struct Subgroup {
    policy: usize,
    pending: Vec<Arc<Value>>,
    bound: usize,
    size: usize,
}

impl Minimum {
    fn of(group: &Value) -> Self {
        let spec = group.get("spec").unwrap_or(&Value::Null);
        let members = spec.get("minMember").and_then(Value::as_u64).unwrap_or(1);
        let tasks: BTreeMap<String, u64> = spec
            .get("minTaskMember")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(task, count)| Some((task.clone(), count.as_u64()?)))
            .collect();
        // Volcano asks for tasks only where all of them together are within the group's minimum.
        let binding = tasks.values().sum::<u64>() <= members;
        let policies = spec.get("subGroupPolicy").and_then(Value::as_array).into_iter().flatten();
        Self {
            members,
            tasks: if binding { tasks } else { BTreeMap::new() },
            policies: policies.filter_map(Policy::of).collect(),
        }
    }

    fn is_met(&self, together: &[&Arc<Value>], subgroups: &[Subgroup], trial: &Trial) -> bool {
        let of_task = |task: &str| together.iter().filter(|pod| task_of(pod) == task).count() as u64;
        let whole = |policy: usize| subgroups.iter().filter(|s| s.policy == policy && trial.is_whole(s)).count();
        together.len() as u64 >= self.members
            && self.tasks.iter().all(|(task, count)| of_task(task) >= *count)
            && self.policies.iter().enumerate().all(|(at, policy)| whole(at) >= policy.subgroups)
    }
}

impl Policy {
    /// A policy without `matchLabelKeys` has no subgroups, and so no Pod of its group ever starts.
    fn of(policy: &Value) -> Option<Self> {
        let number = |field: &str| policy.get(field).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let keys = object::strings(policy.get("matchLabelKeys")).into_iter().map(str::to_owned).collect();
        Some(Self {
            selector: LabelSelector::from_json(policy.get("labelSelector").unwrap_or(&Value::Null)).ok()?,
            keys,
            size: number("subGroupSize").unwrap_or(1),
            subgroups: number("minSubGroups").unwrap_or(0),
        })
    }

    fn values(&self, pod: &Value) -> Option<Vec<String>> {
        let labels = string_map(pod.pointer("/metadata/labels"));
        if self.keys.is_empty() || !self.selector.matches(&labels) {
            return None;
        }
        self.keys.iter().map(|key| labels.get(key).cloned()).collect()
    }
}

/// The subgroups by policy and values, and the pending Pods that are in none.
fn subgroups(policies: &[Policy], pending: &[Arc<Value>], bound: &[Arc<Value>]) -> (Vec<Subgroup>, Vec<Arc<Value>>) {
    let of = |pod: &Value| policies.iter().enumerate().find_map(|(at, policy)| Some((at, policy.values(pod)?)));
    let mut found: BTreeMap<(usize, Vec<String>), Subgroup> = BTreeMap::new();
    let mut single = Vec::new();
    for (pod, is_bound) in pending.iter().map(|pod| (pod, false)).chain(bound.iter().map(|pod| (pod, true))) {
        let Some(key) = of(pod) else {
            if !is_bound {
                single.push(Arc::clone(pod));
            }
            continue;
        };
        let (policy, size) = (key.0, policies.get(key.0).map_or(1, |policy| policy.size));
        let subgroup = found.entry(key).or_insert(Subgroup { policy, pending: Vec::new(), bound: 0, size });
        match is_bound {
            true => subgroup.bound += 1,
            false => subgroup.pending.push(Arc::clone(pod)),
        }
    }
    (found.into_values().collect(), single)
}

/// Placements that count only if the minimum is met.
struct Trial {
    candidates: Vec<Candidate>,
    /// By Pod name; what is absent was not tried.
    outcomes: BTreeMap<String, Outcome>,
}

impl Trial {
    /// As many subgroups of each policy as it needs, before any surplus takes their room.
    fn place_minimum(&mut self, minimum: &Minimum, subgroups: &[Subgroup]) {
        for (at, policy) in minimum.policies.iter().enumerate() {
            let own = || subgroups.iter().filter(|subgroup| subgroup.policy == at);
            let mut whole = own().filter(|subgroup| self.is_whole(subgroup)).count();
            for subgroup in own() {
                if whole >= policy.subgroups {
                    break;
                }
                whole += usize::from(!self.is_whole(subgroup) && self.place_whole(subgroup));
            }
        }
    }

    /// Places every pending Pod of the subgroup, or none. Whether the subgroup is whole then.
    fn place_whole(&mut self, subgroup: &Subgroup) -> bool {
        if self.is_whole(subgroup) || subgroup.bound + subgroup.pending.len() < subgroup.size {
            return self.is_whole(subgroup);
        }
        let before = self.candidates.clone();
        let outcomes: Vec<Outcome> = subgroup.pending.iter().map(|pod| place(pod, &mut self.candidates)).collect();
        let refusal = outcomes.iter().find(|outcome| matches!(outcome, Outcome::Wait { .. })).cloned();
        if refusal.is_some() {
            self.candidates = before;
        }
        for (pod, outcome) in subgroup.pending.iter().zip(outcomes) {
            let outcome = refusal.clone().unwrap_or(outcome);
            self.outcomes.insert(object::name(pod).to_owned(), outcome);
        }
        refusal.is_none()
    }

    fn place_one(&mut self, pod: &Arc<Value>) {
        let outcome = place(pod, &mut self.candidates);
        self.outcomes.insert(object::name(pod).to_owned(), outcome);
    }

    fn is_placed(&self, pod: &Value) -> bool {
        matches!(self.outcomes.get(object::name(pod)), Some(Outcome::Bind { .. }))
    }

    fn is_whole(&self, subgroup: &Subgroup) -> bool {
        let placed = subgroup.pending.iter().filter(|pod| self.is_placed(pod)).count();
        placed == subgroup.pending.len() && subgroup.bound + placed >= subgroup.size
    }
}

/// The task of a Pod: its annotation, else its label.
fn task_of(pod: &Value) -> String {
    let of = |field: &str| pod.pointer(&format!("/metadata/{field}"))?.get(TASK)?.as_str().map(str::to_owned);
    of("annotations").or_else(|| of("labels")).unwrap_or_default()
}

fn all_wait(pods: &[Arc<Value>], message: &str) -> Vec<Verdict> {
    pods.iter().map(|pod| wait(pod, message)).collect()
}

fn wait(pod: &Arc<Value>, message: &str) -> Verdict {
    let outcome = Outcome::Wait { reason: "Unschedulable", message: message.to_owned() };
    Verdict { pod: Arc::clone(pod), outcome }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const GPUS_PER_NODE: i64 = 8;

    fn nodes(gpus: i64) -> Vec<Candidate> {
        let node = |at: i64| Candidate {
            node: Arc::new(json!({
                "metadata": {"name": format!("node-{at:02}")},
                "status": {"allocatable": {"nvidia.com/gpu": GPUS_PER_NODE.to_string()}},
            })),
            used: BTreeMap::new(),
        };
        (0..gpus / GPUS_PER_NODE).map(node).collect()
    }

    /// Story 4 of seed 002: prefill 1 × 2 Pods, decode `decodes` × 4 Pods, each Pod a whole node.
    fn story_4(decodes: usize) -> Vec<Arc<Value>> {
        let replica = |role: &'static str, index: usize, size: usize| {
            (0..size).map(move |at| {
                Arc::new(json!({
                    "metadata": {
                        "name": format!("{role}-{index}-{at}"),
                        "namespace": "n",
                        "labels": {"role": role, "replica": index.to_string()},
                        "annotations": {TASK: format!("{role}-{index}")},
                    },
                    "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": GPUS_PER_NODE}}}]},
                }))
            })
        };
        replica("prefill", 0, 2).chain((0..decodes).flat_map(|index| replica("decode", index, 4))).collect()
    }

    fn minimum_available() -> Value {
        let policy = |role: &str, size: u32| {
            json!({"name": role, "labelSelector": {"matchLabels": {"role": role}}, "matchLabelKeys": ["replica"],
                   "subGroupSize": size, "minSubGroups": 1})
        };
        json!({"spec": {"minMember": 6, "subGroupPolicy": [policy("prefill", 2), policy("decode", 4)]}})
    }

    fn all_or_nothing(min_member: u32) -> Value {
        json!({"spec": {"minMember": min_member, "minTaskMember": {"prefill-0": 2, "decode-0": 4, "decode-1": 4}}})
    }

    /// Pods bound of each replica, as `prefill-0 2, decode-0 4`.
    fn placed(group: &Value, pods: &[Arc<Value>], bound: &[Arc<Value>], gpus: i64) -> String {
        let mut candidates = nodes(gpus);
        let verdicts = assign("g", Some(group), pods, bound, &mut candidates);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for verdict in verdicts.iter().filter(|verdict| matches!(verdict.outcome, Outcome::Bind { .. })) {
            *counts.entry(task_of(&verdict.pod)).or_default() += 1;
        }
        counts.iter().map(|(task, count)| format!("{task} {count}")).collect::<Vec<_>>().join(", ")
    }

    // The table of seed 002, Story 4.
    #[rstest]
    // spec: TOP-60
    #[case(80, "decode-0 4, decode-1 4, prefill-0 2")]
    // spec: TOP-61
    #[case(64, "decode-0 4, prefill-0 2")]
    // spec: TOP-62
    #[case(48, "decode-0 4, prefill-0 2")]
    // spec: TOP-63
    #[case(32, "")]
    // spec: TOP-64
    #[case(16, "")]
    fn minimum_available_is_the_specifications_table(#[case] gpus: i64, #[case] expect: &str) {
        assert_eq!(placed(&minimum_available(), &story_4(2), &[], gpus), expect);
    }

    #[rstest]
    #[case::everything(10, 80, "decode-0 4, decode-1 4, prefill-0 2")]
    #[case::nothing(10, 64, "")]
    // Below the sum of its tasks Volcano does not ask for them.
    #[case::tasks_do_not_bind(6, 48, "decode-0 4, prefill-0 2")]
    fn tasks(#[case] min_member: u32, #[case] gpus: i64, #[case] expect: &str) {
        assert_eq!(placed(&all_or_nothing(min_member), &story_4(2), &[], gpus), expect);
    }

    #[test]
    fn a_waiting_replica_starts_whole_beside_the_running_ones() {
        let pods = story_4(2);
        let (pending, running): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| task_of(pod) == "decode-1");
        assert_eq!(placed(&minimum_available(), &pending, &running, 24), "");
        assert_eq!(placed(&minimum_available(), &pending, &running, 32), "decode-1 4");
    }

    #[test]
    fn a_replaced_pod_of_a_running_replica_is_bound_again() {
        let pods = story_4(1);
        let (pending, running): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| object::name(pod) == "decode-0-3");
        assert_eq!(placed(&minimum_available(), &pending, &running, 8), "decode-0 1");
    }

    #[test]
    fn a_replica_that_lacks_a_pod_is_not_bound_and_does_not_block_the_others() {
        let pods: Vec<_> = story_4(2).into_iter().filter(|pod| object::name(pod) != "decode-0-3").collect();
        assert_eq!(placed(&minimum_available(), &pods, &[], 80), "decode-1 4, prefill-0 2");
    }

    #[rstest]
    #[case::nobody(0..0, "Pending")]
    #[case::only_one_role(0..2, "Pending")]
    #[case::a_replica_lacks_a_pod(0..5, "Pending")]
    #[case::the_minimum(0..6, "Running")]
    #[case::more(0..10, "Running")]
    fn the_phase_follows_what_is_bound(#[case] bound: std::ops::Range<usize>, #[case] expect: &str) {
        assert_eq!(phase(&minimum_available(), &story_4(2)[bound]), expect);
    }

    #[test]
    fn without_keys_nothing_starts() {
        let mut group = minimum_available();
        group["spec"]["subGroupPolicy"][0]["matchLabelKeys"] = json!([]);
        assert_eq!(placed(&group, &story_4(2), &[], 80), "");
    }

    #[test]
    fn a_group_that_does_not_exist_is_named() {
        let verdicts = assign("g", None, &story_4(1), &[], &mut nodes(80));
        let Outcome::Wait { message, .. } = &verdicts[0].outcome else { panic!() };
        assert_eq!(message, "pod group g is not found");
    }
}
