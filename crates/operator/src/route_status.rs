//! Status that Gateway controllers report for the HTTPRoute and the InferencePool of a service; no I/O.
//!
//! Controllers of the Gateway API write one entry of `status.parents` for each parent that they serve. If no controller
//! has reported a status, readiness does not wait for one.

use cluster::{find_condition, generation, kind_and_name};
use serde_json::Value;

/// Conditions of a parent that must hold before requests are routed.
const REQUIRED_CONDITIONS: [&str; 2] = ["Accepted", "ResolvedRefs"];

/// Combined status of all routes and pools of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteStatus {
    /// No object references a Gateway.
    NoParents,
    /// No controller has reported a status for the current generation of these objects.
    NotReported(String),
    /// These parents accepted the objects.
    Accepted(String),
    /// A parent rejected an object; contains the message for a condition.
    Rejected(String),
}

/// Status that one parent reports for one object, most severe first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ParentStatus {
    /// The parent rejects the object; contains the message for a condition.
    Rejected(String),
    /// The parent has not reported a status for the current generation.
    Unknown,
    /// The parent of this name accepts the object.
    Accepted(String),
}

/// Returns the combined status of `objects`, which are routes and pools of one service. A rejection takes precedence
/// because requests through that parent fail.
pub(crate) fn route_status<'a>(objects: impl IntoIterator<Item = &'a Value>) -> RouteStatus {
    let (mut not_reported, mut accepting): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for object in objects.into_iter().filter(|object| object["kind"] == "InferencePool" || has_parent_refs(object)) {
        let mut statuses: Vec<ParentStatus> = parents(object).map(|parent| parent_status(object, parent)).collect();
        statuses.sort();
        match statuses.into_iter().find(|status| *status != ParentStatus::Unknown) {
            Some(ParentStatus::Rejected(message)) => return RouteStatus::Rejected(message),
            Some(ParentStatus::Accepted(parent)) => accepting.push(parent),
            // Controllers report a status for a pool only once a route references it.
            Some(ParentStatus::Unknown) | None if has_parent_refs(object) => not_reported.push(kind_and_name(object)),
            Some(ParentStatus::Unknown) | None => {}
        }
    }
    match (not_reported.is_empty(), accepting.is_empty()) {
        (false, _) => RouteStatus::NotReported(not_reported.join(", ")),
        (true, false) => {
            accepting.sort();
            accepting.dedup();
            RouteStatus::Accepted(accepting.join(", "))
        }
        (true, true) => RouteStatus::NoParents,
    }
}

fn has_parent_refs(object: &Value) -> bool {
    object["spec"]["parentRefs"].as_array().is_some_and(|parents| !parents.is_empty())
}

fn parents(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["parents"].as_array().into_iter().flatten()
}

/// Returns the status that `parent` reports for `object`. Conditions of earlier generations are ignored.
fn parent_status(object: &Value, parent: &Value) -> ParentStatus {
    let parent_name = parent_name(&parent["parentRef"]);
    let current_condition = |kind: &&str| {
        let condition = find_condition(&parent["conditions"], kind)?;
        let observed = condition["observedGeneration"].as_i64().unwrap_or(i64::MAX);
        (observed >= generation(object)).then_some(condition)
    };
    let mut rejections =
        REQUIRED_CONDITIONS.iter().filter_map(current_condition).filter(|condition| condition["status"] == "False");
    if let Some(condition) = rejections.next() {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let message = if text("message").is_empty() { String::new() } else { format!(": {}", text("message")) };
        let object = kind_and_name(object);
        return ParentStatus::Rejected(format!(
            "{object} was not accepted by {parent_name}: {}{message}",
            text("reason")
        ));
    }
    match current_condition(&"Accepted").is_some_and(|condition| condition["status"] == "True") {
        true => ParentStatus::Accepted(parent_name),
        false => ParentStatus::Unknown,
    }
}

/// Formats a parent reference: `Gateway gw`, `Gateway gw (https)`.
fn parent_name(reference: &Value) -> String {
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

    fn object(kind: &str, has_parent_refs: bool, parents: Value) -> Value {
        let spec = if has_parent_refs { json!({"parentRefs": [{"name": "gw"}]}) } else { json!({}) };
        json!({"kind": kind, "metadata": {"namespace": "n", "name": "s", "generation": 2}, "spec": spec,
            "status": {"parents": parents}})
    }

    fn parent(name: &str, accepted: &str, resolved: &str, generation: i64) -> Value {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": format!("{kind}{status}"), "message": "message",
                "observedGeneration": generation})
        };
        json!({"parentRef": {"name": name}, "controllerName": "x/y",
            "conditions": [condition("Accepted", accepted), condition("ResolvedRefs", resolved)]})
    }

    #[rstest]
    #[case::no_controller(json!([]), RouteStatus::NotReported("HTTPRoute n/s".into()))]
    #[case::unknown(json!([parent("gw", "Unknown", "Unknown", 2)]), RouteStatus::NotReported("HTTPRoute n/s".into()))]
    #[case::earlier_generation(json!([parent("gw", "False", "True", 1)]), RouteStatus::NotReported("HTTPRoute n/s".into()))]
    #[case::accepted(json!([parent("gw", "True", "True", 2)]), RouteStatus::Accepted("Gateway gw".into()))]
    #[case::not_accepted(json!([parent("gw", "False", "True", 2)]),
        RouteStatus::Rejected("HTTPRoute n/s was not accepted by Gateway gw: AcceptedFalse: message".into()))]
    #[case::unresolved_backend(json!([parent("gw", "True", "False", 2)]),
        RouteStatus::Rejected("HTTPRoute n/s was not accepted by Gateway gw: ResolvedRefsFalse: message".into()))]
    #[case::one_of_two_rejects(json!([parent("a", "True", "True", 2), parent("b", "False", "True", 2)]),
        RouteStatus::Rejected("HTTPRoute n/s was not accepted by Gateway b: AcceptedFalse: message".into()))]
    fn status_of_a_route(#[case] parents: Value, #[case] expect: RouteStatus) {
        assert_eq!(route_status([&object("HTTPRoute", true, parents)]), expect);
    }

    #[test]
    fn only_rejections_of_a_pool_count() {
        let pending = json!([{"parentRef": {"kind": "Status", "name": "default"},
            "conditions": [{"type": "Accepted", "status": "Unknown", "reason": "Pending"}]}]);
        let (route, pool) = (object("HTTPRoute", true, json!([parent("gw", "True", "True", 2)])), |parents| {
            object("InferencePool", false, parents)
        });
        assert_eq!(route_status([&route, &pool(pending)]), RouteStatus::Accepted("Gateway gw".into()));
        let rejected = pool(json!([parent("gw", "True", "False", 2)]));
        assert!(
            matches!(route_status([&route, &rejected]), RouteStatus::Rejected(message) if message.starts_with("InferencePool n/s"))
        );
    }

    #[test]
    fn route_without_parent_refs_has_no_status() {
        assert_eq!(route_status([&object("HTTPRoute", false, Value::Null)]), RouteStatus::NoParents);
        assert_eq!(route_status(std::iter::empty()), RouteStatus::NoParents);
    }
}
