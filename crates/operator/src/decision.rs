//! `status.decision`: the record of a choice, rewritten when a choice is taken and never because a number moved.

use decide::Decision;
use serde_json::{Value, json};

/// The record to keep: the service's own unless `plan` (its entry of `ostler plan -o json`) chooses otherwise, or the
/// service was edited, which asks for a new decision.
#[must_use]
pub fn record(service: &Value, plan: &Value) -> Value {
    let recorded = &service["status"]["decision"];
    let edited = service["status"]["observedGeneration"] != service["metadata"]["generation"];
    let bounded = bounded(plan);
    if recorded.is_object() && !edited && choice(recorded) == choice(&bounded) { recorded.clone() } else { bounded }
}

/// The plan's decision without its objects, limited in size, the rest counted.
fn bounded(plan: &Value) -> Value {
    let decision = serde_json::from_value::<Decision>(plan.clone()).map(|decision| decision.for_status());
    let written = decision.and_then(serde_json::to_value);
    // Only an entry that no plan of ours wrote cannot be read as one.
    written.unwrap_or_else(|_| json!({"feasible": false, "reason": plan["reason"], "message": plan["message"]}))
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
            "runtime": {"name": runtime, "scope": "Cluster"}, "objects": [{}],
            "components": {"engine": {"acceleratorClass": "h100", "nodes": 1, "replicas": 1}},
            "candidates": [{"runtime": runtime, "scope": "Cluster", "rank": 1, "selected": true},
                {"runtime": "loser", "scope": "Cluster", "rejected": {"code": "SizeOutOfRange", "message": "m"}}]})
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
        let able = |n| json!({"runtime": format!("r{n}"), "scope": "Cluster", "rank": n + 1, "selected": n == 0});
        let rejected = json!({"code": "Disabled", "message": "m"});
        let refused = |n| json!({"runtime": format!("x{n}"), "scope": "Cluster", "rejected": rejected});
        large["candidates"] = (0..15).map(able).chain((0..25).map(refused)).collect();
        let kept = record(&Value::Null, &large);
        assert_eq!(kept["candidates"].as_array().unwrap().len(), 31);
        assert_eq!(kept["omitted"], json!({"runnersUp": 4, "rejections": 5}));
    }
}
