//! Each recorded decision has its Event.

use crate::initial_objects::SERVICES;
use crate::invariant::Invariant;
use crate::world::World;

/// A service whose status records a selection has the Event about it.
pub(crate) struct Events;

// === impl Invariant for Events ===

impl Invariant for Events {
    fn name(&self) -> &'static str {
        "each recorded selection has an Event"
    }

    fn after_quiet(&mut self, world: &World) -> Result<(), String> {
        let events = world.server().list("events");
        for service in SERVICES.iter().flat_map(|resource| world.server().list(resource)) {
            if service["status"]["decision"]["reason"] != "Selected" {
                continue;
            }
            let has_event = events.iter().any(|event| {
                event["involvedObject"]["uid"] == service["metadata"]["uid"] && event["reason"] == "Selected"
            });
            if !has_event {
                return Err(format!("service {} has no Event Selected", service["metadata"]["name"]));
            }
        }
        Ok(())
    }
}
