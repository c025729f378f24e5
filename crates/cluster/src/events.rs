//! Tells people about transitions, in `events.k8s.io/v1`.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use kube::api::PostParams;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::clock::{Clock, micros};
use crate::conditions::Transition;
use crate::object::{describe, meta};
use crate::{Error, Kind};

const EVENT: Kind = Kind::namespaced("events.k8s.io", "v1", "Event", "events");
/// The API refuses longer notes.
const LONGEST_NOTE: usize = 1024;

/// The one writer of events.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    clock: Arc<dyn Clock>,
    /// `reportingController`.
    controller: &'static str,
}

// === impl Recorder ===

impl Recorder {
    /// A recorder that signs as `controller`.
    #[must_use]
    pub fn new(client: Client, clock: Arc<dyn Clock>, controller: &'static str) -> Recorder {
        Recorder { client, clock, controller }
    }

    /// What happened to `object` now, to be [sent](Self::send).
    #[must_use]
    pub fn event(&self, object: &Value, action: &str, transition: &Transition) -> Value {
        let now = self.clock.now();
        let name = name(object, transition, &format!("{:x}", now.as_nanosecond()));
        render(object, action, transition, self.controller, now, name)
    }

    /// One event about this content of `object`, however often and by however many replicas it is published.
    ///
    /// # Errors
    /// As [`Self::send`]; that it was told before is none.
    pub async fn publish_once(&self, object: &Value, action: &str, transition: &Transition) -> Result<(), Error> {
        let content = format!("{}{}{}", meta(object, "uid"), object["spec"], transition.message);
        let name = name(object, transition, &format!("{:016x}", fingerprint(&content)));
        let event = render(object, action, transition, self.controller, self.clock.now(), name);
        match self.send(&event).await {
            Err(error) if error.is_conflict() => Ok(()),
            sent => sent,
        }
    }

    /// Writes one event.
    ///
    /// # Errors
    /// The refused request; events are news, so callers log it and go on.
    pub async fn send(&self, event: &Value) -> Result<(), Error> {
        let about = &event["regarding"];
        let what = describe(&json!({"kind": about["kind"], "metadata": about}));
        let failed = |source| Error::Request { action: "event for", what, source: Box::new(source) };
        let event: DynamicObject = match serde_json::from_value(event.clone()) {
            Ok(event) => event,
            Err(error) => return Err(failed(kube::Error::SerdeError(error))),
        };
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        EVENT.api(self.client.clone(), &namespace).create(&PostParams::default(), &event).await.map_err(failed)?;
        Ok(())
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
    // Events about cluster-scoped objects live in `default`, as everywhere in Kubernetes.
    let namespace = Some(meta(object, "namespace")).filter(|namespace| !namespace.is_empty()).unwrap_or("default");
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"namespace": namespace, "name": name},
        "eventTime": micros(now), "reportingController": controller, "reportingInstance": controller,
        "action": action, "reason": transition.reason, "note": shortened(&transition.message),
        "type": if transition.warning { "Warning" } else { "Normal" },
        "regarding": {
            "apiVersion": object["apiVersion"], "kind": object["kind"], "namespace": object["metadata"]["namespace"],
            "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
            "resourceVersion": object["metadata"]["resourceVersion"],
        },
    })
}

/// Unique per object, reason and what `apart` tells them apart by: several events may tell about one instant.
fn name(object: &Value, transition: &Transition, apart: &str) -> String {
    format!("{}.{apart}.{}", meta(object, "name"), transition.reason.to_ascii_lowercase())
}

/// FNV-1a: the same in every process, as the standard library's hasher is not.
fn fingerprint(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn shortened(message: &str) -> &str {
    let mut end = message.len().min(LONGEST_NOTE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_what_it_is_about() {
        let object = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let transition = Transition { warning: true, reason: "Unschedulable".to_owned(), message: "é".repeat(600) };
        let now = Timestamp::from_second(1).unwrap();
        let name = name(&object, &transition, "3b9aca00");
        let event = render(&object, "Reconcile", &transition, "ostler.io/operator", now, name);
        assert_eq!(event["metadata"], json!({"namespace": "n", "name": "a.3b9aca00.unschedulable"}));
        assert_eq!(event["regarding"]["uid"], "u");
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["note"].as_str().unwrap().len(), 1024);
    }
}
