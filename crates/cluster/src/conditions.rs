//! Status conditions: stable transition times, and which transitions are reported as events.

use api::Code;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::rfc3339_seconds;
use crate::object::generation;

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// `True`
    True,
    /// `False`
    False,
    /// `Unknown`
    Unknown,
}

/// Which event a transition of a condition creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventPolicy {
    /// Expected progress: one `Normal` event per change of status.
    Normal,
    /// A problem: one `Warning` event per change of status or reason.
    Warning,
    /// A consequence of another condition whose transition is already reported by an event: no event.
    Suppressed,
}

/// A condition without timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Type, such as `Ready` or `RuntimeResolved`.
    pub type_: &'static str,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// CamelCase reason code from `docs/reason-codes.md`.
    pub reason: String,
    /// Sentence that describes the state and, for problems, what to do.
    pub message: String,
    /// Which event a transition creates.
    pub event_policy: EventPolicy,
}

/// A transition of a condition that is reported as an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Whether the event has type `Warning` instead of `Normal`.
    pub warning: bool,
    /// Reason of the condition.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
}

// === impl ConditionStatus ===

impl ConditionStatus {
    /// Returns the status as it is serialized in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(value: bool) -> ConditionStatus {
        if value { ConditionStatus::True } else { ConditionStatus::False }
    }
}

// === impl Condition ===

impl Condition {
    /// Returns a condition with a reason code. `False` is a problem unless [`Self::with_event_policy`] overrides it.
    #[must_use]
    pub fn new(
        type_: &'static str,
        status: impl Into<ConditionStatus>,
        reason: Code,
        message: impl Into<String>,
    ) -> Condition {
        Condition::with_reason(type_, status, reason, message)
    }

    /// Returns a condition whose reason is copied from a decision or from another condition.
    #[must_use]
    pub fn with_reason(
        type_: &'static str,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Condition {
        let status = status.into();
        let event_policy = if status == ConditionStatus::False { EventPolicy::Warning } else { EventPolicy::Normal };
        Condition { type_, status, reason: reason.into(), message: message.into(), event_policy }
    }

    /// Returns the same condition with another event policy.
    #[must_use]
    pub fn with_event_policy(self, event_policy: EventPolicy) -> Condition {
        Condition { event_policy, ..self }
    }
}

/// Returns `conditions` as JSON. `lastTransitionTime` is retained from the JSON list `old` while the status is unchanged.
#[must_use]
pub fn render_conditions(old: &Value, conditions: &[Condition], generation: i64, now: Timestamp) -> Value {
    let render = |condition: &Condition| {
        let previous =
            find_condition(old, condition.type_).filter(|previous| previous["status"] == condition.status.as_str());
        let last_transition_time = previous
            .and_then(|previous| previous["lastTransitionTime"].as_str())
            .map_or_else(|| rfc3339_seconds(now), str::to_owned);
        json!({
            "type": condition.type_, "status": condition.status.as_str(), "reason": condition.reason,
            "message": condition.message, "observedGeneration": generation,
            "lastTransitionTime": last_transition_time,
        })
    };
    conditions.iter().map(render).collect()
}

/// Returns the transitions from the JSON list `old` to `new` that are reported as events: changes of status, and changes of
/// reason if the condition reports a problem. For other conditions, a change of reason alone is not reported, so that
/// Pods that become ready one after another cause a single event. Conditions with the same reason result in one event.
#[must_use]
pub fn condition_transitions(old: &Value, new: &[Condition]) -> Vec<Transition> {
    let mut transitions: Vec<Transition> = Vec::new();
    for condition in new.iter().filter(|condition| should_report(old, condition)) {
        if transitions.iter().all(|transition| transition.reason != condition.reason) {
            transitions.push(Transition {
                warning: condition.event_policy == EventPolicy::Warning,
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            });
        }
    }
    transitions
}

fn should_report(old: &Value, condition: &Condition) -> bool {
    let Some(previous) = find_condition(old, condition.type_) else {
        // A new object is not ready yet; that is no transition.
        return match condition.event_policy {
            EventPolicy::Suppressed => false,
            EventPolicy::Normal => condition.status == ConditionStatus::True,
            EventPolicy::Warning => true,
        };
    };
    let status_changed = previous["status"] != condition.status.as_str();
    let reason_changed = previous["reason"] != *condition.reason;
    match condition.event_policy {
        EventPolicy::Suppressed => false,
        EventPolicy::Normal => status_changed,
        EventPolicy::Warning => status_changed || reason_changed,
    }
}

/// Returns the condition of type `type_` of an object if it reflects the object's current generation. A condition without an
/// `observedGeneration` has that of the status, as for `kubectl wait`.
#[must_use]
pub fn find_current_condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let status = &object["status"];
    let condition = find_condition(&status["conditions"], type_)?;
    let observed = [condition, status].into_iter().find_map(|source| source["observedGeneration"].as_i64());
    (observed == Some(generation(object))).then_some(condition)
}

/// Returns the condition of type `type_` in a JSON list of conditions.
#[must_use]
pub fn find_condition<'a>(conditions: &'a Value, type_: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|condition| condition["type"] == type_)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn ready(status: bool, reason: &str) -> Condition {
        Condition::with_reason("Ready", status, reason, "m")
    }

    #[test]
    fn last_transition_time_changes_only_with_status() {
        let first = render_conditions(&Value::Null, &[ready(false, "Starting")], 1, timestamp("2026-01-01T00:00:00Z"));
        let second = render_conditions(&first, &[ready(false, "Pulling")], 2, timestamp("2026-01-01T00:00:09Z"));
        assert_eq!(second[0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(second[0]["observedGeneration"], 2);
        let third = render_conditions(&second, &[ready(true, "Ready")], 2, timestamp("2026-01-01T00:00:09Z"));
        assert_eq!(third[0]["lastTransitionTime"], "2026-01-01T00:00:09Z");
    }

    #[test]
    fn conditions_with_the_same_reason_are_reported_once() {
        let old = render_conditions(&Value::Null, &[ready(false, "Starting")], 1, timestamp("2026-01-01T00:00:00Z"));
        assert!(condition_transitions(&old, &[ready(false, "Starting")]).is_empty());
        let conditions =
            [Condition::with_reason("WorkloadsReady", false, "Unschedulable", "a"), ready(false, "Unschedulable")];
        let transitions = condition_transitions(&old, &conditions);
        assert_eq!(transitions.len(), 1);
        assert!(transitions[0].warning);
    }

    #[test]
    fn progress_is_reported_once_per_status_and_suppressed_conditions_never() {
        let starting = |reason| ready(false, reason).with_event_policy(EventPolicy::Normal);
        let warnings = |old: &Value, new: Condition| {
            condition_transitions(old, &[new]).iter().map(|transition| transition.warning).collect::<Vec<_>>()
        };
        let now = timestamp("2026-01-01T00:00:00Z");
        assert!(warnings(&Value::Null, starting("Starting")).is_empty());
        assert_eq!(warnings(&Value::Null, ready(false, "CrashLoop")), [true]);
        let old = render_conditions(&Value::Null, &[starting("Starting")], 1, now);
        assert!(warnings(&old, starting("NotReadyYet")).is_empty());
        assert_eq!(warnings(&old, ready(false, "CrashLoop")), [true]);
        assert_eq!(warnings(&old, ready(true, "Ready")), [false]);
        let suppressed = ready(false, "NotPlanned").with_event_policy(EventPolicy::Suppressed);
        assert!(warnings(&Value::Null, suppressed).is_empty());
    }
}
