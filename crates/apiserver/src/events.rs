//! Event recorder of the built-in controllers, and expiration of Events.

use std::hash::Hasher as _;

use apimachinery::Status;
use serde_json::{Value, json};

use crate::object;
use crate::server::Server;
use crate::store::{CollectionKey, ObjectKey};

/// Lifetime of an Event in seconds; the default of kube-apiserver's `--event-ttl`.
const TTL_SECONDS: i64 = 3600;
/// Minimum interval between two sweeps of expired Events, in seconds.
const SWEEP_INTERVAL_SECONDS: i64 = 60;

/// Records an Event about the object `subject`, or increments the count if the same Event already exists.
pub(crate) fn record(server: &Server, subject: &Value, kind: &str, reason: &str, message: &str, component: &str) {
    remove_expired(server);
    let namespace = match object::namespace(subject) {
        "" => "default",
        namespace => namespace,
    };
    let now = object::format_time(server.now());
    let name = event_name(subject, kind, reason, message, component);
    let result = match server.get("events", namespace, &name) {
        Some(event) => increment_count(server, &event, &now),
        None => server.create("events", event(subject, namespace, &name, &now, [kind, reason, message, component])),
    };
    if let Err(error) = result {
        tracing::debug!(%error, reason, "failed to record an event");
    }
}

/// Deletes expired Events. Runs when an Event is recorded, so that an idle cluster does no work, and at most once per
/// minute, to limit the load on a busy cluster.
pub(crate) fn remove_expired(server: &Server) {
    if !server.start_event_sweep(SWEEP_INTERVAL_SECONDS) {
        return;
    }
    let cutoff = object::format_time(server.now() - jiff::SignedDuration::from_secs(TTL_SECONDS));
    let all_namespaces = CollectionKey { resource: "events".to_owned(), namespace: None };
    for (key, stored) in server.store().list(&all_namespaces).objects {
        let event = stored.value();
        let last_seen = ["/lastTimestamp", "/metadata/creationTimestamp"]
            .map(|field| object::text(&event, field))
            .into_iter()
            .find(|time| !time.is_empty());
        if last_seen.is_some_and(|last| last < cutoff.as_str()) {
            let (namespace, name) = (key.0.clone(), key.1.clone());
            let event_key = ObjectKey { resource: "events".to_owned(), namespace, name };
            // A conflict means that the Event was updated concurrently and has not expired.
            let _ = server.store().commit(&event_key, Some(&event), None);
        }
    }
}

/// Returns the name of an Event, which is the same for every occurrence. The hash distinguishes different Events about
/// one object.
fn event_name(subject: &Value, kind: &str, reason: &str, message: &str, component: &str) -> String {
    let identity = [object::uid(subject), kind, reason, message, component].join("\0");
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(identity.as_bytes());
    let hash = hasher.finish();
    let name: String = object::name(subject).chars().take(230).collect();
    format!("{name}.{hash:016x}")
}

fn event(
    subject: &Value,
    namespace: &str,
    name: &str,
    now: &str,
    [kind, reason, message, component]: [&str; 4],
) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "involvedObject": {
            "apiVersion": object::text(subject, "/apiVersion"),
            "kind": object::text(subject, "/kind"),
            "namespace": object::namespace(subject),
            "name": object::name(subject),
            "uid": object::uid(subject),
            "resourceVersion": object::resource_version(subject),
        },
        "type": kind, "reason": reason, "message": message,
        "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}

fn increment_count(server: &Server, event: &Value, now: &str) -> Result<std::sync::Arc<Value>, Status> {
    let mut event = event.clone();
    let count = event["count"].as_i64().unwrap_or(1);
    event["count"] = json!(count + 1);
    event["lastTimestamp"] = json!(now);
    server.update("events", event)
}
