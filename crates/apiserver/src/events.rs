//! Event recorder of the built-in controllers, and expiration of Events.

use std::hash::Hasher as _;

use apimachinery::{CaughtPanic, Status, catch_panic, object, time};
use serde_json::{Value, json};

use crate::async_worker;
use crate::core::Core;
use crate::store::{CollectionKey, ObjectKey};
use crate::write::{self, Proposal, Subresource, WriteOptions, WriteRequest};

/// Name under which Events are stored.
pub(crate) const EVENTS: &str = "events";
/// Lifetime of an Event in seconds; the default of kube-apiserver's `--event-ttl`.
const TTL_SECONDS: i64 = 3600;
/// Minimum interval between two sweeps of expired Events, in seconds.
const SWEEP_INTERVAL_SECONDS: i64 = 60;

/// Records an Event about the object `subject`, or increments the count if the same Event already exists.
pub(crate) fn record(core: &Core, subject: &Value, kind: &str, reason: &str, message: &str, component: &str) {
    remove_expired(core);
    let namespace = match object::namespace(subject) {
        "" => "default",
        namespace => namespace,
    };
    let now = object::format_time(core.now());
    let name = event_name(subject, kind, reason, message, component);
    let result = match core.get(EVENTS, namespace, &name) {
        Some(event) => increment_count(core, &event, &now),
        None => create(core, event(subject, namespace, &name, &now, [kind, reason, message, component])),
    };
    if let Err(error) = result {
        tracing::debug!(%error, reason, "failed to record an event");
    }
}

/// Logs a panic of `component` that `subject` causes, and records it as a Warning Event. `consequence` is a sentence about
/// what the component does next.
pub(crate) fn report_panic(core: &Core, subject: &Value, panic: &CaughtPanic, component: &str, consequence: &str) {
    const MAX_CAUSE_CHARS: usize = 500;
    let (kind, namespace, name) = (object::text(subject, "/kind"), object::namespace(subject), object::name(subject));
    tracing::error!(component, kind, namespace, name, %panic, "failed to process an object");
    let cause: String = panic.to_string().chars().take(MAX_CAUSE_CHARS).collect();
    let message = format!("Internal error of {component}: {cause}. {consequence}");
    if let Err(panic) = catch_panic(|| record(core, subject, "Warning", "InternalError", &message, component)) {
        tracing::error!(component, kind, namespace, name, %panic, "failed to record an Event");
    }
}

/// Deletes expired Events. Runs when an Event is recorded or created by a client, so that an idle cluster does no work, and at
/// most once per minute, to limit the load on a busy cluster. Reads all Events, outside of the async workers.
pub(crate) fn remove_expired(core: &Core) {
    if core.start_event_sweep(SWEEP_INTERVAL_SECONDS) {
        async_worker::leave(|| remove_older_than_ttl(core));
    }
}

fn remove_older_than_ttl(core: &Core) {
    let cutoff = object::format_time(time::add_seconds(core.now(), -TTL_SECONDS));
    let all_namespaces = CollectionKey { resource: EVENTS.to_owned(), namespace: None };
    for (key, stored) in core.store.list(&all_namespaces).objects {
        let event = stored.value();
        let last_seen = ["/lastTimestamp", "/metadata/creationTimestamp"]
            .map(|field| object::text(&event, field))
            .into_iter()
            .find(|time| !time.is_empty());
        if last_seen.is_some_and(|last| last < cutoff.as_str()) {
            let (namespace, name) = (key.0.clone(), key.1.clone());
            let event_key = ObjectKey { resource: EVENTS.to_owned(), namespace, name };
            // A conflict means that the Event was updated concurrently and has not expired.
            let _ = core.store.commit(&event_key, Some(&event), None);
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

/// Creates an Event. Nothing follows from the write, because Events have no owners.
fn create(core: &Core, event: Value) -> Result<(), Status> {
    let resource = core.registry().by_name(EVENTS).ok_or_else(Status::path_not_found)?;
    let namespace = object::namespace(&event).to_owned();
    let options = WriteOptions::controller_manager();
    let request =
        WriteRequest { resource: &resource, subresource: Subresource::Main, namespace: &namespace, options: &options };
    write::create(core, &request, Proposal::Update(event)).map(drop)
}

fn increment_count(core: &Core, event: &Value, now: &str) -> Result<(), Status> {
    let resource = core.registry().by_name(EVENTS).ok_or_else(Status::path_not_found)?;
    let count = event["count"].as_i64().unwrap_or(1);
    let mut event = event.clone();
    event["count"] = json!(count.saturating_add(1));
    event["lastTimestamp"] = json!(now);
    let options = WriteOptions::controller_manager();
    let request = WriteRequest {
        resource: &resource,
        subresource: Subresource::Main,
        namespace: object::namespace(&event),
        options: &options,
    };
    let propose = |_: Option<&Value>| Ok(Proposal::Update(event.clone()));
    write::modify(core, &request, object::name(&event), &propose).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use jiff::Timestamp;

    use super::*;
    use crate::ports::{Clock, ServerPorts};
    use crate::server::Server;

    /// A clock with seconds since the epoch.
    #[derive(Default)]
    struct ManualClock(AtomicI64);

    impl Clock for ManualClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
        }
    }

    /// No built-in controller records an Event.
    #[test]
    fn events_of_clients_expire() {
        let clock = Arc::new(ManualClock::default());
        let server = Server::new(&ServerPorts { clock: Arc::<ManualClock>::clone(&clock), ..ServerPorts::default() });
        let create = |name: &str| {
            let involved = json!({"kind": "ConfigMap", "namespace": "default", "name": "x"});
            let metadata = json!({"namespace": "default", "name": name});
            server.create(EVENTS, json!({"metadata": metadata, "involvedObject": involved})).unwrap();
        };
        let names =
            || -> Vec<String> { server.list(EVENTS).iter().map(|event| object::name(event).to_owned()).collect() };
        for (seconds, name, expected) in [
            (1_000_000, "a", vec!["a"]),
            (1_003_000, "b", vec!["a", "b"]),
            (1_004_000, "c", vec!["b", "c"]),
            (1_004_030, "d", vec!["b", "c", "d"]),
        ] {
            clock.0.store(seconds, Ordering::Relaxed);
            create(name);
            assert_eq!(names(), expected, "at {seconds}");
        }
    }
}
