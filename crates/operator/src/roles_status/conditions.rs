//! The conditions of a role-based service: what was made, what runs, what failed, and `Ready` last.

use cluster::{Condition, State, Tone};

use super::role::RoleState;
use super::{Findings, Part};
use crate::obstacles::obstacle;
use crate::readiness::{Code, Trouble};
use crate::reason::Reason;
use crate::rollout::{Floor, Rollout, is_paused};
use crate::routes::Answer;
use crate::{code, gang};

/// Names are upstream's (`Initialized`, `Active`, `Failed`) and ours. `GangScheduled` and `RouterReady` are there where the
/// service has a gang and a router.
pub(super) fn conditions(findings: &Findings<'_>, states: &[RoleState]) -> Vec<Condition> {
    let initialized = initialized(findings);
    let router = router_ready(findings, states);
    let ready = ready(findings, states, &initialized);
    let mut all = vec![active(findings, states, &ready), failed(findings, states)];
    let gang = || gang::condition(findings.workloads, findings.applied, findings.plan);
    all.extend(findings.unread.is_empty().then(gang).flatten());
    all.extend(router);
    all.push(ready);
    all.insert(0, initialized);
    all
}

fn initialized(findings: &Findings<'_>) -> Condition {
    const KIND: &str = "Initialized";
    if !findings.unread.is_empty() {
        return unreadable(findings, KIND);
    }
    if let Some(refusal) = findings.refusal() {
        return Condition::relayed(KIND, false, &*refusal.reason, &*refusal.message);
    }
    match obstacle(findings.applied, |_| true) {
        Some((reason, message)) => reason.condition(KIND, false, message),
        None => Condition::new(KIND, true, code::OBJECTS_APPLIED, "every object of the service is applied")
            .told_as(Tone::Consequence),
    }
}

/// Nothing is known of the state: neither that it is well nor that it is not.
fn unreadable(findings: &Findings<'_>, kind: &'static str) -> Condition {
    let kinds = findings.unread.join(", ");
    let message = format!("{kinds} cannot be read; counts are the last known");
    let tone = if kind == "Ready" { Tone::Problem } else { Tone::Consequence };
    Condition::new(kind, State::Unknown, code::STATE_UNREADABLE, message).told_as(tone)
}

/// From one ready replica of every role on, requests are answered, whatever else is missing.
fn active(findings: &Findings<'_>, states: &[RoleState], ready: &Condition) -> Condition {
    const KIND: &str = "Active";
    if !findings.unread.is_empty() {
        return unreadable(findings, KIND);
    }
    let mut engines = states.iter().filter(|one| one.part == Part::Engine);
    match engines.all(|one| one.ready >= one.desired.min(1)) {
        true if !findings.feasible() => {
            let message = format!("{}, as they were laid out before", counts(states));
            Condition::new(KIND, true, code::MINIMUM_READY, message)
        }
        true => Condition::new(KIND, true, code::MINIMUM_READY, counts(states)),
        false => Condition::relayed(KIND, false, ready.reason.clone(), ready.message.clone()).told_as(ready.tone),
    }
}

/// Positive polarity does not hold here: the name is upstream's.
fn failed(findings: &Findings<'_>, states: &[RoleState]) -> Condition {
    const KIND: &str = "Failed";
    if !findings.unread.is_empty() {
        return unreadable(findings, KIND);
    }
    if let Some(refusal) = findings.refusal() {
        return Condition::relayed(KIND, true, &*refusal.reason, &*refusal.message).told_as(Tone::Problem);
    }
    match worst(states).filter(|worst| worst.failed) {
        Some(worst) => Condition::relayed(KIND, true, worst.code.as_str(), sentence(worst)).told_as(Tone::Problem),
        None => Condition::new(KIND, false, code::NO_FAILURE, "no component has failed").told_as(Tone::Consequence),
    }
}

/// Of the objects that choose who answers, and of the gateways that lead to them.
fn router_ready(findings: &Findings<'_>, states: &[RoleState]) -> Option<Condition> {
    const KIND: &str = "RouterReady";
    const ENGINES: [&str; 2] = [crate::kinds::LEADER_WORKER_SET.kind, crate::kinds::POD_GROUP.kind];
    let router = states.iter().find(|one| one.part == Part::Router)?;
    if !findings.unread.is_empty() {
        return Some(unreadable(findings, KIND));
    }
    if !findings.feasible() && router.ready == 0 {
        let message = "nothing is made before the service can be laid out";
        return Some(Reason::NotPlanned.condition(KIND, false, message));
    }
    let obstacle = obstacle(findings.applied, |kind| !ENGINES.contains(&kind));
    Some(match (obstacle, &router.trouble) {
        (Some((reason, message)), _) => reason.condition(KIND, false, message).told_as(Tone::Consequence),
        (None, Some(trouble)) => {
            Condition::relayed(KIND, false, trouble.code.as_str(), sentence(trouble)).told_as(Tone::Consequence)
        }
        (None, None) => led_to(findings, KIND),
    })
}

/// The picker answers; whether anybody asks it, gateways know.
fn led_to(findings: &Findings<'_>, kind: &'static str) -> Condition {
    match findings.routes {
        Answer::Refused(why) => Reason::RouteNotAccepted.condition(kind, false, why).told_as(Tone::Consequence),
        Answer::Accepted(who) => {
            Reason::AllReady.condition(kind, true, format!("the router is ready; {who} leads to it"))
        }
        Answer::Silent(what) => {
            let message = format!("the router is ready; no Gateway has said anything of {what}");
            Reason::AllReady.condition(kind, true, message)
        }
        Answer::NotAsked => Reason::AllReady.condition(kind, true, "the router is ready"),
    }
}

/// Everything declared is there, of the present template, and ready.
fn ready(findings: &Findings<'_>, states: &[RoleState], initialized: &Condition) -> Condition {
    const KIND: &str = "Ready";
    if !findings.unread.is_empty() {
        return unreadable(findings, KIND);
    }
    if initialized.state != State::True {
        let (reason, message) = (initialized.reason.clone(), initialized.message.clone());
        return Condition::relayed(KIND, false, reason, message).told_as(initialized.tone);
    }
    if let Some(worst) = worst(states) {
        let message = rolling(findings).map_or_else(|| sentence(worst), |at| format!("{at}; {}", sentence(worst)));
        return Condition::relayed(KIND, false, worst.code.as_str(), message).told_as(worst.code.tone());
    }
    if states.iter().any(|one| one.ready < one.desired) {
        return Reason::Workload(Code::Starting).condition(KIND, false, counts(states));
    }
    if let (true, Answer::Refused(why)) = (states.iter().any(|one| one.part == Part::Router), findings.routes) {
        return Reason::RouteNotAccepted.condition(KIND, false, why);
    }
    match rolling(findings) {
        Some(at) if is_paused(findings.service) => {
            let message = format!("{at}; it is paused, `ostler rollout resume` goes on");
            Condition::new(KIND, false, code::ROLLOUT_PAUSED, message).told_as(Tone::News)
        }
        Some(at) => Reason::Workload(Code::RollingOut).condition(KIND, false, at),
        None => Reason::Ready.condition(KIND, true, counts(states)),
    }
}

/// `rollout of decode: 1 of 3 replicas are updated`
fn rolling(findings: &Findings<'_>) -> Option<String> {
    let rollouts = findings.rollouts.iter().filter(|(_, one)| one.in_progress());
    let told: Vec<String> = rollouts.map(|(role, one)| step(role, one)).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

fn step(role: &str, rollout: &Rollout) -> String {
    let step = format!("rollout of {role}: {} of {} replicas are updated", rollout.updated, rollout.replicas);
    let Some(Floor { ready, needed }) = rollout.floor else { return step };
    format!("{step}, and no other is taken down before {needed} are ready ({ready} now): give them room, or scale down")
}

fn worst(states: &[RoleState]) -> Option<&Trouble> {
    states.iter().filter_map(|one| one.trouble.as_ref()).min()
}

fn sentence(trouble: &Trouble) -> String {
    format!("{}: {}", trouble.object, trouble.message)
}

/// `ready replicas: prefill 1 of 1, decode 1 of 2`
fn counts(states: &[RoleState]) -> String {
    let one = |state: &RoleState| format!("{} {} of {}", state.name, state.ready, state.desired);
    format!("ready replicas: {}", states.iter().map(one).collect::<Vec<_>>().join(", "))
}
