//! Events that the controllers here record, and how long all of them are kept.

use apimachinery::status::Status;
use serde_json::{Value, json};

use crate::object;
use crate::server::Server;
use crate::store::{Key, Scope};

/// How long an Event is kept, in seconds; as kube-apiserver's `--event-ttl`.
const KEEP: i64 = 3600;
/// Seconds between two looks for old ones.
const SWEEP: i64 = 60;

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
