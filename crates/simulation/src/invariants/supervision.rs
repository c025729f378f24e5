//! No task fails or hangs.

use embedded::Change;

use crate::invariant::Invariant;
use crate::world::World;

/// A process ends only by a crash, and no task of the operator fails. Without faults, each replica of the operator is live and ready.
pub(crate) struct Supervision;

// === impl Invariant for Supervision ===

impl Invariant for Supervision {
    fn name(&self) -> &'static str {
        "no task fails or hangs"
    }

    fn after_change(&mut self, world: &World, _change: &Change) -> Result<(), String> {
        let failure = world.processes().iter().find_map(|process| Some((process.name(), process.failure()?)));
        failure.map_or(Ok(()), |(name, cause)| Err(format!("{name} failed: {cause}")))
    }

    fn after_quiet(&mut self, world: &World) -> Result<(), String> {
        // A process that changes nothing may have ended.
        let failure = world.processes().iter().find_map(|process| Some((process.name(), process.failure()?)));
        if let Some((name, cause)) = failure {
            return Err(format!("{name} failed: {cause}"));
        }
        let outage = world.processes().iter().find_map(|process| Some((process.name(), process.outage()?)));
        outage.map_or(Ok(()), |(name, cause)| Err(format!("{name} is not ready: {cause}")))
    }
}
