//! How far a rollout is, and what a service's revisions changed.

use cluster::conditions::find;
use cluster::object::{generation, meta};
use operator::revisions::number;
use operator::rollout::is_paused;
use serde_json::Value;

use super::fleet::table;

/// Changes that one line names.
const CHANGES: usize = 3;
/// Characters of a value that a line shows.
const VALUE: usize = 60;

/// Reasons of `Ready` that do not pass by themselves, beside those of decisions and layouts; role-based services say it
/// in `Failed`.
const FINAL: [&str; 10] = [
    "ImagePullFailed",
    "ContainerCreateFailed",
    "PodFailed",
    "PodsNotCreated",
    "KindMissing",
    "ObjectNotOurs",
    "ObjectRefused",
    "InvalidSpec",
    "RuntimeUnreadable",
    "ModelUnreadable",
];
/// What decisions end with where only a person can help; room for a class may come by itself.
const UNDECIDED: [api::code::Code; 5] = [
    decide::code::outcome::NO_COMPATIBLE_RUNTIME,
    decide::code::outcome::MODEL_NOT_FOUND,
    decide::code::outcome::MODEL_DISABLED,
    decide::code::outcome::RUNTIME_NOT_FOUND,
    decide::code::outcome::NO_ENGINE_CONTAINER,
];

/// Reasons of `Ready` while things go as they should.
const GOING_ON: [&str; 4] = ["Starting", "NotReadyYet", "RollingOut", "RolloutPaused"];

/// Where a rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    UnderWay,
    /// Something is wrong that may pass: room that comes back, an engine that starts in the end.
    Troubled,
    Done,
    /// Nothing goes on before a person resumes it.
    Paused,
    /// Nothing goes on before a person changes something.
    Stopped,
}

/// Where the rollout of a service is, and one line about it.
pub(crate) fn progress(service: &Value) -> (Standing, String) {
    let status = &service["status"];
    let now = generation(service);
    let ready = find(&status["conditions"], "Ready").filter(|ready| ready["observedGeneration"] == now);
    let Some(ready) = ready else {
        return (Standing::UnderWay, format!("the operator has not taken in generation {now} yet"));
    };
    let failed = find(&status["conditions"], "Failed").is_some_and(|failed| failed["status"] == "True");
    let text = |field: &str| ready[field].as_str().unwrap_or_default();
    let message = text("message");
    match () {
        () if ready["status"] == "True" => (Standing::Done, format!("rolled out; {message}")),
        () if failed || is_final(text("reason")) => (Standing::Stopped, format!("stopped; {message}")),
        () if is_paused(service) => (Standing::Paused, format!("paused; {message}")),
        () if GOING_ON.contains(&text("reason")) => (Standing::UnderWay, message.to_owned()),
        () => (Standing::Troubled, message.to_owned()),
    }
}

fn is_final(reason: &str) -> bool {
    let mut codes = UNDECIDED.iter().chain(plan::code::refusal::ALL);
    FINAL.contains(&reason) || codes.any(|code| code.as_str() == reason)
}

/// One row for each revision, the newest last.
pub(crate) fn history(revisions: &[Value]) -> String {
    let before = std::iter::once(None).chain(revisions.iter().map(Some));
    let row = |(before, one): (Option<&Value>, &Value)| {
        let what = match before {
            Some(before) => changes(&before["data"]["spec"], &one["data"]["spec"]),
            None => "the oldest that is kept".to_owned(),
        };
        vec![number(one).to_string(), meta(one, "creationTimestamp").to_owned(), what]
    };
    let rows: Vec<Vec<String>> = before.zip(revisions).map(row).collect();
    table(&["REVISION", "FIRST MADE", "CHANGE"], &rows)
}

/// What turns one spec into another, in a few words: `roles[decode] … containers[vllm].image: a → b`.
pub(crate) fn changes(before: &Value, now: &Value) -> String {
    let mut found = Vec::new();
    compare(&mut Vec::new(), before, now, &mut found);
    let (mut told, mut last) = (Vec::new(), "");
    for Change { path, what } in found.iter().take(CHANGES) {
        let head = path.first().map_or("", String::as_str);
        told.push(format!("{}{what}", place(path, if head == last { Head::Told } else { Head::New })));
        last = head;
    }
    match (told.is_empty(), found.len() - told.len()) {
        (true, _) => "nothing".to_owned(),
        (false, 0) => told.join(", "),
        (false, more) => format!("{}, … {more} more", told.join(", ")),
    }
}

/// One field, and what became of it.
struct Change {
    path: Vec<String>,
    what: String,
}

/// Whether the change before began with the same segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    New,
    Told,
}

/// A long path as its first segment, which says whose it is, and its last, with the item of a list that it is of.
fn place(path: &[String], head: Head) -> String {
    let [first, below @ ..] = path else { return String::new() };
    if below.len() <= 2 {
        return path.join(".");
    }
    let item = below.iter().rposition(|segment| segment.ends_with(']'));
    let from = item.unwrap_or(below.len()).clamp(below.len() - 2, below.len() - 1);
    let tail = below.get(from..).unwrap_or_default().join(".");
    match head {
        Head::New => format!("{first} … {tail}"),
        Head::Told => format!("… {tail}"),
    }
}

fn compare(path: &mut Vec<String>, before: &Value, now: &Value, found: &mut Vec<Change>) {
    match (before, now) {
        _ if before == now => {}
        (Value::Object(old), Value::Object(new)) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                path.push(key.clone());
                compare(path, &before[key], &now[key], found);
                path.pop();
            }
        }
        (Value::Array(old), Value::Array(new)) if named(old) && named(new) => {
            let added = new.iter().filter(|item| !old.iter().any(|one| one["name"] == item["name"]));
            let list = path.pop().unwrap_or_default();
            for item in old.iter().chain(added) {
                let of = |list: &[Value]| list.iter().find(|one| one["name"] == item["name"]).cloned();
                path.push(format!("{list}[{}]", item["name"].as_str().unwrap_or_default()));
                compare(path, &of(old).unwrap_or_default(), &of(new).unwrap_or_default(), found);
                path.pop();
            }
            path.push(list);
        }
        _ => found.push(Change { path: path.clone(), what: difference(before, now) }),
    }
}

fn named(list: &[Value]) -> bool {
    list.iter().all(|item| item["name"].is_string())
}

fn difference(before: &Value, now: &Value) -> String {
    match (before, now) {
        (Value::Null, _) => " added".to_owned(),
        (_, Value::Null) => " removed".to_owned(),
        (Value::Array(old), Value::Array(new)) if words(old) && words(new) => of_lines(old, new),
        (before, now) => format!(": {} → {}", short(before), short(now)),
    }
}

fn words(list: &[Value]) -> bool {
    list.iter().all(Value::is_string)
}

/// What one command line has in place of another: words that both begin or end with are left out.
fn of_lines(old: &[Value], new: &[Value]) -> String {
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[same..], &new[same..]);
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let line = |list: &[Value]| {
        let words: Vec<&str> = list[..list.len() - same].iter().filter_map(Value::as_str).collect();
        short(&Value::from(words.join(" ")))
    };
    match (line(old), line(new)) {
        (old, new) if old.is_empty() => format!(": {new} added"),
        (old, new) if new.is_empty() => format!(": {old} removed"),
        (old, new) => format!(": {old} → {new}"),
    }
}

fn short(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if text.chars().count() <= VALUE {
        return text;
    }
    text.chars().take(VALUE - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn service(observed: i64, status: &str, reason: &str, failed: &str, paused: bool) -> Value {
        let annotations = if paused { json!({"fusioninfer.io/rollout-paused": "true"}) } else { json!({}) };
        json!({"apiVersion": "fusioninfer.io/v1alpha1", "metadata": {"generation": 4, "annotations": annotations},
            "status": {"conditions": [
                {"type": "Failed", "status": failed},
                {"type": "Ready", "status": status, "reason": reason, "message": "m", "observedGeneration": observed}]}})
    }

    #[rstest]
    #[case::not_seen(
        service(3, "True", "Ready", "False", false),
        Standing::UnderWay,
        "the operator has not taken in generation 4 yet"
    )]
    #[case::done(service(4, "True", "Ready", "False", false), Standing::Done, "rolled out; m")]
    #[case::starting(service(4, "False", "NotReadyYet", "False", false), Standing::UnderWay, "m")]
    #[case::bad(service(4, "False", "CrashLoop", "True", false), Standing::Stopped, "stopped; m")]
    #[case::no_kind(service(4, "False", "KindMissing", "False", false), Standing::Stopped, "stopped; m")]
    #[case::no_room(service(4, "False", "Unschedulable", "False", false), Standing::Troubled, "m")]
    #[case::a_crash_or_two(service(4, "False", "CrashLoop", "False", false), Standing::Troubled, "m")]
    #[case::no_class_has_room(service(4, "False", "NoEligibleAccelerator", "False", false), Standing::Troubled, "m")]
    #[case::no_runtime(service(4, "False", "NoCompatibleRuntime", "False", false), Standing::Stopped, "stopped; m")]
    #[case::no_layout(service(4, "False", "SchedulerConflict", "False", false), Standing::Stopped, "stopped; m")]
    #[case::paused(service(4, "False", "RolloutPaused", "False", true), Standing::Paused, "paused; m")]
    fn standings(#[case] service: Value, #[case] standing: Standing, #[case] line: &str) {
        assert_eq!(progress(&service), (standing, line.to_owned()));
    }

    fn role(image: &str, gpus: u32) -> Value {
        let container = json!({"name": "v", "image": image, "resources": {"limits": {"gpu": gpus}}});
        json!({"roles": [{"name": "d", "template": {"spec": {"containers": [container]}}}]})
    }

    #[rstest]
    #[case::image(json!({"roles": [{"name": "d", "template": {"image": "a"}}]}), json!({"roles": [{"name": "d", "template": {"image": "b"}}]}),
        "roles[d].template.image: a → b")]
    #[case::a_role_more(json!({"roles": [{"name": "d"}]}), json!({"roles": [{"name": "d"}, {"name": "e"}]}), "roles[e] added")]
    #[case::a_field_less(json!({"a": 1, "b": 2}), json!({"a": 1}), "b removed")]
    #[case::lists_without_names(json!({"args": ["x"]}), json!({"args": ["x", "y"]}), "args: y added")]
    #[case::a_word_less(json!({"args": ["x", "y", "z"]}), json!({"args": ["x", "z"]}), "args: y removed")]
    #[case::other_words(json!({"args": ["--a", "1", "--b"]}), json!({"args": ["--a", "2", "3", "--b"]}), "args: 1 → 2 3")]
    #[case::a_word_twice(json!({"args": ["x", "x"]}), json!({"args": ["x"]}), "args: x removed")]
    #[case::lists_of_numbers(json!({"ports": [1]}), json!({"ports": [1, 2]}), "ports: [1] → [1,2]")]
    #[case::many(json!({"a": 1, "b": 1, "c": 1, "d": 1}), json!({"a": 2, "b": 2, "c": 2, "d": 2}), "a: 1 → 2, b: 1 → 2, c: 1 → 2, … 1 more")]
    #[case::none(json!({}), json!({}), "nothing")]
    #[case::deep(role("a", 8), role("b", 4), "roles[d] … containers[v].image: a → b, … limits.gpu: 8 → 4")]
    #[case::of_a_component(json!({"engine": {"runner": {"resources": {"limits": {"gpu": 1}}}}}),
        json!({"engine": {"runner": {"resources": {"limits": {"gpu": 2}}}}}), "engine … gpu: 1 → 2")]
    fn what_changed(#[case] before: Value, #[case] now: Value, #[case] expect: &str) {
        assert_eq!(changes(&before, &now), expect);
    }

    #[test]
    fn a_history() {
        let revision = |number: i64, image: &str| json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "revision": number, "data": {"spec": {"image": image}}});
        insta::assert_snapshot!(history(&[revision(1, "a"), revision(3, "b")]), @r"
        REVISION  FIRST MADE            CHANGE
        1         2026-01-01T00:00:00Z  the oldest that is kept
        3         2026-01-01T00:00:00Z  image: a → b
        ");
    }
}
