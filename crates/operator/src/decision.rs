//! `status.decision`: the record of a choice, rewritten when a choice is taken and never because a number moved.

use std::collections::BTreeSet;

use cluster::conditions::Transition;
use decide::Decision;
use plan::labels::{REDECIDE, REDECIDED, SERVED};
use serde_json::{Value, json};

/// Warnings about objects that are left out of the choice.
const OF_OTHERS: [&str; 3] = [
    decide::code::warning::INVALID_RUNTIME.as_str(),
    decide::code::warning::INVALID_CLASS.as_str(),
    decide::code::warning::INVALID_MODEL.as_str(),
];

/// The record to keep: the service's own unless `plan` (its entry of `ostler plan -o json`) chooses otherwise, or the
/// service was edited, or a person asked, which calls for a new decision. `ready` is remembered: a choice that has served
/// stays in force.
#[must_use]
pub fn record(service: &Value, plan: &Value, ready: bool) -> Value {
    let recorded = &service["status"]["decision"];
    let asked = &service["metadata"]["annotations"][REDECIDE];
    let edited = service["status"]["observedGeneration"] != service["metadata"]["generation"];
    let fresh = bounded(plan);
    let kept =
        recorded.is_object() && !edited && recorded[REDECIDED] == *asked && standing(recorded) == standing(&fresh);
    let served = (ready || (!edited && choice(recorded) == choice(&fresh) && recorded[SERVED] == true))
        && fresh["feasible"] == true;
    let mut record = if kept { recorded.clone() } else { fresh };
    if asked.is_string() {
        record[REDECIDED] = asked.clone();
    }
    if served {
        record[SERVED] = true.into();
    }
    record
}

/// What is worth an event: another choice, and warnings that were not there before.
#[must_use]
pub fn news(old: &Value, new: &Value) -> Vec<Transition> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut news = Vec::new();
    if new["feasible"] == true && (old["feasible"] != true || choice(old) != choice(new)) {
        news.push(Transition { warning: false, reason: text(&new["reason"]), message: text(&new["message"]) });
    }
    let known = codes(old);
    // What cannot be read is told where it stands, once, and not at every service.
    let elsewhere = |code: &str| OF_OTHERS.contains(&code);
    for warning in new["warnings"].as_array().into_iter().flatten() {
        let code = text(&warning["code"]);
        if !known.contains(&code) && !elsewhere(&code) && news.iter().all(|told: &Transition| told.reason != code) {
            news.push(Transition { warning: true, reason: code, message: text(&warning["message"]) });
        }
    }
    news
}

/// Whether two plans choose the same.
#[must_use]
pub fn same_choice(one: &Value, other: &Value) -> bool {
    choice(one) == choice(other)
}

/// Whether a plan waits for accelerators that others hold.
#[must_use]
pub fn waits_for_capacity(decision: &Value) -> bool {
    codes(decision).contains(decide::code::warning::NO_FREE_CAPACITY.as_str())
}

fn codes(decision: &Value) -> BTreeSet<String> {
    let warnings = decision["warnings"].as_array().into_iter().flatten();
    warnings.filter_map(|warning| warning["code"].as_str().map(str::to_owned)).collect()
}

/// The plan's decision without its objects, limited in size, the rest counted.
fn bounded(plan: &Value) -> Value {
    let decision = serde_json::from_value::<Decision>(plan.clone()).map(|decision| decision.for_status());
    let written = decision.and_then(serde_json::to_value);
    // Only an entry that no plan of ours wrote cannot be read as one.
    written.unwrap_or_else(|_| json!({"feasible": false, "reason": plan["reason"], "message": plan["message"]}))
}

/// What a record stands for: the choice, and what is to be said of it.
fn standing(decision: &Value) -> (Value, BTreeSet<String>) {
    (choice(decision), codes(decision))
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
        let first = record(&Value::Null, &plan("a", 0.5), false);
        assert!(first["objects"].is_null());
        assert_eq!(record(&service(1, &first), &plan("a", 0.7), false), first);
        assert_ne!(record(&service(2, &first), &plan("a", 0.7), false), first);
        assert_eq!(record(&service(1, &first), &plan("b", 0.7), false)["runtime"]["name"], "b");
    }

    #[test]
    fn a_person_may_ask_again_once_per_value() {
        let first = record(&Value::Null, &plan("a", 0.5), true);
        assert_eq!(first[SERVED], true);
        let mut asking = service(1, &first);
        asking["metadata"]["annotations"][REDECIDE] = json!("t1");
        let answered = record(&asking, &plan("a", 0.7), false);
        assert_eq!(
            (&answered[REDECIDED], &answered[SERVED], &answered["message"]),
            (&json!("t1"), &json!(true), &json!("score 0.7"))
        );
        asking["status"]["decision"] = answered.clone();
        assert_eq!(record(&asking, &plan("a", 0.8), false), answered);
    }

    #[test]
    fn another_choice_has_not_served_and_is_news() {
        let first = record(&Value::Null, &plan("a", 0.5), true);
        let other = record(&service(1, &first), &plan("b", 0.5), false);
        assert!(other[SERVED].is_null());
        let told = |old: &Value, new: &Value| {
            news(old, new).into_iter().map(|one| (one.warning, one.reason)).collect::<Vec<_>>()
        };
        assert_eq!(told(&first, &other), [(false, "Selected".to_owned())]);
        assert!(told(&first, &first).is_empty());
        let mut waiting = other.clone();
        waiting["warnings"] = json!([{"code": decide::code::warning::NO_FREE_CAPACITY.as_str(), "message": "needs 8"}]);
        assert_eq!(told(&other, &waiting), [(true, decide::code::warning::NO_FREE_CAPACITY.as_str().to_owned())]);
        assert!(waits_for_capacity(&waiting) && !waits_for_capacity(&other));
        assert_eq!(record(&service(1, &waiting), &other, false)["warnings"], json!([]));
    }

    #[test]
    fn the_record_is_bounded_and_says_what_it_leaves_out() {
        let mut large = plan("a", 0.5);
        let able = |n| json!({"runtime": format!("r{n}"), "scope": "Cluster", "rank": n + 1, "selected": n == 0});
        let rejected = json!({"code": "Disabled", "message": "m"});
        let refused = |n| json!({"runtime": format!("x{n}"), "scope": "Cluster", "rejected": rejected});
        large["candidates"] = (0..15).map(able).chain((0..25).map(refused)).collect();
        let kept = record(&Value::Null, &large, false);
        assert_eq!(kept["candidates"].as_array().unwrap().len(), 31);
        assert_eq!(kept["omitted"], json!({"runnersUp": 4, "rejections": 5}));
    }
}
