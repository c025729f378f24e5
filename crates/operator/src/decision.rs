//! `status.decision`: the record of a choice, rewritten when a choice is taken and never because a number moved.

use std::collections::{BTreeMap, BTreeSet};

use cluster::conditions::Transition;
use decide::decision::{ComponentDecision, RuntimeRef};
use decide::reason::Warning;
use decide::{Decision, Scope};
use plan::labels::{REDECIDE, REDECIDED, SERVED};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// Warnings about objects that are left out of the choice.
const OF_OTHERS: [&str; 3] = [
    decide::code::warning::INVALID_RUNTIME.as_str(),
    decide::code::warning::INVALID_CLASS.as_str(),
    decide::code::warning::INVALID_MODEL.as_str(),
];

/// The decision that the service's status records; `None` where there is none that we could have written.
#[must_use]
pub fn recorded(service: &Value) -> Option<Decision> {
    Decision::deserialize(&service["status"]["decision"]).ok()
}

/// The record to keep: the service's own unless `fresh` chooses otherwise, or the service was edited, or a person asked,
/// which calls for a new decision. `ready` is remembered: a choice that has served stays in force.
#[must_use]
pub fn record(service: &Value, fresh: &Decision, ready: bool) -> Value {
    let old = &service["status"]["decision"];
    let recorded = recorded(service);
    let asked = &service["metadata"]["annotations"][REDECIDE];
    let edited = service["status"]["observedGeneration"] != service["metadata"]["generation"];
    let unedited = recorded.as_ref().filter(|_| !edited);
    let kept = old[REDECIDED] == *asked && unedited.is_some_and(|one| standing(one) == standing(fresh));
    let chosen_before = unedited.is_some_and(|one| choice(one) == choice(fresh));
    let served = (ready || (chosen_before && old[SERVED] == true)) && fresh.feasible;
    let mut record = if kept { old.clone() } else { written(fresh) };
    if asked.is_string() {
        record[REDECIDED] = asked.clone();
    }
    if served {
        record[SERVED] = true.into();
    }
    record
}

fn written(decision: &Decision) -> Value {
    // A decision has no key that is not text, so this cannot fail; its verdict would be told even so.
    serde_json::to_value(decision).unwrap_or_else(|_| json!({"feasible": false, "reason": decision.reason}))
}

/// What is worth an event: another choice, and warnings that were not there before.
#[must_use]
pub fn news(old: Option<&Decision>, new: &Decision) -> Vec<Transition> {
    let mut news = Vec::new();
    let before = old.filter(|old| old.feasible);
    if new.feasible && before.is_none_or(|old| choice(old) != choice(new)) {
        news.push(Transition { warning: false, reason: new.reason.clone(), message: new.message.clone() });
    }
    let known = old.map(|old| codes(&old.warnings)).unwrap_or_default();
    // What cannot be read is told where it stands, once, and not at every service.
    let elsewhere = |code: &str| OF_OTHERS.contains(&code);
    for Warning { code, message, .. } in &new.warnings {
        let told = known.contains(code.as_str()) || news.iter().any(|told: &Transition| told.reason == *code);
        if !told && !elsewhere(code) {
            news.push(Transition { warning: true, reason: code.clone(), message: message.clone() });
        }
    }
    news
}

fn codes(warnings: &[Warning]) -> BTreeSet<&str> {
    warnings.iter().map(|warning| warning.code.as_str()).collect()
}

/// What a record stands for: the choice, and what is to be said of it.
fn standing(decision: &Decision) -> (Outcome<'_>, BTreeSet<&str>) {
    (choice(decision), codes(&decision.warnings))
}

/// What makes two records one choice: no scores, no free numbers, and not whether the winner was selected or kept.
#[derive(PartialEq)]
enum Outcome<'a> {
    /// The winner and its layout.
    Chosen(Option<&'a RuntimeRef>, &'a BTreeMap<String, ComponentDecision>),
    /// Who was refused why.
    Refused(&'a str, BTreeSet<(&'a str, Scope, &'a str)>),
}

fn choice(decision: &Decision) -> Outcome<'_> {
    if decision.feasible {
        return Outcome::Chosen(decision.runtime.as_ref(), &decision.components);
    }
    let refused = decision.candidates.iter().filter_map(|one| {
        let rejection = one.rejected.as_ref()?;
        Some((one.runtime.as_str(), one.scope, rejection.code()))
    });
    Outcome::Refused(&decision.reason, refused.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use decide::code::warning::NO_FREE_CAPACITY;
    use decide::decision::Candidate;
    use plan::ServicePlan;

    fn candidate(name: &str, told: &Value) -> Candidate {
        let mut one = json!({"runtime": name, "scope": "Cluster"});
        for (key, value) in told.as_object().unwrap() {
            one[key] = value.clone();
        }
        serde_json::from_value(one).unwrap()
    }

    fn refused(name: &str) -> Candidate {
        candidate(name, &json!({"rejected": {"code": "SizeOutOfRange", "message": "m"}}))
    }

    fn plan(runtime: &str, score: f64) -> ServicePlan {
        let engine = ComponentDecision { nodes: 1, replicas: 1, ..ComponentDecision::default() };
        ServicePlan {
            feasible: true,
            reason: "Selected".to_owned(),
            message: format!("score {score}"),
            runtime: Some(RuntimeRef { name: runtime.to_owned(), scope: Scope::Cluster }),
            components: [("engine".to_owned(), engine)].into(),
            candidates: vec![candidate(runtime, &json!({"rank": 1, "selected": true})), refused("loser")],
            objects: vec![json!({})],
            ..ServicePlan::default()
        }
    }

    fn chosen(runtime: &str, score: f64) -> Decision {
        plan(runtime, score).record()
    }

    fn service(generation: i64, decision: &Value) -> Value {
        json!({"metadata": {"generation": generation}, "status": {"observedGeneration": 1, "decision": decision}})
    }

    #[test]
    fn the_record_stays_while_the_choice_stays() {
        let first = record(&Value::Null, &chosen("a", 0.5), false);
        assert!(first["objects"].is_null());
        assert_eq!(record(&service(1, &first), &chosen("a", 0.7), false), first);
        assert_ne!(record(&service(2, &first), &chosen("a", 0.7), false), first);
        assert_eq!(record(&service(1, &first), &chosen("b", 0.7), false)["runtime"]["name"], "b");
    }

    #[test]
    fn who_was_refused_why_is_an_outcome_too() {
        let none = |names: &[&str]| Decision {
            feasible: false,
            reason: "NoCompatibleRuntime".to_owned(),
            candidates: names.iter().map(|name| refused(name)).collect(),
            ..chosen("a", 0.5)
        };
        let first = record(&Value::Null, &none(&["x", "y"]), false);
        assert_eq!(record(&service(1, &first), &none(&["y", "x"]), false), first);
        assert_ne!(record(&service(1, &first), &none(&["x"]), false), first);
    }

    #[test]
    fn a_person_may_ask_again_once_per_value() {
        let first = record(&Value::Null, &chosen("a", 0.5), true);
        assert_eq!(first[SERVED], true);
        let mut asking = service(1, &first);
        asking["metadata"]["annotations"][REDECIDE] = json!("t1");
        let answered = record(&asking, &chosen("a", 0.7), false);
        assert_eq!(
            (&answered[REDECIDED], &answered[SERVED], &answered["message"]),
            (&json!("t1"), &json!(true), &json!("score 0.7"))
        );
        asking["status"]["decision"] = answered.clone();
        assert_eq!(record(&asking, &chosen("a", 0.8), false), answered);
    }

    #[test]
    fn another_choice_has_not_served_and_is_news() {
        let first = chosen("a", 0.5);
        let kept = record(&Value::Null, &first, true);
        let other = chosen("b", 0.5);
        assert!(record(&service(1, &kept), &other, false)[SERVED].is_null());
        let told = |old: &Decision, new: &Decision| {
            news(Some(old), new).into_iter().map(|one| (one.warning, one.reason)).collect::<Vec<_>>()
        };
        assert_eq!(told(&first, &other), [(false, "Selected".to_owned())]);
        assert!(told(&first, &first).is_empty());
        let waiting = Decision { warnings: vec![Warning::new(NO_FREE_CAPACITY, "needs 8")], ..other.clone() };
        assert_eq!(told(&other, &waiting), [(true, NO_FREE_CAPACITY.as_str().to_owned())]);
        let before = service(1, &record(&Value::Null, &waiting, false));
        assert_eq!(record(&before, &other, false)["warnings"], json!([]));
    }

    #[test]
    fn what_nobody_of_us_wrote_is_replaced() {
        let odd = service(1, &json!({"reason": 7, SERVED: true}));
        assert_eq!(record(&odd, &chosen("a", 0.5), false), record(&Value::Null, &chosen("a", 0.5), false));
    }

    #[test]
    fn the_record_is_bounded_and_says_what_it_leaves_out() {
        let able = |n: usize| candidate(&format!("r{n}"), &json!({"rank": n + 1, "selected": n == 0}));
        let refused = |n: usize| refused(&format!("x{n}"));
        let large =
            ServicePlan { candidates: (0..15).map(able).chain((0..25).map(refused)).collect(), ..plan("a", 0.5) };
        let kept = record(&Value::Null, &large.clone().shortened().record(), false);
        assert_eq!(kept["candidates"].as_array().unwrap().len(), 31);
        assert_eq!(kept["omitted"], json!({"runnersUp": 4, "rejections": 5}));
        assert_eq!(kept, record(&Value::Null, &large.record(), false));
    }
}
