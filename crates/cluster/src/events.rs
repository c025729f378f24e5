//! Records condition transitions as `events.k8s.io/v1` events.

use std::hash::Hasher;
use std::sync::Arc;

use fnv::FnvHasher;
use jiff::Timestamp;
use kube::Client;
use kube::api::PostParams;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::clock::{Clock, rfc3339_micros};
use crate::conditions::Transition;
use crate::object::{kind_and_name, metadata_field};
use crate::{Error, Kind};

const EVENT: Kind = Kind::namespaced("events.k8s.io", "v1", "Event", "events");
/// Maximum length of an event's `note` in bytes; the API server rejects longer notes.
const MAX_NOTE_BYTES: usize = 1024;
/// Maximum length of a name; the API server rejects longer names.
const MAX_NAME_LENGTH: usize = 253;
/// Maximum length of a reason in an event name, the API server's limit for the reason itself.
const MAX_REASON_LENGTH: usize = 128;

/// Creates events on behalf of one controller.
#[derive(Clone)]
pub struct EventRecorder {
    client: Client,
    clock: Arc<dyn Clock>,
    /// `reportingController` and `reportingInstance`.
    controller: &'static str,
}

// === impl EventRecorder ===

impl EventRecorder {
    /// Returns a recorder whose events have `controller` as reporting controller.
    #[must_use]
    pub fn new(client: Client, clock: Arc<dyn Clock>, controller: &'static str) -> EventRecorder {
        EventRecorder { client, clock, controller }
    }

    /// Creates the event `name` about a transition that the status of `object` does not record yet. With the name from
    /// [`transition_event_name`], a retry creates it once, as does another replica after a lost term.
    ///
    /// # Errors
    /// The request failed or was rejected. An event that already exists is not an error.
    pub async fn publish_transition(
        &self,
        object: &Value,
        action: &str,
        transition: &Transition,
        name: String,
    ) -> Result<(), Error> {
        self.create(object, action, transition, name).await
    }

    /// Creates an event unless one exists for the same content of `object` (its `spec`, or the `data` of a ConfigMap) and the
    /// same message, so that replicas that publish it repeatedly create it once.
    ///
    /// # Errors
    /// Same as [`Self::publish_transition`].
    pub async fn publish_once(&self, object: &Value, action: &str, transition: &Transition) -> Result<(), Error> {
        let content = object.get("spec").or_else(|| object.get("data")).unwrap_or(&Value::Null);
        let name = event_name(object, transition, &content.to_string());
        self.create(object, action, transition, name).await
    }

    /// Creates an event about one version of `object`, unless one exists for the same version, reason and message.
    ///
    /// # Errors
    /// Same as [`Self::publish_transition`].
    pub async fn publish(&self, object: &Value, action: &str, transition: &Transition) -> Result<(), Error> {
        let name = event_name(object, transition, metadata_field(object, "resourceVersion"));
        self.create(object, action, transition, name).await
    }

    /// Creates an event unless one of this name exists.
    async fn create(&self, object: &Value, action: &str, transition: &Transition, name: String) -> Result<(), Error> {
        let event = render(object, action, transition, self.controller, self.clock.now(), name);
        let request_error = |source| Error::Request {
            action: "create an event for",
            object: kind_and_name(object),
            source: Box::new(source),
        };
        let event: DynamicObject =
            serde_json::from_value(event).map_err(|error| request_error(kube::Error::SerdeError(error)))?;
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let events = EVENT.api(self.client.clone(), &namespace);
        match events.create(&PostParams::default(), &event).await.map_err(request_error) {
            Err(error) if !error.is_already_existing() => Err(error),
            _ => Ok(()),
        }
    }
}

fn render(
    object: &Value,
    action: &str,
    transition: &Transition,
    controller: &str,
    now: Timestamp,
    name: String,
) -> Value {
    // As in client-go, events about cluster-scoped objects are created in the namespace `default`.
    let namespace =
        Some(metadata_field(object, "namespace")).filter(|namespace| !namespace.is_empty()).unwrap_or("default");
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"namespace": namespace, "name": name},
        "eventTime": rfc3339_micros(now), "reportingController": controller, "reportingInstance": controller,
        "action": action, "reason": transition.reason, "note": truncate_note(&transition.message),
        "type": if transition.warning { "Warning" } else { "Normal" },
        "regarding": {
            "apiVersion": object["apiVersion"], "kind": object["kind"], "namespace": object["metadata"]["namespace"],
            "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
            "resourceVersion": object["metadata"]["resourceVersion"],
        },
    })
}

/// Returns the name of the event about a transition from the status of `object`. It differs after each write of the status,
/// but not after other changes of the object, so that a retry with a newer object returns the same name.
///
/// Kubernetes records when a status was written with a resolution of a second. `occurrence` distinguishes transitions from
/// equal statuses within that second; it is 0 for the first one.
#[must_use]
pub fn transition_event_name(object: &Value, transition: &Transition, occurrence: u32) -> String {
    let occurrence = if occurrence == 0 { String::new() } else { occurrence.to_string() };
    event_name(object, transition, &format!("{}{occurrence}", status_version(object)))
}

/// Returns an event name that is unique per object, reason, message and `basis`: one object may have several events at the
/// same time.
fn event_name(object: &Value, transition: &Transition, basis: &str) -> String {
    let (uid, message) = (metadata_field(object, "uid"), &transition.message);
    // A reason may contain characters that a name must not contain.
    let reason: String = transition.reason.chars().filter(char::is_ascii_alphanumeric).collect();
    let reason = &reason[..reason.len().min(MAX_REASON_LENGTH)].to_ascii_lowercase();
    let suffix = format!(".{:016x}.{reason}", fingerprint(&format!("{uid}{basis}{message}")));
    let name = metadata_field(object, "name");
    let end = name.len().min(MAX_NAME_LENGTH.saturating_sub(suffix.len()));
    // Names of objects are ASCII. A label of a name ends with a letter or a digit.
    let name = name.get(..end).unwrap_or_default().trim_end_matches(['.', '-']);
    format!("{name}{suffix}")
}

/// Returns text that differs after each write of the status. Transitions back and forth may result in the same status again,
/// so it contains when the status was written.
fn status_version(object: &Value) -> String {
    let entries = object["metadata"]["managedFields"].as_array();
    let of_status = |entry: &&Value| entry["subresource"] == "status";
    let times: Vec<&Value> = entries.into_iter().flatten().filter(of_status).map(|entry| &entry["time"]).collect();
    json!([times, object["status"]]).to_string()
}

/// Returns the 64-bit FNV-1a hash of `text`. Unlike the standard library's hashes, it does not change between Rust
/// versions.
fn fingerprint(text: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}

fn truncate_note(message: &str) -> &str {
    let mut end = message.len().min(MAX_NOTE_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn renders_event_with_regarding_object_and_truncated_note() {
        let object = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let transition = Transition { warning: true, reason: "Unschedulable".to_owned(), message: "é".repeat(600) };
        let now = Timestamp::from_second(1).unwrap();
        let name = event_name(&object, &transition, "");
        let event = render(&object, "Reconcile", &transition, "ostler.io/operator", now, name);
        assert_eq!(event["metadata"], json!({"namespace": "n", "name": "a.436a6e071e4a1770.unschedulable"}));
        assert_eq!(event["regarding"]["uid"], "u");
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["note"].as_str().unwrap().len(), 1024);
    }

    fn object(name: &str, status_time: &str, reason: &str) -> Value {
        json!({"metadata": {"name": name, "uid": "u", "resourceVersion": "1", "generation": 1,
            "managedFields": [{"subresource": "status", "time": status_time}, {"time": "2026-01-02T00:00:00Z"}]},
            "status": {"conditions": [{"type": "Ready", "reason": reason}]}})
    }

    fn transition(reason: &str, message: &str) -> Transition {
        Transition { warning: true, reason: reason.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn event_of_a_transition_is_created_once_per_written_status() {
        let name = |object: &Value| transition_event_name(object, &transition("B", "m"), 0);
        let first = object("a", "2026-01-01T00:00:00Z", "A");
        let mut edited = first.clone();
        edited["metadata"]["resourceVersion"] = json!("9");
        edited["metadata"]["generation"] = json!(2);
        edited["metadata"]["managedFields"][1]["time"] = json!("2026-01-03T00:00:00Z");
        assert_eq!(name(&first), name(&edited), "a write outside the status");
        let names = [
            name(&first),
            name(&object("a", "2026-01-01T00:00:01Z", "A")),
            name(&object("a", "2026-01-01T00:00:00Z", "C")),
            transition_event_name(&first, &transition("B", "m"), 1),
            transition_event_name(&first, &transition("B", "another message"), 0),
            transition_event_name(&first, &transition("C", "m"), 0),
        ];
        assert_eq!(std::collections::BTreeSet::from(names.clone()).len(), names.len(), "{names:?}");
    }

    #[rstest]
    #[case::longest_name(&"a".repeat(253), "Reason", 253)]
    #[case::longest_reason(&"a".repeat(253), &"R".repeat(300), 253)]
    #[case::cut_before_a_separator(&format!("{}-{}", "a".repeat(228), "b".repeat(24)), "Reason", 252)]
    #[case::reason_with_other_characters("a", "Kind:Not_Served", 32)]
    fn event_names_are_accepted(#[case] name: &str, #[case] reason: &str, #[case] length: usize) {
        let name = transition_event_name(&object(name, "t", "A"), &transition(reason, "m"), 0);
        assert_eq!(name.len(), length, "{name}");
        let is_alphanumeric = |text: char| text.is_ascii_lowercase() || text.is_ascii_digit();
        let is_label = |label: &str| label.ends_with(is_alphanumeric) && label.starts_with(is_alphanumeric);
        assert!(name.split('.').all(is_label), "{name}");
    }

    /// Published test vectors of 64-bit FNV-1a: event names must not change between versions.
    #[test]
    fn fingerprint_is_fnv_1a() {
        assert_eq!(fingerprint(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fingerprint("foobar"), 0x8594_4171_f739_67e8);
    }
}
