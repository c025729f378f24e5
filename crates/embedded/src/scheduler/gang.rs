//! Pods of a Volcano PodGroup: placed together or not at all.
//!
//! `spec.minMember` counts Pods. With `minTaskMember` every task must have its number too. With `subGroupPolicy` the Pods
//! of a policy form subgroups by the values of `matchLabelKeys`; a subgroup is placed whole, and each policy needs
//! `minSubGroups` of them before any Pod of the group is bound. What comes beyond the minimum is placed subgroup by
//! subgroup as room allows; Pods of no subgroup one by one, in the order of the numbers at the end of their names, so
//! round-robin over the replicas. A group with `minResources` begins only when the cluster could hold them. Measured on
//! Volcano 1.15 with its default actions: queues, and preemption by gangs, are not done.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::pod::{Amounts, amounts};
use apimachinery::quantity::Quantity;
use apimachinery::selector::LabelSelector;
use serde_json::Value;

use super::candidate::{Candidate, allocatable};
use super::place::place;
use super::world::World;
use super::{Outcome, Verdict};
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
    world: &World,
) -> Vec<Verdict> {
    let Some(group) = group else {
        return all_wait(pending, &format!("pod group {name} is not found"));
    };
    let minimum = Minimum::of(group);
    if bound.is_empty() && !is_enqueued(group, candidates) {
        return all_wait(pending, &format!("pod group {name} waits: its minResources are more than what is left here"));
    }
    let mut pending = pending.to_vec();
    pending.sort_by_cached_key(|pod| task_order(pod));
    let pending = pending.as_slice();
    let mut trial = Trial { candidates: candidates.clone(), outcomes: BTreeMap::new() };
    let (subgroups, single) = subgroups(&minimum.policies, pending, bound);
    trial.place_minimum(&minimum, &subgroups, world);
    for subgroup in &subgroups {
        trial.place_whole(subgroup, world);
    }
    for pod in &single {
        trial.place_one(pod, world);
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
        Outcome::Bind { .. } | Outcome::Preempt { .. } => None,
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

/// What `status.phase` says of a group: `Running` while its minimum is bound. A group that states no minimum has reached
/// it with nothing, and says `Completed`.
pub(super) fn phase(group: &Value, bound: &[Arc<Value>]) -> &'static str {
    let minimum = Minimum::of(group);
    let (subgroups, _) = subgroups(&minimum.policies, &[], bound);
    let together: Vec<&Arc<Value>> = bound.iter().collect();
    let nothing = Trial { candidates: Vec::new(), outcomes: BTreeMap::new() };
    let is_running = !bound.is_empty() && minimum.is_met(&together, &subgroups, &nothing);
    match is_running {
        true => "Running",
        false if group.pointer("/spec/minMember").is_none() => "Completed",
        false if group.pointer("/spec/minResources").is_some() => "Pending",
        false => "Inqueue",
    }
}

/// Who leaves with `pod`, itself included, so that no gang is left broken: only itself or its subgroup where the minimum
/// stays whole without them, otherwise everybody of `bound`.
pub(super) fn leaving_with(group: &Value, pod: &Arc<Value>, bound: &[Arc<Value>]) -> Vec<Arc<Value>> {
    let minimum = Minimum::of(group);
    let same = |other: &Arc<Value>| match subgroup_of(&minimum.policies, pod) {
        Some(key) => subgroup_of(&minimum.policies, other) == Some(key),
        None => object::uid(other) == object::uid(pod),
    };
    let (leaving, rest): (Vec<_>, Vec<_>) = bound.iter().cloned().partition(same);
    let (subgroups, _) = subgroups(&minimum.policies, &[], &rest);
    let together: Vec<&Arc<Value>> = rest.iter().collect();
    let nothing = Trial { candidates: Vec::new(), outcomes: BTreeMap::new() };
    if minimum.is_met(&together, &subgroups, &nothing) { leaving } else { bound.to_vec() }
}

/// Volcano's `overcommit`: a group may begin when its `minResources` fit into 1.2 times the cluster, less what is used.
fn is_enqueued(group: &Value, candidates: &[Candidate]) -> bool {
    const FACTOR: f64 = 1.2;
    let sum = |of: &dyn Fn(&Candidate) -> f64| candidates.iter().map(of).sum::<f64>();
    amounts(group.pointer("/spec/minResources")).iter().all(|(name, wanted)| {
        let units = |of: &Amounts| of.get(name).map_or(0.0, Quantity::as_f64);
        let total = sum(&|candidate| units(&allocatable(&candidate.node)));
        let used = sum(&|candidate| units(&candidate.used));
        wanted.as_f64() <= total * FACTOR - used
    })
}

/// Volcano's order of the Pods of a job: by priority, by the number at the end of the name, by age.
fn task_order(pod: &Value) -> (std::cmp::Reverse<i64>, u64, String, String) {
    let number = object::name(pod).rsplit('-').next().and_then(|last| last.parse().ok()).unwrap_or(u64::MAX);
    let created = object::text(pod, "/metadata/creationTimestamp").to_owned();
    (std::cmp::Reverse(super::priority(pod)), number, created, object::name(pod).to_owned())
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
        let members = spec.get("minMember").and_then(Value::as_u64).unwrap_or(0);
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

/// Policy and values of the subgroup that a Pod is in.
fn subgroup_of(policies: &[Policy], pod: &Value) -> Option<(usize, Vec<String>)> {
    policies.iter().enumerate().find_map(|(at, policy)| Some((at, policy.values(pod)?)))
}

/// The subgroups by policy and values, and the pending Pods that are in none.
fn subgroups(policies: &[Policy], pending: &[Arc<Value>], bound: &[Arc<Value>]) -> (Vec<Subgroup>, Vec<Arc<Value>>) {
    let mut found: BTreeMap<(usize, Vec<String>), Subgroup> = BTreeMap::new();
    let mut single = Vec::new();
    for (pod, is_bound) in pending.iter().map(|pod| (pod, false)).chain(bound.iter().map(|pod| (pod, true))) {
        let Some(key) = subgroup_of(policies, pod) else {
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
    fn place_minimum(&mut self, minimum: &Minimum, subgroups: &[Subgroup], world: &World) {
        for (at, policy) in minimum.policies.iter().enumerate() {
            let own = || subgroups.iter().filter(|subgroup| subgroup.policy == at);
            let mut whole = own().filter(|subgroup| self.is_whole(subgroup)).count();
            for subgroup in own() {
                if whole >= policy.subgroups {
                    break;
                }
                whole += usize::from(!self.is_whole(subgroup) && self.place_whole(subgroup, world));
            }
        }
    }

    /// Places every pending Pod of the subgroup, or none. Whether the subgroup is whole then.
    fn place_whole(&mut self, subgroup: &Subgroup, world: &World) -> bool {
        if self.is_whole(subgroup) || subgroup.bound + subgroup.pending.len() < subgroup.size {
            return self.is_whole(subgroup);
        }
        let before = self.candidates.clone();
        let outcomes: Vec<Outcome> =
            subgroup.pending.iter().map(|pod| place(pod, &mut self.candidates, world)).collect();
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

    fn place_one(&mut self, pod: &Arc<Value>, world: &World) {
        let outcome = place(pod, &mut self.candidates, world);
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
    let outcome = Outcome::Wait { reason: "Unschedulable", message: message.to_owned(), keeps_nomination: false };
    Verdict { pod: Arc::clone(pod), outcome }
}
