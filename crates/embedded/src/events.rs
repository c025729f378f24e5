//! Events: one storage, two faces. Clients of today write `events.k8s.io/v1`, kubectl reads `v1`.

use apimachinery::status::Status;
use serde_json::{Map, Value, json};

use crate::object;
use crate::server::Server;
use crate::store::{Key, Scope};

/// How long an Event is kept, in seconds; as kube-apiserver's `--event-ttl`.
const KEEP: i64 = 3600;
/// Seconds between two looks for old ones.
const SWEEP: i64 = 60;

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
pub fn to_core(event: &Value) -> Value {
    let mut core = renamed(event, RENAMED.iter().map(|(new, old)| (*new, *old)));
    core.insert("apiVersion".to_owned(), json!("v1"));
    if let Some(count) = core.remove("deprecatedCount") {
        core.insert("count".to_owned(), count);
    }
    Value::Object(core)
}

/// From what is stored to `events.k8s.io/v1`.
#[must_use]
pub fn from_core(event: &Value) -> Value {
    let mut new = renamed(event, RENAMED.iter().map(|(new, old)| (*old, *new)));
    new.retain(|field, value| !field.starts_with("reporting") || *value != "");
    new.insert("apiVersion".to_owned(), json!("events.k8s.io/v1"));
    if let Some(count) = new.remove("count") {
        new.insert("deprecatedCount".to_owned(), count);
    }
    Value::Object(new)
}

/// Records that something happened; a repeat raises the count of the Event that is there.
pub(crate) fn record(server: &Server, about: &Value, kind: &str, reason: &str, message: &str, component: &str) {
    expire(server);
    let namespace = match object::namespace(about) {
        "" => "default",
        namespace => namespace,
    };
    let now = object::time(server.now());
    let name = event_name(about, kind, reason, message, component);
    let result = match server.get("events", namespace, &name) {
        Some(event) => repeat(server, &event, &now),
        None => server.create("events", event(about, namespace, &name, &now, [kind, reason, message, component])),
    };
    if let Err(error) = result {
        tracing::debug!(%error, reason, "an event was not recorded");
    }
}

/// Drops what is older than the time Events are kept; runs when a new one comes, so a quiet cluster does nothing, and
/// once a minute at most, so that a busy one does little.
pub(crate) fn expire(server: &Server) {
    if !server.is_time_to_sweep(SWEEP) {
        return;
    }
    let oldest = object::time(server.now() - jiff::SignedDuration::from_secs(KEEP));
    let everywhere = Scope { resource: "events".to_owned(), namespace: None };
    for (place, kept) in server.store().list(&everywhere).objects {
        let event = kept.tree();
        let last = ["/lastTimestamp", "/metadata/creationTimestamp"]
            .map(|field| object::text(&event, field))
            .into_iter()
            .find(|time| !time.is_empty());
        if last.is_some_and(|last| last < oldest.as_str()) {
            let (namespace, name) = (place.0.clone(), place.1.clone());
            let place = Key { resource: "events".to_owned(), namespace, name };
            // Someone who writes it right now keeps it alive.
            let _ = server.store().commit(&place, Some(&event), None);
        }
    }
}

/// The same happening gets the same name, so that repeats meet. The hash only has to tell neighbours apart.
fn event_name(about: &Value, kind: &str, reason: &str, message: &str, component: &str) -> String {
    let identity = [object::uid(about), kind, reason, message, component].join("\0");
    let hash = identity
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let name: String = object::name(about).chars().take(230).collect();
    format!("{name}.{hash:016x}")
}

fn event(
    about: &Value,
    namespace: &str,
    name: &str,
    now: &str,
    [kind, reason, message, component]: [&str; 4],
) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "involvedObject": {
            "apiVersion": object::text(about, "/apiVersion"),
            "kind": object::text(about, "/kind"),
            "namespace": object::namespace(about),
            "name": object::name(about),
            "uid": object::uid(about),
            "resourceVersion": object::resource_version(about),
        },
        "type": kind, "reason": reason, "message": message,
        "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}

fn repeat(server: &Server, event: &Value, now: &str) -> Result<std::sync::Arc<Value>, Status> {
    let mut event = event.clone();
    let count = event["count"].as_i64().unwrap_or(1);
    event["count"] = json!(count + 1);
    event["lastTimestamp"] = json!(now);
    server.update("events", event)
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
