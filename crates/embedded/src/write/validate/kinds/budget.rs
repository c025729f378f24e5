//! PodDisruptionBudgets: one bound, and not of more than all.

use apimachinery::status::Cause;
use serde_json::Value;

use super::field::Field;
use super::{selector, share};

pub(super) fn causes(budget: &Value) -> Vec<Cause> {
    let spec = Field::of(budget).get("spec");
    let (least, most, policy) =
        (spec.get("minAvailable"), spec.get("maxUnavailable"), spec.get("unhealthyPodEvictionPolicy"));
    let mut causes = Vec::new();
    if least.is_set() && most.is_set() {
        // As Go prints it.
        let shown = format!(
            r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            least.value,
            spec.get("selector").value,
            most.value,
            policy.value
        );
        causes.push(Cause::invalid_text(&spec.path, &shown, "minAvailable and maxUnavailable cannot be both set"));
    }
    for bound in [least, most].iter().filter(|bound| bound.is_set()) {
        causes.extend(share::not_negative(bound));
        causes.extend(share::not_above_all(bound));
    }
    causes.extend(policy.one_of(&["AlwaysAllow", "IfHealthyBudget"]));
    causes.extend(selector::of_labels(&spec.get("selector")));
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_budget_with_both_bounds_is_printed_as_go_prints_it() {
        let budget =
            json!({"spec": {"minAvailable": 1, "maxUnavailable": "5%", "selector": {"matchLabels": {"a": "b"}}}});
        let causes = causes(&budget);
        assert_eq!(
            causes[0].message,
            r#"Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"}},"MaxUnavailable":"5%","UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set"#
        );
    }
}
