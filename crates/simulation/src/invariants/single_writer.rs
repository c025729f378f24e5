//! Only the holder of the Lease writes.

use embedded::Change;

use crate::invariant::Invariant;
use crate::world::World;

/// No replica sends a write while another one holds the Lease.
pub(crate) struct SingleWriter;

// === impl Invariant for SingleWriter ===

impl Invariant for SingleWriter {
    fn name(&self) -> &'static str {
        "only the leader writes"
    }

    fn after_change(&mut self, world: &World, _change: &Change) -> Result<(), String> {
        world.write_without_lease().map_or(Ok(()), Err)
    }
}
