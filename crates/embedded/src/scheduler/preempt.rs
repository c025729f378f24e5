//! Who has to make room for a Pod of higher priority, as kube-scheduler's default preemption decides it.
//!
//! On each node that would fit without the Pods of lower priority, those come back in the order of their importance as
//! long as the Pod still fits; who does not come back is a victim. The node whose victims matter least is taken. A
//! member of a gang is not taken alone where its gang would fall below its minimum: then all of the gang go, and none
//! where one of them may not. PodDisruptionBudgets are kept where that is possible, as [`budget`] counts them. Pods of
//! `volcano` take nobody's room, as Volcano's default actions do not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::budget;
use super::candidate::Candidate;
use super::explain::{Preemption, explain};
use super::filter::Rules;
use super::world::World;
use super::{Outcome, gang, group_of, is_bound, priority};
use crate::object;

/// Who is where.
pub(super) struct Tenants<'a> {
    /// By node.
    bound: BTreeMap<&'a str, Vec<&'a Arc<Value>>>,
    groups: BTreeMap<(String, String), Gang<'a>>,
    budgets: &'a [Arc<Value>],
    lowest: i64,
    /// Uids of Pods that this turn sends away already.
    going: BTreeSet<String>,
}

#[derive(Default)]
struct Gang<'a> {
    group: Option<&'a Value>,
    bound: Vec<Arc<Value>>,
}

/// Pods that go together or stay together.
#[derive(Clone)]
struct Unit {
    members: Vec<Arc<Value>>,
}

/// A node while some of its Pods are thought away.
struct Without<'a> {
    rules: Rules<'a>,
    candidate: Candidate,
}

// === impl Tenants ===

impl<'a> Tenants<'a> {
    pub(super) fn of(world: &'a World) -> Self {
        let mut tenants = Self {
            bound: BTreeMap::new(),
            groups: BTreeMap::new(),
            budgets: &world.budgets,
            lowest: i64::MAX,
            going: BTreeSet::new(),
        };
        for pod in world.pods.iter().filter(|pod| is_bound(pod)) {
            tenants.lowest = tenants.lowest.min(priority(pod));
            tenants.bound.entry(object::text(pod, "/spec/nodeName")).or_default().push(pod);
            if let Some(key) = group_of(pod) {
                tenants.groups.entry(key).or_default().bound.push(Arc::clone(pod));
            }
        }
        for group in &world.groups {
            let key = (object::namespace(group).to_owned(), object::name(group).to_owned());
            if let Some(known) = tenants.groups.get_mut(&key) {
                known.group = Some(group);
            }
        }
        tenants
    }

    /// What a Pod that fits nowhere does instead of only waiting.
    pub(super) fn instead(&mut self, pod: &Value, candidates: &[Candidate], world: &World) -> Option<Outcome> {
        let rules = Rules::of(pod, candidates, world);
        if rules.claims.obstacle.is_some() {
            return None;
        }
        let refusals: Vec<_> = candidates.iter().filter_map(|candidate| rules.unfit(candidate)).collect();
        let wait = |preemption| Outcome::Wait {
            reason: "Unschedulable",
            message: explain(&refusals, preemption),
            keeps_nomination: preemption == Preemption::Going,
        };
        if object::text(pod, "/spec/preemptionPolicy") == "Never" {
            return Some(wait(Preemption::Never));
        }
        if priority(pod) <= self.lowest || object::text(pod, "/spec/schedulerName") == "volcano" {
            return None;
        }
        if self.is_waiting_for_victims(pod) {
            return Some(wait(Preemption::Going));
        }
        let (node, victims) = self.best(&rules, candidates)?;
        self.going.extend(victims.iter().map(|victim| object::uid(victim).to_owned()));
        Some(Outcome::Preempt { node, victims, message: explain(&refusals, Preemption::Found) })
    }

    /// Whether somebody of lower priority is on the way out of the node that the Pod was promised.
    fn is_waiting_for_victims(&self, pod: &Value) -> bool {
        let nominated = object::text(pod, "/status/nominatedNodeName");
        let tenants = self.bound.get(nominated).into_iter().flatten();
        !nominated.is_empty()
            && tenants.into_iter().any(|tenant| object::is_deleting(tenant) && priority(tenant) < priority(pod))
    }

    /// The node whose victims matter least, and those.
    fn best(&self, rules: &Rules<'_>, candidates: &[Candidate]) -> Option<(String, Vec<Arc<Value>>)> {
        let mut best: Option<(_, String, Vec<Arc<Value>>)> = None;
        for candidate in candidates {
            if !rules.unfit(candidate).is_some_and(|unfit| unfit.preemptable) {
                continue;
            }
            let Some((violations, victims)) = self.victims(rules, candidate) else { continue };
            let cost = (violations, cost(&victims));
            if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                best = Some((cost, candidate.name().to_owned(), victims));
            }
        }
        best.map(|(_, node, victims)| (node, victims))
    }

    /// The fewest important Pods without whom the node takes the Pod, and how many of them against a budget; `None` where
    /// there are none such. Who is protected by a budget is the first to come back.
    fn victims(&self, rules: &Rules<'_>, candidate: &Candidate) -> Option<(usize, Vec<Arc<Value>>)> {
        let mut units = self.units(candidate.name(), priority(rules.pod));
        // The most important first; who goes anyway is the first to go.
        units.sort_by_key(Unit::importance);
        let mut without = Without { rules: rules.clone(), candidate: candidate.clone() };
        units.iter().for_each(|unit| without.leave(unit));
        if without.is_unfit() {
            return None;
        }
        let mut allowance = budget::Allowance::of(self.budgets);
        let (protected, free): (Vec<Unit>, Vec<Unit>) =
            units.into_iter().partition(|unit| allowance.is_exceeded_by(&unit.members));
        let violating = without.give_back(protected);
        let violations = violating.len();
        let mut victims = violating;
        victims.extend(without.give_back(free));
        victims.retain(|victim| !object::is_deleting(victim));
        (!victims.is_empty()).then_some((violations, victims))
    }

    /// Everybody on the node whom a Pod of this priority may send away.
    fn units(&self, node: &str, priority_of_pod: i64) -> Vec<Unit> {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut units = Vec::new();
        for tenant in self.bound.get(node).into_iter().flatten() {
            if seen.contains(object::uid(tenant)) || self.going.contains(object::uid(tenant)) {
                continue;
            }
            let unit = self.unit(tenant);
            if unit.members.iter().all(|member| priority(member) < priority_of_pod) {
                units.push(unit);
            }
            seen.insert(object::uid(tenant));
        }
        // One gang may have several Pods here.
        let mut uids: BTreeSet<String> = BTreeSet::new();
        units.retain(|unit: &Unit| unit.members.iter().all(|member| uids.insert(object::uid(member).to_owned())));
        units
    }

    fn unit(&self, pod: &Arc<Value>) -> Unit {
        let alone = || vec![Arc::clone(pod)];
        let gang = group_of(pod).and_then(|key| self.groups.get(&key));
        let members = match gang.and_then(|gang| Some((gang.group?, &gang.bound))) {
            Some((group, bound)) => gang::leaving_with(group, pod, bound),
            None => alone(),
        };
        Unit { members }
    }
}

// === impl Unit ===

impl Unit {
    /// Sorts the most important first: alive, of high priority, running for long.
    fn importance(&self) -> (bool, Reverse<i64>, String) {
        let going = self.members.iter().all(|member| object::is_deleting(member));
        let highest = self.members.iter().map(|member| priority(member)).max().unwrap_or(i64::MIN);
        let since = self.members.iter().map(|member| started(member)).min().unwrap_or_default();
        (going, Reverse(highest), since.to_owned())
    }

    fn on(&self, node: &str) -> impl Iterator<Item = &Arc<Value>> {
        self.members.iter().filter(move |member| object::text(member, "/spec/nodeName") == node)
    }
}

// === impl Without ===

impl Without<'_> {
    fn is_unfit(&self) -> bool {
        self.rules.unfit(&self.candidate).is_some()
    }

    fn leave(&mut self, unit: &Unit) {
        let node = Arc::clone(&self.candidate.node);
        for member in unit.on(object::name(&node)) {
            self.candidate.release(member);
            self.rules.neighbours.left(member, &node);
        }
    }

    fn come_back(&mut self, unit: &Unit) {
        let node = Arc::clone(&self.candidate.node);
        for member in unit.on(object::name(&node)) {
            self.candidate.take(member);
            self.rules.neighbours.came(member, &node);
        }
    }

    /// Brings units back as long as the Pod still fits; who has to stay away is returned.
    fn give_back(&mut self, units: Vec<Unit>) -> Vec<Arc<Value>> {
        let mut away = Vec::new();
        for unit in units {
            self.come_back(&unit);
            if self.is_unfit() {
                self.leave(&unit);
                away.extend(unit.members);
            }
        }
        away
    }
}

/// What kube-scheduler compares nodes by, after the budgets that are broken: the highest priority among the victims, the sum of theirs, how many there are,
/// and how long the oldest of the most important runs.
fn cost(victims: &[Arc<Value>]) -> (i64, i64, usize, Reverse<String>) {
    let highest = victims.iter().map(|victim| priority(victim)).max().unwrap_or(i64::MIN);
    // Shifted, so that several of negative priority are more than one.
    let sum = victims.iter().map(|victim| priority(victim) + i64::from(i32::MAX) + 1).sum();
    let oldest = victims.iter().filter(|victim| priority(victim) == highest).map(|victim| started(victim)).min();
    (highest, sum, victims.len(), Reverse(oldest.unwrap_or_default().to_owned()))
}

fn started(pod: &Value) -> &str {
    match object::text(pod, "/status/startTime") {
        "" => object::text(pod, "/metadata/creationTimestamp"),
        time => time,
    }
}
