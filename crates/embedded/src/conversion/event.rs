//! Events: one storage, two faces. Clients of today write `events.k8s.io/v1`, kubectl reads `v1`.

use serde_json::{Map, Value, json};

/// Names of the same field in `events.k8s.io/v1` and in `v1`.
const RENAMED: [(&str, &str); 6] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
];

/// From `events.k8s.io/v1` to what is stored.
#[must_use]
pub(crate) fn to_core(event: &Value) -> Value {
    let mut core = renamed(event, RENAMED.iter().map(|(new, old)| (*new, *old)));
    core.insert("apiVersion".to_owned(), json!("v1"));
    if let Some(count) = core.remove("deprecatedCount") {
        core.insert("count".to_owned(), count);
    }
    Value::Object(core)
}

/// From what is stored to `events.k8s.io/v1`.
#[must_use]
pub(crate) fn from_core(event: &Value) -> Value {
    let mut new = renamed(event, RENAMED.iter().map(|(new, old)| (*old, *new)));
    new.retain(|field, value| !field.starts_with("reporting") || *value != "");
    new.insert("apiVersion".to_owned(), json!("events.k8s.io/v1"));
    if let Some(count) = new.remove("count") {
        new.insert("deprecatedCount".to_owned(), count);
    }
    Value::Object(new)
}

fn renamed<'a>(event: &Value, names: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Map<String, Value> {
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
    fn both_faces_show_the_same_event() {
        let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "web"}, "note": "n",
            "reportingController": "c", "deprecatedCount": 2, "series": {"count": 3}});
        let core = to_core(&new);
        assert_eq!(core["involvedObject"]["name"], "web");
        assert_eq!(core["message"], "n");
        assert_eq!(core["count"], 2);
        assert_eq!(from_core(&core), new);
    }
}
