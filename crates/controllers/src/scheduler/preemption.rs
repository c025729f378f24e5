//! Preemption, as the `DefaultPreemption` plugin of kube-scheduler performs it.
//!
//! A node is a candidate if the incoming Pod would fit there without the Pods of lower priority. These Pods are
//! reprieved in order of importance as long as the incoming Pod still fits; the others are the victims. The candidate
//! with the least important victims is selected. If evicting a member would leave a gang below its minimum, the whole
//! gang is evicted; a gang is not evicted at all if one of its members has too high a priority. PodDisruptionBudgets
//! are respected where possible ([`budget`]). Pods with the scheduler name `volcano` do not preempt other Pods, as with
//! Volcano's default actions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::object;
use serde_json::Value;

use super::budget;
use super::decision::Outcome;
use super::filter::CycleState;
use super::fit_error::{PreemptionOutcome, fit_error_message};
use super::gang;
use super::node_info::NodeInfo;
use super::pod_info::{is_bound, pod_group_of, priority};
use super::snapshot::SchedulingSnapshot;

/// Evaluates preemption for the bound Pods, gangs and PodDisruptionBudgets of a snapshot.
pub(super) struct PreemptionEvaluator<'a> {
    /// Bound Pods by node.
    pods_by_node: BTreeMap<&'a str, Vec<&'a Arc<Value>>>,
    gangs: BTreeMap<(String, String), Gang<'a>>,
    budgets: &'a [Arc<Value>],
    lowest_priority: i64,
    /// UIDs of the victims that this scheduling cycle has selected so far.
    victim_uids: BTreeSet<String>,
}

/// The bound Pods of a PodGroup.
#[derive(Default)]
struct Gang<'a> {
    group: Option<&'a Value>,
    bound: Vec<Arc<Value>>,
}

/// Pods that are evicted together or not at all.
#[derive(Clone)]
struct EvictionUnit {
    members: Vec<Arc<Value>>,
}

/// A simulation of scheduling on a node from which some Pods have been removed.
struct DryRun<'a> {
    state: CycleState<'a>,
    node_info: NodeInfo,
}

// === impl PreemptionEvaluator ===

impl<'a> PreemptionEvaluator<'a> {
    pub(super) fn new(snapshot: &'a SchedulingSnapshot) -> Self {
        let mut evaluator = Self {
            pods_by_node: BTreeMap::new(),
            gangs: BTreeMap::new(),
            budgets: &snapshot.budgets,
            lowest_priority: i64::MAX,
            victim_uids: BTreeSet::new(),
        };
        for pod in snapshot.pods.iter().filter(|pod| is_bound(pod)) {
            evaluator.lowest_priority = evaluator.lowest_priority.min(priority(pod));
            evaluator.pods_by_node.entry(object::text(pod, "/spec/nodeName")).or_default().push(pod);
            if let Some(key) = pod_group_of(pod) {
                evaluator.gangs.entry(key).or_default().bound.push(Arc::clone(pod));
            }
        }
        for group in &snapshot.groups {
            let key = (object::namespace(group).to_owned(), object::name(group).to_owned());
            if let Some(gang) = evaluator.gangs.get_mut(&key) {
                gang.group = Some(group);
            }
        }
        evaluator
    }

    /// Returns the outcome for a Pod that fits on no node: preempt victims, or wait for terminating victims. Returns
    /// `None` if preemption has no effect on the outcome of the Filter plugins.
    pub(super) fn preempt(
        &mut self,
        pod: &Value,
        node_infos: &[NodeInfo],
        snapshot: &SchedulingSnapshot,
    ) -> Option<Outcome> {
        let state = CycleState::pre_filter(pod, node_infos, snapshot);
        if state.volume_binding.pre_filter_failure.is_some() {
            return None;
        }
        let failures: Vec<_> = node_infos.iter().filter_map(|node_info| state.filter(node_info)).collect();
        let wait_outcome = |preemption: PreemptionOutcome| Outcome::Wait {
            reason: "Unschedulable",
            message: fit_error_message(&failures, preemption),
            retains_nomination: preemption == PreemptionOutcome::VictimsTerminating,
        };
        if object::text(pod, "/spec/preemptionPolicy") == "Never" {
            return Some(wait_outcome(PreemptionOutcome::PolicyNever));
        }
        if priority(pod) <= self.lowest_priority || object::text(pod, "/spec/schedulerName") == "volcano" {
            return None;
        }
        if self.has_terminating_victims(pod) {
            return Some(wait_outcome(PreemptionOutcome::VictimsTerminating));
        }
        let (node, victims) = self.select_candidate(&state, node_infos)?;
        self.victim_uids.extend(victims.iter().map(|victim| object::uid(victim).to_owned()));
        Some(Outcome::Preempt { node, victims, message: fit_error_message(&failures, PreemptionOutcome::Nominated) })
    }

    /// Whether Pods of lower priority are still terminating on the Pod's nominated node.
    fn has_terminating_victims(&self, pod: &Value) -> bool {
        let nominated = object::text(pod, "/status/nominatedNodeName");
        let pods = self.pods_by_node.get(nominated).into_iter().flatten();
        !nominated.is_empty()
            && pods
                .into_iter()
                .any(|existing_pod| object::is_deleting(existing_pod) && priority(existing_pod) < priority(pod))
    }

    /// Returns the node with the least important victims, together with these victims.
    fn select_candidate(&self, state: &CycleState<'_>, node_infos: &[NodeInfo]) -> Option<(String, Vec<Arc<Value>>)> {
        let mut best: Option<(_, String, Vec<Arc<Value>>)> = None;
        for node_info in node_infos {
            if !state.filter(node_info).is_some_and(|failure| failure.resolvable) {
                continue;
            }
            let Some((violations, victims)) = self.select_victims_on_node(state, node_info) else { continue };
            let cost = (violations, candidate_cost(&victims));
            if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                best = Some((cost, node_info.name().to_owned(), victims));
            }
        }
        best.map(|(_, node, victims)| (node, victims))
    }

    /// Returns the victims on one node and the number of PodDisruptionBudget violations among them, or `None` if no
    /// evictions would make the Pod fit on the node. Pods that a budget protects are reprieved first
    /// (`SelectVictimsOnNode`).
    fn select_victims_on_node(&self, state: &CycleState<'_>, node_info: &NodeInfo) -> Option<(usize, Vec<Arc<Value>>)> {
        let mut units = self.eviction_units(node_info.name(), priority(state.pod));
        // Most important Pods first, terminating Pods last.
        units.sort_by_key(EvictionUnit::importance);
        let mut dry_run = DryRun { state: state.clone(), node_info: node_info.clone() };
        units.iter().for_each(|unit| dry_run.remove_unit(unit));
        if dry_run.is_infeasible() {
            return None;
        }
        let mut allowance = budget::DisruptionAllowance::new(self.budgets);
        let (protected, unprotected): (Vec<EvictionUnit>, Vec<EvictionUnit>) =
            units.into_iter().partition(|unit| allowance.subtract_disruptions(&unit.members));
        let violating = dry_run.reprieve(protected);
        let violations = violating.len();
        let mut victims = violating;
        victims.extend(dry_run.reprieve(unprotected));
        victims.retain(|victim| !object::is_deleting(victim));
        (!victims.is_empty()).then_some((violations, victims))
    }

    /// Returns the Pods and gangs on the node that a Pod of this priority may preempt.
    fn eviction_units(&self, node: &str, incoming_priority: i64) -> Vec<EvictionUnit> {
        let mut seen_uids: BTreeSet<&str> = BTreeSet::new();
        let mut eviction_units = Vec::new();
        for existing_pod in self.pods_by_node.get(node).into_iter().flatten() {
            if seen_uids.contains(object::uid(existing_pod)) || self.victim_uids.contains(object::uid(existing_pod)) {
                continue;
            }
            let unit = self.eviction_unit(existing_pod);
            if unit.members.iter().all(|member| priority(member) < incoming_priority) {
                eviction_units.push(unit);
            }
            seen_uids.insert(object::uid(existing_pod));
        }
        // A gang may have several Pods on this node.
        let mut selected_uids: BTreeSet<String> = BTreeSet::new();
        eviction_units.retain(|unit: &EvictionUnit| {
            unit.members.iter().all(|member| selected_uids.insert(object::uid(member).to_owned()))
        });
        eviction_units
    }

    fn eviction_unit(&self, pod: &Arc<Value>) -> EvictionUnit {
        let single_pod = || vec![Arc::clone(pod)];
        let gang = pod_group_of(pod).and_then(|key| self.gangs.get(&key));
        let members = match gang.and_then(|gang| Some((gang.group?, &gang.bound))) {
            Some((group, bound)) => gang::evicted_members(group, pod, bound),
            None => single_pod(),
        };
        EvictionUnit { members }
    }
}

// === impl EvictionUnit ===

impl EvictionUnit {
    /// Returns a key that sorts units by descending importance: Pods that are not terminating first, then by descending
    /// priority, then by start time.
    fn importance(&self) -> (bool, Reverse<i64>, String) {
        let is_terminating = self.members.iter().all(|member| object::is_deleting(member));
        let highest = self.members.iter().map(|member| priority(member)).max().unwrap_or(i64::MIN);
        let start_time = self.members.iter().map(|member| start_time(member)).min().unwrap_or_default();
        (is_terminating, Reverse(highest), start_time.to_owned())
    }

    /// Returns the members that are bound to a node.
    fn members_on(&self, node: &str) -> impl Iterator<Item = &Arc<Value>> {
        self.members.iter().filter(move |member| object::text(member, "/spec/nodeName") == node)
    }
}

// === impl DryRun ===

impl DryRun<'_> {
    /// Whether the incoming Pod does not fit on the simulated node.
    fn is_infeasible(&self) -> bool {
        self.state.filter(&self.node_info).is_some()
    }

    /// Removes the members of the unit that run on this node.
    fn remove_unit(&mut self, unit: &EvictionUnit) {
        let node = Arc::clone(&self.node_info.node);
        for member in unit.members_on(object::name(&node)) {
            self.node_info.remove_pod(member);
            self.state.inter_pod.remove_pod(member, &node);
        }
    }

    /// Adds the members of the unit that run on this node.
    fn add_unit(&mut self, unit: &EvictionUnit) {
        let node = Arc::clone(&self.node_info.node);
        for member in unit.members_on(object::name(&node)) {
            self.node_info.add_pod(member);
            self.state.inter_pod.add_pod(member, &node);
        }
    }

    /// Adds back each unit with which the incoming Pod still fits. Returns the Pods of the other units, which are the
    /// victims.
    fn reprieve(&mut self, units: Vec<EvictionUnit>) -> Vec<Arc<Value>> {
        let mut victims = Vec::new();
        for unit in units {
            self.add_unit(&unit);
            if self.is_infeasible() {
                self.remove_unit(&unit);
                victims.extend(unit.members);
            }
        }
        victims
    }
}

/// Returns the values by which kube-scheduler compares nodes with equally many budget violations: the highest priority
/// of the victims, the sum of their priorities, the number of victims, and the earliest start time among the victims
/// with the highest priority.
fn candidate_cost(victims: &[Arc<Value>]) -> (i64, i64, usize, Reverse<String>) {
    let highest = victims.iter().map(|victim| priority(victim)).max().unwrap_or(i64::MIN);
    // Shifts priorities to non-negative values, so that each additional victim increases the sum.
    let shift = i64::from(i32::MAX).saturating_add(1);
    let sum = victims.iter().fold(0_i64, |sum, victim| sum.saturating_add(priority(victim).saturating_add(shift)));
    let oldest = victims.iter().filter(|victim| priority(victim) == highest).map(|victim| start_time(victim)).min();
    (highest, sum, victims.len(), Reverse(oldest.unwrap_or_default().to_owned()))
}

/// Returns the start time of the Pod, or its creation time if it has not started.
fn start_time(pod: &Value) -> &str {
    match object::text(pod, "/status/startTime") {
        "" => object::text(pod, "/metadata/creationTimestamp"),
        time => time,
    }
}
