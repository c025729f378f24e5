//! Validation of PodDisruptionBudgets.

use apimachinery::StatusCause;
use serde_json::Value;

use super::field::Field;
use super::{int_or_percent, selector};

pub(super) fn causes(budget: &Value) -> Vec<StatusCause> {
    let spec = Field::root(budget).get("spec");
    let (min_available, max_unavailable, policy) =
        (spec.get("minAvailable"), spec.get("maxUnavailable"), spec.get("unhealthyPodEvictionPolicy"));
    let mut causes = Vec::new();
    if min_available.is_set() && max_unavailable.is_set() {
        // Formatted as Go formats the struct.
        let formatted = format!(
            r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            min_available.value,
            spec.get("selector").value,
            max_unavailable.value,
            policy.value
        );
        causes.push(StatusCause::invalid_json(
            &spec.path,
            &formatted,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for bound in [min_available, max_unavailable].iter().filter(|bound| bound.is_set()) {
        causes.extend(int_or_percent::check_not_negative(bound));
        causes.extend(int_or_percent::check_at_most_100_percent(bound));
    }
    causes.extend(policy.check_one_of(&["AlwaysAllow", "IfHealthyBudget"]));
    causes.extend(selector::check_label_selector(&spec.get("selector")));
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_conflicting_bounds_in_go_format() {
        let budget =
            json!({"spec": {"minAvailable": 1, "maxUnavailable": "5%", "selector": {"matchLabels": {"a": "b"}}}});
        let causes = causes(&budget);
        assert_eq!(
            causes[0].message,
            r#"Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"}},"MaxUnavailable":"5%","UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set"#
        );
    }
}
