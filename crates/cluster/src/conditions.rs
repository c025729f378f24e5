//! Conditions: stable times, which of them turned, and how that is told.

use api::code::Code;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::seconds;

/// A condition's `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// `True`
    True,
    /// `False`
    False,
    /// `Unknown`
    Unknown,
}

/// How a condition that turned is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Things go as they should: a `Normal` event, once per status.
    News,
    /// Somebody should look: a `Warning` event, once per reason.
    Problem,
    /// It follows from another condition, which is told: no event of its own.
    Consequence,
}

/// One condition as the core says it, without times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `Ready`, `RuntimeResolved`, …
    pub kind: &'static str,
    /// Its status.
    pub state: State,
    /// CamelCase code from `docs/reason-codes.md`.
    pub reason: String,
    /// One sentence that says what is and what to do.
    pub message: String,
    /// How it is told when it turns.
    pub tone: Tone,
}

/// Something that turned: it is worth an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// `Warning` rather than `Normal`.
    pub warning: bool,
    /// The new reason.
    pub reason: String,
    /// The new message.
    pub message: String,
}

// === impl State ===

impl State {
    /// As it stands in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::True => "True",
            State::False => "False",
            State::Unknown => "Unknown",
        }
    }
}

impl From<bool> for State {
    fn from(value: bool) -> State {
        if value { State::True } else { State::False }
    }
}

// === impl Condition ===

impl Condition {
    /// A condition from its parts. `False` is a problem unless [`Self::told_as`] says otherwise.
    #[must_use]
    pub fn new(kind: &'static str, state: impl Into<State>, reason: Code, message: impl Into<String>) -> Condition {
        Condition::relayed(kind, state, reason, message)
    }

    /// A condition that passes on the reason of another record: a decision's, or another condition's.
    #[must_use]
    pub fn relayed(
        kind: &'static str,
        state: impl Into<State>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Condition {
        let state = state.into();
        let tone = if state == State::False { Tone::Problem } else { Tone::News };
        Condition { kind, state, reason: reason.into(), message: message.into(), tone }
    }

    /// The same condition, told as `tone`.
    #[must_use]
    pub fn told_as(self, tone: Tone) -> Condition {
        Condition { tone, ..self }
    }
}

/// `conditions` as JSON; `lastTransitionTime` is kept from `old` where the status is the same.
#[must_use]
pub fn render(old: &Value, conditions: &[Condition], generation: i64, now: Timestamp) -> Value {
    let one = |condition: &Condition| {
        let before = find(old, condition.kind).filter(|before| before["status"] == condition.state.as_str());
        let since =
            before.and_then(|before| before["lastTransitionTime"].as_str()).map_or_else(|| seconds(now), str::to_owned);
        json!({
            "type": condition.kind, "status": condition.state.as_str(), "reason": condition.reason,
            "message": condition.message, "observedGeneration": generation, "lastTransitionTime": since,
        })
    };
    conditions.iter().map(one).collect()
}

/// What of `new` is worth an event after `old` JSON: a status that turned, and a problem whose reason is another one.
/// A reason that only tells how far things have come is none, so that many Pods in turn make one event. Equal news are
/// told once.
#[must_use]
pub fn transitions(old: &Value, new: &[Condition]) -> Vec<Transition> {
    let mut found: Vec<Transition> = Vec::new();
    for condition in new.iter().filter(|condition| turned(old, condition)) {
        if found.iter().all(|told| told.reason != condition.reason) {
            found.push(Transition {
                warning: condition.tone == Tone::Problem,
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            });
        }
    }
    found
}

fn turned(old: &Value, condition: &Condition) -> bool {
    let Some(before) = find(old, condition.kind) else { return condition.tone != Tone::Consequence };
    let (status, reason) = (before["status"] != condition.state.as_str(), before["reason"] != *condition.reason);
    match condition.tone {
        Tone::Consequence => false,
        Tone::News => status,
        Tone::Problem => status || reason,
    }
}

/// The condition of type `kind` in a JSON list.
#[must_use]
pub fn find<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|condition| condition["type"] == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn ready(state: bool, reason: &str) -> Condition {
        Condition::relayed("Ready", state, reason, "m")
    }

    #[test]
    fn the_time_moves_only_with_the_status() {
        let first = render(&Value::Null, &[ready(false, "Starting")], 1, at("2026-01-01T00:00:00Z"));
        let second = render(&first, &[ready(false, "Pulling")], 2, at("2026-01-01T00:00:09Z"));
        assert_eq!(second[0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(second[0]["observedGeneration"], 2);
        let third = render(&second, &[ready(true, "Ready")], 2, at("2026-01-01T00:00:09Z"));
        assert_eq!(third[0]["lastTransitionTime"], "2026-01-01T00:00:09Z");
    }

    #[test]
    fn a_transition_is_told_once() {
        let old = render(&Value::Null, &[ready(false, "Starting")], 1, at("2026-01-01T00:00:00Z"));
        assert!(transitions(&old, &[ready(false, "Starting")]).is_empty());
        let both = [Condition::relayed("WorkloadsReady", false, "Unschedulable", "a"), ready(false, "Unschedulable")];
        let told = transitions(&old, &both);
        assert_eq!(told.len(), 1);
        assert!(told[0].warning);
    }

    #[test]
    fn progress_is_told_once_per_status_and_consequences_never() {
        let starting = |reason| ready(false, reason).told_as(Tone::News);
        let told =
            |old: &Value, new: Condition| transitions(old, &[new]).iter().map(|one| one.warning).collect::<Vec<_>>();
        let now = at("2026-01-01T00:00:00Z");
        assert_eq!(told(&Value::Null, starting("Starting")), [false]);
        let old = render(&Value::Null, &[starting("Starting")], 1, now);
        assert!(told(&old, starting("NotReadyYet")).is_empty());
        assert_eq!(told(&old, ready(false, "CrashLoop")), [true]);
        assert_eq!(told(&old, ready(true, "Ready")), [false]);
        assert!(told(&Value::Null, ready(false, "NotPlanned").told_as(Tone::Consequence)).is_empty());
    }
}
