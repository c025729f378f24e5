//! What must always hold.

use embedded::Change;

use crate::world::World;

/// A property of the cluster. An error is a sentence that names the violating object.
pub trait Invariant {
    /// Returns the name of the invariant in reports.
    fn name(&self) -> &'static str;

    /// Checks the property after a change of an object.
    ///
    /// # Errors
    /// The property does not hold.
    fn after_change(&mut self, _world: &World, _change: &Change) -> Result<(), String> {
        Ok(())
    }

    /// Checks the property once nothing changes any more.
    ///
    /// # Errors
    /// The property does not hold.
    fn after_quiet(&mut self, _world: &World) -> Result<(), String> {
        Ok(())
    }
}
