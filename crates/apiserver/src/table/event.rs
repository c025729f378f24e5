//! Table columns of Events of both API groups.

use apimachinery::object;
use serde_json::{Value, json};

use super::age::human_age;
use super::cell::{column, first_text, number};
use super::column::Column;

pub(super) fn columns() -> Vec<Column> {
    vec![
        column("Last Seen", "string", 0, |event, now| json!(last_seen(event, now))),
        column("Type", "string", 0, |event, _| json!(object::text(event, "/type"))),
        column("Reason", "string", 0, |event, _| json!(object::text(event, "/reason"))),
        column("Object", "string", 0, |event, _| json!(event_object(event))),
        column("Subobject", "string", 1, |event, _| {
            json!(first_text(event, &["/involvedObject/fieldPath", "/regarding/fieldPath"]))
        }),
        column("Source", "string", 1, |event, _| json!(source(event))),
        column("Message", "string", 0, |event, _| json!(first_text(event, &["/message", "/note"]).trim())),
        column("First Seen", "string", 1, |event, now| json!(first_seen(event, now))),
        column("Count", "string", 1, |event, _| json!(occurrences(event))),
        Column::name(1),
    ]
}

fn last_seen(event: &Value, now: jiff::Timestamp) -> String {
    let fields = ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"];
    human_age(first_text(event, &fields), now)
}

fn first_seen(event: &Value, now: jiff::Timestamp) -> String {
    human_age(first_text(event, &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]), now)
}

/// Returns the reporting component and its host.
fn source(event: &Value) -> String {
    let component = first_text(event, &["/source/component", "/reportingComponent", "/reportingController"]);
    let host = first_text(event, &["/source/host", "/reportingInstance"]);
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}

/// Returns the number of occurrences, at least 1.
fn occurrences(event: &Value) -> i64 {
    number(event, "/series/count").max(number(event, "/count")).max(number(event, "/deprecatedCount")).max(1)
}

fn event_object(event: &Value) -> String {
    let kind = first_text(event, &["/involvedObject/kind", "/regarding/kind"]).to_lowercase();
    format!("{kind}/{}", first_text(event, &["/involvedObject/name", "/regarding/name"]))
}
