//! Conversion between `events.k8s.io/v1` and core `v1` Events, which are two representations of the same stored
//! objects.

use serde_json::{Map, Value, json};

/// Pairs of field names in `events.k8s.io/v1` and in `v1`.
const FIELD_NAMES: [(&str, &str); 6] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
];

/// Converts from `events.k8s.io/v1` to the storage version `v1`.
#[must_use]
pub(crate) fn to_core(event: &Value) -> Value {
    let mut converted = rename_fields(event, FIELD_NAMES.iter().map(|(new, old)| (*new, *old)));
    converted.insert("apiVersion".to_owned(), json!("v1"));
    if let Some(count) = converted.remove("deprecatedCount") {
        converted.insert("count".to_owned(), count);
    }
    Value::Object(converted)
}

/// Converts from the storage version `v1` to `events.k8s.io/v1`.
#[must_use]
pub(crate) fn from_core(event: &Value) -> Value {
    let mut converted = rename_fields(event, FIELD_NAMES.iter().map(|(new, old)| (*old, *new)));
    converted.retain(|field, value| !field.starts_with("reporting") || *value != "");
    converted.insert("apiVersion".to_owned(), json!("events.k8s.io/v1"));
    if let Some(count) = converted.remove("count") {
        converted.insert("deprecatedCount".to_owned(), count);
    }
    Value::Object(converted)
}

fn rename_fields<'a>(event: &Value, names: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Map<String, Value> {
    let members = event.as_object().into_iter().flatten();
    members
        .map(|(field, value)| {
            let renamed = names.clone().find(|(from, _)| from == field);
            (renamed.map_or_else(|| field.clone(), |(_, to)| to.to_owned()), value.clone())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_events_in_both_directions() {
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "web"}, "note": "n",
            "reportingController": "c", "deprecatedCount": 2, "series": {"count": 3}});
        let core = to_core(&event);
        assert_eq!(core["involvedObject"]["name"], "web");
        assert_eq!(core["message"], "n");
        assert_eq!(core["count"], 2);
        assert_eq!(from_core(&core), event);
    }
}
