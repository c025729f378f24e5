//! What gateways say of the objects that lead requests to a service: its HTTPRoute and its InferencePool. Pure.
//!
//! Controllers of the Gateway API write one entry of `status.parents` for each parent that they serve. Where nobody does,
//! nobody will: that is told, and nothing waits for it.

use cluster::conditions::find;
use cluster::object::{describe, generation};
use serde_json::Value;

/// Conditions of a parent without which no request comes by it.
const NEEDED: [&str; 2] = ["Accepted", "ResolvedRefs"];

/// What has been said of all routes and pools of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is nothing that a gateway could say something about.
    NotAsked,
    /// Of these objects nobody has said anything that counts for their present content.
    Silent(String),
    /// Gateways, or whatever the parents are, that take what they were asked to.
    Accepted(String),
    /// One that does not, with its reason and words.
    Refused(String),
}

/// One parent's word on one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    No(String),
    Nothing,
    Yes(String),
}

/// What is said of `objects`, which are routes and pools of one service. A refusal counts more than anything else: who
/// asks by that parent is not answered.
#[must_use]
pub fn answer<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Answer {
    let (mut silent, mut accepting): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for object in objects.into_iter().filter(|object| object["kind"] == "InferencePool" || asks(object)) {
        let mut words: Vec<Word> = parents(object).map(|parent| word(object, parent)).collect();
        words.sort();
        match words.into_iter().find(|word| *word != Word::Nothing) {
            Some(Word::No(why)) => return Answer::Refused(why),
            Some(Word::Yes(who)) => accepting.push(who),
            // A pool is told of when a route leads to it.
            Some(Word::Nothing) | None if asks(object) => silent.push(describe(object)),
            Some(Word::Nothing) | None => {}
        }
    }
    match (silent.is_empty(), accepting.is_empty()) {
        (false, _) => Answer::Silent(silent.join(", ")),
        (true, false) => {
            accepting.sort();
            accepting.dedup();
            Answer::Accepted(accepting.join(", "))
        }
        (true, true) => Answer::NotAsked,
    }
}

/// Whether the object names a Gateway that could answer.
fn asks(object: &Value) -> bool {
    object["spec"]["parentRefs"].as_array().is_some_and(|parents| !parents.is_empty())
}

fn parents(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["parents"].as_array().into_iter().flatten()
}

/// Conditions of an earlier generation say nothing about this one.
fn word(object: &Value, parent: &Value) -> Word {
    let who = who(&parent["parentRef"]);
    let told = |kind: &&str| {
        let told = find(&parent["conditions"], kind)?;
        let of = told["observedGeneration"].as_i64().unwrap_or(i64::MAX);
        (of >= generation(object)).then_some(told)
    };
    let mut refused = NEEDED.iter().filter_map(told).filter(|told| told["status"] == "False");
    if let Some(told) = refused.next() {
        let text = |field: &str| told[field].as_str().unwrap_or_default();
        let words = if text("message").is_empty() { String::new() } else { format!(": {}", text("message")) };
        return Word::No(format!("{} is not taken by {who}: {}{words}", describe(object), text("reason")));
    }
    match told(&"Accepted").is_some_and(|told| told["status"] == "True") {
        true => Word::Yes(who),
        false => Word::Nothing,
    }
}

/// `Gateway gw`, `Gateway gw (https)`
fn who(reference: &Value) -> String {
    let text = |field: &str| reference[field].as_str();
    let listener = text("sectionName").map(|name| format!(" ({name})")).unwrap_or_default();
    let name = text("name").unwrap_or_default();
    format!("{} {name}{listener}", text("kind").unwrap_or("Gateway"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn object(kind: &str, asks: bool, parents: Value) -> Value {
        let spec = if asks { json!({"parentRefs": [{"name": "gw"}]}) } else { json!({}) };
        json!({"kind": kind, "metadata": {"namespace": "n", "name": "s", "generation": 2}, "spec": spec,
            "status": {"parents": parents}})
    }

    fn parent(name: &str, accepted: &str, resolved: &str, generation: i64) -> Value {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": format!("{kind}{status}"), "message": "words",
                "observedGeneration": generation})
        };
        json!({"parentRef": {"name": name}, "controllerName": "x/y",
            "conditions": [condition("Accepted", accepted), condition("ResolvedRefs", resolved)]})
    }

    #[rstest]
    #[case::no_controller(json!([]), Answer::Silent("HTTPRoute n/s".into()))]
    #[case::not_decided_yet(json!([parent("gw", "Unknown", "Unknown", 2)]), Answer::Silent("HTTPRoute n/s".into()))]
    #[case::of_an_earlier_generation(json!([parent("gw", "False", "True", 1)]), Answer::Silent("HTTPRoute n/s".into()))]
    #[case::taken(json!([parent("gw", "True", "True", 2)]), Answer::Accepted("Gateway gw".into()))]
    #[case::refused(json!([parent("gw", "False", "True", 2)]),
        Answer::Refused("HTTPRoute n/s is not taken by Gateway gw: AcceptedFalse: words".into()))]
    #[case::leads_nowhere(json!([parent("gw", "True", "False", 2)]),
        Answer::Refused("HTTPRoute n/s is not taken by Gateway gw: ResolvedRefsFalse: words".into()))]
    #[case::by_one_of_two(json!([parent("a", "True", "True", 2), parent("b", "False", "True", 2)]),
        Answer::Refused("HTTPRoute n/s is not taken by Gateway b: AcceptedFalse: words".into()))]
    fn of_a_route(#[case] parents: Value, #[case] expect: Answer) {
        assert_eq!(answer([&object("HTTPRoute", true, parents)]), expect);
    }

    #[test]
    fn of_a_pool_only_a_refusal_counts() {
        let waiting = json!([{"parentRef": {"kind": "Status", "name": "default"},
            "conditions": [{"type": "Accepted", "status": "Unknown", "reason": "Pending"}]}]);
        let (route, pool) = (object("HTTPRoute", true, json!([parent("gw", "True", "True", 2)])), |parents| {
            object("InferencePool", false, parents)
        });
        assert_eq!(answer([&route, &pool(waiting)]), Answer::Accepted("Gateway gw".into()));
        let refused = pool(json!([parent("gw", "True", "False", 2)]));
        assert!(matches!(answer([&route, &refused]), Answer::Refused(why) if why.starts_with("InferencePool n/s")));
    }

    #[test]
    fn a_route_without_a_gateway_asks_nobody() {
        assert_eq!(answer([&object("HTTPRoute", false, Value::Null)]), Answer::NotAsked);
        assert_eq!(answer(std::iter::empty()), Answer::NotAsked);
    }
}
