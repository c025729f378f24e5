//! Conditions in the status of services, as short as possible, because `kubectl describe` prints a line per field.

use cluster::{Condition, ConditionStatus, generation, render_conditions};
use jiff::Timestamp;
use serde_json::Value;

/// Types of conditions that omit fields while they are true, because the type or the condition `Ready` implies them.
pub(crate) struct ImpliedFields {
    /// Conditions without a message.
    pub(crate) message: &'static [&'static str],
    /// Conditions without a message while `Ready` is true.
    pub(crate) message_if_ready: &'static [&'static str],
    /// Conditions without a reason.
    pub(crate) reason: &'static [&'static str],
}

/// Renders the conditions of a service without `implied` fields. `observed_generation` is the one of its status, which
/// `kubectl wait` reads for conditions that have none.
pub(crate) fn render_service_conditions(
    service: &Value,
    conditions: &[Condition],
    implied: &ImpliedFields,
    observed_generation: &Value,
    now: Timestamp,
) -> Value {
    let mut rendered = render_conditions(&service["status"]["conditions"], conditions, generation(service), now);
    let is_met = |condition: &Condition| condition.status == ConditionStatus::True;
    let is_ready = conditions.iter().any(|condition| condition.type_ == "Ready" && is_met(condition));
    for (condition, fields) in conditions.iter().zip(rendered.as_array_mut().into_iter().flatten()) {
        let Some(fields) = fields.as_object_mut() else { continue };
        if fields.get("observedGeneration") == Some(observed_generation) {
            fields.remove("observedGeneration");
        }
        let is_implied = |types: &[&str]| is_met(condition) && types.contains(&condition.type_);
        if is_implied(implied.message) || (is_ready && is_implied(implied.message_if_ready)) {
            fields.remove("message");
        }
        if is_implied(implied.reason) {
            fields.remove("reason");
        }
    }
    rendered
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const IMPLIED: ImpliedFields =
        ImpliedFields { message: &["Resolved", "Ready"], message_if_ready: &["Active"], reason: &["Resolved"] };

    /// Columns: types of true conditions, and of false ones; their expected fields.
    #[rstest]
    #[case::ready(&["Resolved", "Active", "Ready"], &[], &["", "reason", "reason"])]
    #[case::not_ready(&["Resolved", "Active"], &["Ready"], &["", "reason message", "reason message"])]
    #[case::not_resolved(&[], &["Resolved", "Ready"], &["reason message", "reason message"])]
    #[case::other_condition(&["Degraded", "Ready"], &[], &["reason message", "reason"])]
    fn implied_fields_of_true_conditions_are_omitted(
        #[case] met: &[&'static str],
        #[case] unmet: &[&'static str],
        #[case] expected: &[&str],
    ) {
        let condition = |status: bool| move |type_: &&'static str| Condition::with_reason(type_, status, "Reason", "m");
        let conditions: Vec<Condition> =
            met.iter().map(condition(true)).chain(unmet.iter().map(condition(false))).collect();
        let service = json!({"metadata": {"generation": 3}});
        let rendered = render_service_conditions(&service, &conditions, &IMPLIED, &json!(3), Timestamp::UNIX_EPOCH);
        let fields = |condition: &Value| {
            let present = ["reason", "message"].into_iter().filter(|field| condition[*field].is_string());
            present.collect::<Vec<_>>().join(" ")
        };
        let fields: Vec<String> = rendered.as_array().unwrap().iter().map(fields).collect();
        assert_eq!(fields, expected);
    }

    #[rstest]
    #[case::current(json!(3), Value::Null)]
    #[case::of_an_earlier_status(json!(2), json!(3))]
    #[case::without_a_status(Value::Null, json!(3))]
    fn generation_is_rendered_if_the_status_has_another(#[case] of_status: Value, #[case] expected: Value) {
        let conditions = [Condition::with_reason("Active", true, "Reason", "")];
        let service = json!({"metadata": {"generation": 3}});
        let rendered = render_service_conditions(&service, &conditions, &IMPLIED, &of_status, Timestamp::UNIX_EPOCH);
        assert_eq!(rendered[0]["observedGeneration"], expected);
    }
}
