//! Conditions in the status of services, as short as possible, because `kubectl describe` prints a line per field.

use cluster::{Condition, ConditionStatus, generation, render_conditions};
use jiff::Timestamp;
use serde_json::Value;

/// Renders the conditions of a service. `observed_generation` is the one of its status, which `kubectl wait` reads for conditions
/// that have none. A complete one of `stages` has no message, since that would repeat the reason, and other true conditions have
/// none if `Ready` is true and has the same.
pub(crate) fn render_service_conditions(
    service: &Value,
    conditions: &[Condition],
    stages: &[&str],
    observed_generation: &Value,
    now: Timestamp,
) -> Value {
    let mut rendered = render_conditions(&service["status"]["conditions"], conditions, generation(service), now);
    let is_met = |condition: &Condition| condition.status == ConditionStatus::True;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready" && is_met(condition));
    for (condition, fields) in conditions.iter().zip(rendered.as_array_mut().into_iter().flatten()) {
        let Some(fields) = fields.as_object_mut() else { continue };
        if fields.get("observedGeneration") == Some(observed_generation) {
            fields.remove("observedGeneration");
        }
        let repeats_ready = || ready.is_some_and(|ready| ready.message == condition.message);
        if is_met(condition) && (stages.contains(&condition.type_) || repeats_ready()) {
            fields.remove("message");
        }
    }
    rendered
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const STAGES: [&str; 3] = ["Initialized", "RuntimeResolved", "Ready"];

    /// Columns: types and messages of true conditions, and of false ones; expected messages.
    #[rstest]
    #[case::complete(&[("Initialized", "applied"), ("Ready", "all")], &[], &[None, None])]
    #[case::other_conditions(&[("Active", "1 of 1"), ("GangScheduled", "all")], &[], &[Some("1 of 1"), Some("all")])]
    #[case::repeats_complete_ready(&[("Active", "1 of 1"), ("Ready", "1 of 1")], &[], &[None, None])]
    #[case::incomplete(&[("RuntimeResolved", "r")], &[("WorkloadsReady", "w"), ("Ready", "w")], &[None, Some("w"), Some("w")])]
    #[case::differs_from_ready(&[], &[("AcceleratorResolved", "a"), ("Ready", "w")], &[Some("a"), Some("w")])]
    fn messages_are_rendered_once(
        #[case] met: &[(&'static str, &str)],
        #[case] unmet: &[(&'static str, &str)],
        #[case] expected: &[Option<&str>],
    ) {
        let condition = |status: bool| {
            move |(type_, message): &(&'static str, &str)| Condition::with_reason(type_, status, "Reason", *message)
        };
        let conditions: Vec<Condition> =
            met.iter().map(condition(true)).chain(unmet.iter().map(condition(false))).collect();
        let service = json!({"metadata": {"generation": 3}});
        let rendered = render_service_conditions(&service, &conditions, &STAGES, &json!(3), Timestamp::UNIX_EPOCH);
        let messages: Vec<Option<&str>> =
            rendered.as_array().unwrap().iter().map(|condition| condition["message"].as_str()).collect();
        assert_eq!(messages, expected);
    }

    #[rstest]
    #[case::current(json!(3), Value::Null)]
    #[case::of_an_earlier_status(json!(2), json!(3))]
    #[case::without_a_status(Value::Null, json!(3))]
    fn generation_is_rendered_if_the_status_has_another(#[case] of_status: Value, #[case] expected: Value) {
        let conditions = [Condition::with_reason("Active", true, "Reason", "")];
        let service = json!({"metadata": {"generation": 3}});
        let rendered = render_service_conditions(&service, &conditions, &STAGES, &of_status, Timestamp::UNIX_EPOCH);
        assert_eq!(rendered[0]["observedGeneration"], expected);
    }
}
