//! Cells of Events, in both of their versions.

use serde_json::{Value, json};

use super::cell::{column, first, number};
use super::{Column, since};
use crate::object;

pub(super) fn columns() -> Vec<Column> {
    vec![
        column("Last Seen", "string", 0, |event, now| json!(last_seen(event, now))),
        column("Type", "string", 0, |event, _| json!(object::text(event, "/type"))),
        column("Reason", "string", 0, |event, _| json!(object::text(event, "/reason"))),
        column("Object", "string", 0, |event, _| json!(event_object(event))),
        column("Subobject", "string", 1, |event, _| {
            json!(first(event, &["/involvedObject/fieldPath", "/regarding/fieldPath"]))
        }),
        column("Source", "string", 1, |event, _| json!(source(event))),
        column("Message", "string", 0, |event, _| json!(first(event, &["/message", "/note"]).trim())),
        column("First Seen", "string", 1, |event, now| json!(first_seen(event, now))),
        column("Count", "string", 1, |event, _| json!(times(event))),
        Column::name(1),
    ]
}

fn last_seen(event: &Value, now: jiff::Timestamp) -> String {
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"];
    since(first(event, &times), now)
}

fn first_seen(event: &Value, now: jiff::Timestamp) -> String {
    since(first(event, &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]), now)
}

/// Who told it, and on which machine.
fn source(event: &Value) -> String {
    let component = first(event, &["/source/component", "/reportingComponent", "/reportingController"]);
    let host = first(event, &["/source/host", "/reportingInstance"]);
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}

/// How often it was seen; one that has no count was seen once.
fn times(event: &Value) -> i64 {
    number(event, "/series/count").max(number(event, "/count")).max(number(event, "/deprecatedCount")).max(1)
}

fn event_object(event: &Value) -> String {
    let kind = first(event, &["/involvedObject/kind", "/regarding/kind"]).to_lowercase();
    format!("{kind}/{}", first(event, &["/involvedObject/name", "/regarding/name"]))
}
