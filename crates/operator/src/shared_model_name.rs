//! Condition of a service whose model name an older use case of another service declares; no I/O.

use cluster::{Condition, find_current_condition};
use picker::MODEL_NAME_SHARED;
use picker::code::OLDER_USE_CASE;
use serde_json::Value;

/// Returns the condition that the gateway reports for one of the service's own `use_case_sets`; `None` if requests for its model
/// name need no other path.
pub(crate) fn shared_model_name<'a>(use_case_sets: impl IntoIterator<Item = &'a Value>) -> Option<Condition> {
    let mut conditions = use_case_sets.into_iter().filter_map(|set| find_current_condition(set, MODEL_NAME_SHARED));
    let shared = conditions.find(|condition| condition["status"] == "True")?;
    let message = shared["message"].as_str().unwrap_or_default();
    Some(Condition::new(MODEL_NAME_SHARED, true, OLDER_USE_CASE, message))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::shared("ModelNameShared", "True", 2, Some("m"))]
    #[case::not_shared("ModelNameShared", "False", 2, None)]
    #[case::earlier_generation("ModelNameShared", "True", 1, None)]
    #[case::other_condition("Accepted", "True", 2, None)]
    fn condition_of_the_use_case_set_is_reported(
        #[case] type_: &str,
        #[case] status: &str,
        #[case] generation: i64,
        #[case] expected: Option<&str>,
    ) {
        let condition =
            json!({"type": type_, "status": status, "reason": "r", "message": "m", "observedGeneration": generation});
        let set = json!({"metadata": {"generation": 2}, "status": {"conditions": [condition]}});
        let reported = shared_model_name([&json!({}), &set]);
        assert_eq!(reported.map(|condition| condition.message).as_deref(), expected);
    }
}
