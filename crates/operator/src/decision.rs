//! `status.decision`: the record of a choice, rewritten when a choice is taken and never because a number moved.

use serde_json::{Map, Value, json};

/// Candidates that could have served, kept beside the winner.
const RUNNERS_UP: usize = 10;
/// Rejected candidates that are kept.
const REJECTED: usize = 20;

/// The record to keep: the service's own unless `plan` (its entry of `ostler plan -o json`) chooses otherwise, or the
/// service was edited, which asks for a new decision.
#[must_use]
pub fn record(service: &Value, plan: &Value) -> Value {
    let recorded = &service["status"]["decision"];
    let edited = service["status"]["observedGeneration"] != service["metadata"]["generation"];
    let bounded = bounded(plan);
    if recorded.is_object() && !edited && choice(recorded) == choice(&bounded) { recorded.clone() } else { bounded }
}

/// The plan's record without its objects, its candidates limited, the rest counted.
fn bounded(plan: &Value) -> Value {
    let mut decision = Map::new();
    for field in ["feasible", "reason", "message", "runtime", "components", "warnings"] {
        if !plan[field].is_null() {
            decision.insert(field.to_owned(), plan[field].clone());
        }
    }
    let candidates = plan["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (rejected, able): (Vec<&Value>, Vec<&Value>) = candidates.iter().partition(|one| !one["rejected"].is_null());
    let kept = able.iter().take(1 + RUNNERS_UP).chain(rejected.iter().take(REJECTED));
    decision.insert("candidates".to_owned(), kept.copied().cloned().collect());
    let omitted = json!({"eligible": able.len().saturating_sub(1 + RUNNERS_UP), "rejected": rejected.len().saturating_sub(REJECTED)});
    if omitted != json!({"eligible": 0, "rejected": 0}) {
        decision.insert("omitted".to_owned(), omitted);
    }
    Value::Object(decision)
}

/// What makes two records one choice: the winner and its layout; or, without one, who was refused why. No scores, no
/// free numbers, and not whether the winner was selected or kept.
fn choice(decision: &Value) -> Value {
    if decision["feasible"] == true {
        return json!([decision["runtime"], decision["components"]]);
    }
    let candidates = decision["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut refused: Vec<Value> = candidates
        .iter()
        .filter(|one| !one["rejected"].is_null())
        .map(|one| json!([one["runtime"], one["scope"], one["rejected"]["code"]]))
        .collect();
    refused.sort_by_key(Value::to_string);
    json!([decision["reason"], refused])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(runtime: &str, score: f64) -> Value {
        json!({"kind": "InferenceService", "feasible": true, "reason": "Selected", "message": format!("score {score}"),
            "runtime": {"name": runtime}, "components": {"engine": {"acceleratorClass": "h100"}}, "objects": [{}],
            "candidates": [{"runtime": runtime, "rank": 1, "accelerators": [{"score": score}]},
                {"runtime": "loser", "rejected": {"code": "SizeOutOfRange", "message": "m"}}]})
    }

    fn service(generation: i64, decision: &Value) -> Value {
        json!({"metadata": {"generation": generation}, "status": {"observedGeneration": 1, "decision": decision}})
    }

    #[test]
    fn the_record_stays_while_the_choice_stays() {
        let first = record(&Value::Null, &plan("a", 0.5));
        assert!(first["objects"].is_null());
        assert_eq!(record(&service(1, &first), &plan("a", 0.7)), first);
        assert_ne!(record(&service(2, &first), &plan("a", 0.7)), first);
        assert_eq!(record(&service(1, &first), &plan("b", 0.7))["runtime"]["name"], "b");
    }

    #[test]
    fn the_record_is_bounded_and_says_what_it_leaves_out() {
        let mut large = plan("a", 0.5);
        large["candidates"] = (0..15)
            .map(|n| json!({"runtime": format!("r{n}")}))
            .chain((0..25).map(|n| json!({"runtime": format!("x{n}"), "rejected": {"code": "Disabled"}})))
            .collect();
        let kept = record(&Value::Null, &large);
        assert_eq!(kept["candidates"].as_array().unwrap().len(), 31);
        assert_eq!(kept["omitted"], json!({"eligible": 4, "rejected": 5}));
    }
}
